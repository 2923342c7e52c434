"""What every rank runs: `torchrun train_distributed.py`, `deepspeed train_distributed.py`, or plain python.

Same as `alphazero train`; see `--help` there for all flags.
"""

import sys
from pathlib import Path

import alphazero

if __name__ == "__main__":
    here, code = Path(__file__).resolve().parent, Path(alphazero.__file__).resolve().parents[1]
    if code != here:  # what is installed as editable comes before this directory
        sys.stderr.write(
            f"alphazero: error: {sys.executable} runs the code of {code}; expected {here}: "
            "run 'make clean setup' there and use its .venv\n"
        )
        sys.exit(2)
    from alphazero.cli.main import entry_point

    entry_point(["train", *sys.argv[1:]])
