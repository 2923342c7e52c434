"""The Makefile's way to install what it needs, and the lock file that it installs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.paths import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCK = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
# Of constraints.txt, and the CUDA libraries that torch chooses.
WITHOUT_HASHES = re.compile(r"(torch|deepspeed|triton|cuda-\S*|nvidia-(?!ml-py)\S*)$")

WITHOUT_HEADERS = """#!{python}
import sys, sysconfig
sysconfig.get_config_vars()["INCLUDEPY"] = "/nowhere"
exec(sys.argv[2])
"""


def test_a_python_without_headers_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    # Debian's python3 and python3-venv bring no Python.h, which the core is compiled with.
    for name in ("Makefile", "requirements.lock", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(WITHOUT_HEADERS.format(python=sys.executable))
    python.chmod(0o755)
    done = subprocess.run(
        ["make", ".venv/dependencies.stamp", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "apt install python3-dev" in done.stdout
    assert not (tmp_path / ".venv").exists()


def test_deepspeed_is_installed_without_looking_for_a_cuda_toolkit() -> None:
    # DeepSpeed 0.19.8: setup.py asks every op whether it can be compiled, and those of CUDA raise
    # MissingCUDAException on a machine with a GPU and no nvcc, unless this variable is set.
    command = ["make", "--dry-run", "--always-make", ".venv/dependencies.stamp"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if line.endswith(" deepspeed")]
    assert line.split()[0] == "DS_IGNORE_CUDA_DETECTION=1"


def test_with_a_bundle_nothing_comes_from_a_network_and_the_gpu_proof_runs_what_was_set_up() -> None:
    command = ["make", "--dry-run", "--always-make", "test-gpu", "BUNDLE=wheels", "PYTHON=python9"]
    shown = [
        subprocess.run([*command, *asked], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
        for asked in ((), ("SYSTEM_TORCH=1",))
    ]
    for text, flag in zip(shown, ("", "--system"), strict=True):
        assert f"python9 -m tools.bundle install wheels .venv {flag}".strip() in text
        assert ".venv/bin/python -m tools.gpu_proof test" in text
        (pip,) = [line for line in text.splitlines() if "pip install" in line]
        assert pip.endswith("--no-build-isolation --no-deps --editable .")


def test_make_bundle_passes_on_what_it_is_asked_for() -> None:
    flags = ("PYTHON_VERSION=3.12", "HAVE=have.txt", "EXTRA=test onnx", "OUT=there", "TORCH=1")
    command = ["make", "--dry-run", "bundle", *flags]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (words,) = re.findall(r"-m tools.make_bundle ((?:.*\\\n)*.*)", shown)
    asked = "there --python-version=3.12 --extra=test --extra=onnx --have=have.txt --torch"
    assert words.replace("\\\n", " ").split() == asked.split()


def locked(python: str) -> dict[str, Version]:
    """The packages of the lock file for a version of Python on Linux, all of which have hashes."""
    here = {"python_full_version": f"{python}.9", "python_version": python, "sys_platform": "linux"}
    found = {}
    for entry in re.split(r"\n(?=[a-z])", LOCK)[1:]:
        lines = [line.removesuffix(" \\") for line in entry.strip().splitlines()]
        assert len(lines) > 1 and all(
            re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}", line) for line in lines[1:]
        )
        wanted = Requirement(lines[0])
        if wanted.marker is None or wanted.marker.evaluate(here):
            assert wanted.name not in found, entry
            (pin,) = wanted.specifier
            assert pin.operator == "=="
            found[wanted.name] = Version(pin.version)
    return found


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_lock_file_has_all_that_pyproject_asks_for(python: str) -> None:
    asked = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    project = asked["project"]
    lines = (
        project["dependencies"]
        + project["optional-dependencies"]["dev"]
        + asked["dependency-groups"]["build"]
    )
    lines += asked["build-system"]["requires"]
    versions = locked(python)
    for wanted in map(Requirement, lines):
        if wanted.marker and not wanted.marker.evaluate({"python_version": python}):
            continue
        if not WITHOUT_HASHES.match(wanted.name):
            assert versions[normalized(wanted.name)] in wanted.specifier, wanted


def test_every_package_that_is_installed_with_this_one_is_in_the_lock_file() -> None:
    versions = locked(f"{sys.version_info[0]}.{sys.version_info[1]}")
    met, queue = set(), [("alphazero", "dev")]
    while queue:
        name, extra = queue.pop()
        for wanted in map(Requirement, requires(name) or []):
            if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
                continue
            found = normalized(wanted.name)
            if WITHOUT_HASHES.match(found) is None:
                assert found in versions, f"{found}, which {name} asks for"
            elif found not in ("torch", "deepspeed"):
                continue  # for CUDA alone
            todo = {(found, one) for one in ("", *wanted.extras)} - met
            met |= todo
            queue += todo
    assert len(met) > 90


def test_the_lock_file_and_the_versions_without_hashes_name_no_server() -> None:
    names = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    assert "//" not in LOCK + names and "--index" not in LOCK + names
