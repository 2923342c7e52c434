"""Bundles of wheels: checked before anything is made, installed from them alone."""

import ensurepip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.made_up_wheels import write_wheel
from tests.support.paths import REPOSITORY
from tools.bundle import SUMS, checked_files, digest_of, write_sums


@pytest.fixture
def bundle(tmp_path):
    """A folder with pip, a torch that is none and a package that needs another."""
    directory = tmp_path / "bundle"
    directory.mkdir()
    pips = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not pips:
        pytest.skip("this Python has no wheel of pip")
    shutil.copy(pips[-1], directory)
    write_wheel(directory, "torch", "9.0")
    write_wheel(directory, "madeup", "1.0", ["needed>=2"])
    write_wheel(directory, "needed", "2.1")
    write_sums(directory)
    return directory


def install(bundle, *flags):
    """As make setup does it; the environment is beside the bundle."""
    environment = bundle.parent / "environment"
    argv = [sys.executable, "-m", "tools.bundle", "install", str(bundle), str(environment), *flags]
    # A place that pip's settings name is no part of the bundle.
    settings = {**os.environ, "PIP_FIND_LINKS": str(bundle.parent)}
    done = subprocess.run(argv, cwd=REPOSITORY, env=settings, capture_output=True, text=True, timeout=120)
    return done, environment


def in_environment(environment, program):
    done = subprocess.run([environment / "bin/python", "-c", program], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def check_refusal(bundle, *expected, flags=()):
    """One line, status 2, and nothing is made."""
    done, environment = install(bundle, *flags)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("bundle: ")
    assert all(part in line for part in expected), line
    return environment


def test_a_bundle_is_installed_with_its_own_pip_into_an_environment_of_its_own(bundle):
    done, environment = install(bundle)
    assert done.returncode == 0, done.stderr
    assert in_environment(environment, "import madeup, needed; print(needed.VERSION)") == "2.1"
    assert "No module named 'pytest'" in in_environment(environment, "import pytest")


def test_the_packages_of_the_interpreter_are_used_where_that_is_asked_for(bundle):
    (bundle / "torch-9.0-py3-none-any.whl").unlink()
    (bundle / SUMS).unlink()
    write_sums(bundle)
    assert not check_refusal(bundle, "holds no torch: expected SYSTEM_TORCH=1").exists()
    done, environment = install(bundle, "--system")
    assert done.returncode == 0, done.stderr
    assert in_environment(environment, "import madeup, pytest; print(pytest.__name__)") == "pytest"


@pytest.mark.parametrize("fault", ["missing", "altered", "cut"])
def test_a_wheel_that_is_missing_or_altered_is_named_and_nothing_is_made(bundle, fault):
    wheel = bundle / "needed-2.1-py3-none-any.whl"
    digest, content = digest_of(wheel), wheel.read_bytes()
    wheel.unlink()
    if fault != "missing":
        wheel.write_bytes(content[:-1] if fault == "cut" else content[:-1] + b"x")
    assert not check_refusal(bundle, str(wheel), digest).exists()


@pytest.mark.parametrize("line", ["", "0" * 64, f"{'0' * 64}  ../needed.whl", "what is this"])
def test_a_record_that_is_none_is_refused(bundle, line):
    with (bundle / SUMS).open("a") as file:
        file.write(line + "\n")
    assert not check_refusal(bundle, f"{SUMS}:5: ", "expected '<sha256>  <file name>'").exists()


def test_a_folder_that_is_no_bundle_is_refused(tmp_path):
    assert not check_refusal(tmp_path / "none", SUMS, "expected a folder that make bundle made").exists()


def test_where_a_requirement_is_nowhere_nothing_is_installed(bundle):
    (bundle / "needed-2.1-py3-none-any.whl").unlink()
    # pip may not take it from a place of its settings either.
    write_wheel(bundle.parent, "needed", "2.1")
    (bundle / SUMS).unlink()
    write_sums(bundle)
    environment = check_refusal(bundle, "needed>=2")
    assert "No module named 'madeup'" in in_environment(environment, "import madeup")


def test_the_record_is_one_that_sha256sum_reads(bundle):
    done = subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=bundle, capture_output=True)
    assert done.returncode == 0
    assert {path.name for path in checked_files(bundle)} | {SUMS} == {path.name for path in bundle.iterdir()}
