"""`import alphazero as az` is quick: it brings in what is asked for and nothing else."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import alphazero as az

MOST_MODULES = 25  # beyond those of Python's own start


def modules_after(code: str) -> set[str]:
    """Modules that a fresh interpreter has after the code and had not before."""
    program = f"import sys; before = set(sys.modules)\n{code}\nprint('\\n'.join(sys.modules.keys() - before))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_the_import_alone_brings_in_next_to_nothing():
    found = modules_after("import alphazero")
    assert {name for name in found if name.startswith("alphazero")} == {"alphazero"}
    assert len(found) <= MOST_MODULES


def test_version_boards_and_runs_need_no_torch():
    code = "import alphazero as az; az.__version__, az.Board('connect4').push('4'), az.list_runs, az.Style"
    assert not {"torch", "deepspeed", "pandas"} & modules_after(code)


@pytest.mark.parametrize("name", az.__all__)
def test_every_name_is_there_and_documented(name):
    assert name in dir(az)
    assert name == "__version__" or getattr(az, name).__doc__


def test_type_checkers_are_told_of_every_name():
    stub = ast.parse(Path(az.__file__).with_name("__init__.pyi").read_text())
    told = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told | {"__version__"} == set(az.__all__)
    assert Path(az.__file__).with_name("py.typed").is_file()


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'alphazero' .*'lod'"):
        az.lod  # noqa: B018
