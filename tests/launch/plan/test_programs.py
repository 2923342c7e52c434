"""The programs that cluster starts by name: each is there, and nobody else spells its name."""

import importlib.util
import re
from pathlib import Path

import pytest

from alphazero.launch.plan import programs
from tests.support.paths import REPOSITORY


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_a_program_is_a_module_that_can_be_run(name: str):
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    text = Path(found.origin).read_text(encoding="utf-8")
    assert '\nif __name__ == "__main__":\n' in text


def test_every_program_named_in_programs_py_is_in_the_list():
    named = {value for name, value in vars(programs).items() if name.isupper() and isinstance(value, str)}
    assert named - {programs.START, programs.DEEPSPEED} == set(programs.PROGRAMS)


def test_no_other_file_of_the_package_spells_a_program_s_name_for_a_command():
    spelled = re.compile("|".join(f'"{re.escape(name)}"' for name in programs.PROGRAMS))
    files = [path for path in (REPOSITORY / "alphazero").rglob("*.py") if path.name != "programs.py"]
    assert [path.name for path in files if spelled.search(path.read_text(encoding="utf-8"))] == []


def test_no_file_of_the_package_starts_python_with_the_working_directory_first_in_its_path():
    files = (REPOSITORY / "alphazero").rglob("*.py")
    found = [path.name for path in files if re.search(r'"-[mc]",? ', path.read_text(encoding="utf-8"))]
    assert sorted(found) == ["environment.py", "next_command.py", "remote.py"]  # git, typed by users, sh
