"""The doctor's program on a host of a hostfile: an order as JSON on stdin, the examined host as a line.

`python -m alphazero.doctor.here` (cluster/plan/commands.py).
"""

from __future__ import annotations

import json
import sys

from alphazero.doctor.examined_host import Wishes, encode, examine_this_host


def main() -> int:
    """Examine this host as ordered."""
    print(encode(examine_this_host(Wishes(**json.loads(sys.stdin.readline())))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
