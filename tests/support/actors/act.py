"""An actor as a process of the zygote: `alphazero selfplay` without the time that PyTorch takes to load."""

import sys

from alphazero.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["selfplay", *sys.argv[1:]]))
