"""What every rank runs: `torchrun train_distributed.py`, `deepspeed train_distributed.py`, or plain python.

Same as `alphazero train`; see `--help` there for all flags.
"""

import sys

from alphazero.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
