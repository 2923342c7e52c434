"""What a bundle holds: the versions of the lock file that another Python needs, less what its machine has."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.made_up_wheels import write_wheel
from tools import make_bundle
from tools.bundle import BundleError
from tools.make_bundle import Bundle, asked_for, read_have, read_locked

LOCK = """# By make lock
base==1.0 \\
    --hash=sha256:00
new==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:00
old==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:00
part==3.0 \\
    --hash=sha256:00
pip==26.0 \\
    --hash=sha256:00
"""
NEEDS = {
    "base": ["new>=2; python_version >= '3.12'", "old; python_version < '3.12'", "torch>=2"],
    "new": ["part==3.0", "extra-part; extra == 'more'"],
    "torch": ["cuda-made-up==13.0; sys_platform == 'linux'"],
    "deepspeed": ["torch", "part"],
}
ROOTS = ["base", "pip", "torch>=2.9", "deepspeed==0.19.8"]


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """Stands for pip: it has every package, those of the lock file in the version that is asked for."""
    (tmp_path / "requirements.lock").write_text(LOCK)
    monkeypatch.setattr(make_bundle, "LOCK", tmp_path / "requirements.lock")
    asked = []

    def run(command, *flags, text=""):
        place = Path(flags[flags.index("--dest" if command == "download" else "--wheel-dir") + 1])
        names = text.splitlines() if command == "download" else [flags[-1]]
        for line in names:
            if not line.startswith(" "):
                requirement = Requirement(line.split("\\")[0])
                version = next(iter(requirement.specifier)).version
                asked.append((command, requirement.name, "--require-hashes" in flags))
                tag = "cp311-cp311-linux_x86_64" if run.is_compiled and command == "wheel" else "py3-none-any"
                name = requirement.name.replace("-", "_")
                write_wheel(place, name, version, NEEDS.get(requirement.name, ()), tag)

    run.is_compiled = False
    monkeypatch.setattr(make_bundle, "run_pip", run)
    run.asked = asked
    return run


def collected(tmp_path, python="3.12", have=None, with_torch=False):
    """Names and versions of the wheels."""
    directory = tmp_path / "bundle"
    directory.mkdir()
    file = None
    if have is not None:
        file = tmp_path / "have.txt"
        file.write_text(have)
    bundle = Bundle(directory, python, file, with_torch)
    bundle.collect(map(Requirement, ROOTS))
    return {path.name.split("-")[0]: path.name.split("-")[1] for path in directory.iterdir()}


def test_conditions_are_those_of_the_other_python(tmp_path, pip):
    common = {"base": "1.0", "part": "3.0", "pip": "26.0", "deepspeed": "0.19.8"}
    assert collected(tmp_path, "3.12") == {**common, "new": "2.0"}
    (tmp_path / "more").mkdir()
    assert collected(tmp_path / "more", "3.11") == {**common, "old": "1.0"}


def test_all_that_the_lock_file_has_is_asked_for_by_its_hash(tmp_path, pip):
    collected(tmp_path)
    assert set(pip.asked) == {
        *(("download", name, True) for name in ("base", "new", "part", "pip")),
        ("wheel", "deepspeed", False),
    }


def test_torch_comes_with_its_libraries_where_it_is_asked_for(tmp_path, pip):
    assert collected(tmp_path, with_torch=True).keys() >= {"torch", "cuda_made_up"}
    assert ("download", "torch", False) in pip.asked


def test_what_the_machine_has_is_left_out_but_for_pip(tmp_path, pip, capsys):
    have = (
        "# by pip freeze\ntorch==2.11.0+cu128\nnew==2.5\nPart==3.0\npip==25.0\n-e /home/x\nbase @ file:///x\n"
    )
    assert collected(tmp_path, have=have) == {"base": "1.0", "pip": "26.0", "deepspeed": "0.19.8"}
    assert capsys.readouterr().out == ""


def test_a_version_out_of_bounds_is_named_and_the_bundle_has_its_own(tmp_path, pip, capsys):
    # That new 2.0 wants part 3.0 shows only when new is taken.
    found = collected(tmp_path, have="torch==2.11.0\nnew==1.9\npart==2.0\ndeepspeed==0.19.8\n")
    assert found == {"base": "1.0", "new": "2.0", "part": "3.0", "pip": "26.0"}
    said = capsys.readouterr().out
    assert "new==1.9 is outside new>=2" in said and "part==2.0 is outside part==3.0" in said


def test_a_torch_out_of_bounds_is_refused(tmp_path, pip):
    with pytest.raises(BundleError, match=r"torch==2.4.0: .*torch>=2.9"):
        collected(tmp_path, have="torch==2.4.0\n")


def test_a_source_that_compiles_for_this_python_alone_is_refused(tmp_path, pip):
    pip.is_compiled = True
    with pytest.raises(BundleError, match=r"deepspeed.* no wheel .*3.12"):
        collected(tmp_path)


@pytest.mark.parametrize("line", ["numpy", "numpy==", "num py==1.0", "==1.0", "numpy==one"])
def test_a_list_that_is_none_is_refused_by_its_line(tmp_path, line):
    file = tmp_path / "have.txt"
    file.write_text(f"torch==2.11.0\n{line}\n")
    with pytest.raises(BundleError, match=r"have.txt:2: .*=="):
        read_have(file)


@pytest.mark.parametrize("version", ["3.9", "3", "3.12.1", "4.0", "three"])
def test_a_python_out_of_bounds_is_refused(version):
    with pytest.raises(BundleError, match=r"PYTHON_VERSION: .* expected a version >=3.10"):
        asked_for(version, [])


def test_an_extra_that_is_none_is_refused_and_one_that_is_adds_its_packages():
    with pytest.raises(BundleError, match=r"EXTRA: 'tests': .*dev"):
        asked_for("3.12", ["tests"])
    names = {requirement.name for requirement in asked_for("3.12", ["test"])}
    assert {"torch", "chess", "nanobind", "pytest", "hypothesis"} <= names and "ruff" not in names


def test_the_lock_file_has_every_package_that_a_bundle_starts_from():
    for python in ("3.10", "3.12", "3.13"):
        locked = read_locked({"python_version": python, "python_full_version": f"{python}.0"})
        roots = {r.name for r in asked_for(python, ["dev"]) if r.marker is None}
        assert roots - locked.keys() == {"torch", "deepspeed"}
