"""What every rank runs: `torchrun train_distributed.py`, `deepspeed train_distributed.py`, or plain python.

Same as `alphazero train`; see `--help` there for all flags.
"""

import sys

from alphazero.cli.main import entry_point

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
