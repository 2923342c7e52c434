"""The `alphazero` command, or another program of this package: started by this file's path.

    python .../alphazero/__main__.py COMMAND [...]
    python .../alphazero/__main__.py --module NAME [...]

`python -m` looks for modules in the working directory before all others, and a file's own directory is the
first where it is started by its path: neither may stand in for Python's own modules (base, run, random).
"""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        del sys.path[0]
    from pathlib import Path

    sys.path.append(str(Path(__file__).resolve().parents[1]))
    if sys.argv[1:2] == ["--module"]:
        import runpy

        name = sys.argv[2]
        del sys.argv[1:3]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        from alphazero.cli.main import entry_point

        entry_point()
