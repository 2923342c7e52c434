"""The script `alphazero ARGUMENTS` of a forked process, which no launcher numbered."""

import os
import sys

from alphazero.cli.main import entry_point
from tests.support.jobs.zygote import rank_variables

if __name__ == "__main__":
    for name in rank_variables(0, 1, 0):
        os.environ.pop(name, None)
    entry_point(sys.argv[1:])
