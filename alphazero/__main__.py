"""`python -m alphazero` is the `alphazero` command."""

from alphazero.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
