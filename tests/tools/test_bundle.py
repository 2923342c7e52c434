"""Bundles of wheels: checked before anything is made, installed from them alone."""

import ensurepip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.made_up_wheels import write_wheel
from tests.support.paths import REPOSITORY
from tools.bundle import SUMS, checked_files, digest_of, write_sums

PROJECT = """[project]
dependencies = [
  "torch>=2",  # "evil"
  "madeup>=1; python_version >= '3.10'",
]

[project.scripts]
evil = "evil:main"
"""


@pytest.fixture
def bundle(tmp_path):
    """A folder with pip, a torch that is none and a package that needs another."""
    directory = tmp_path / "bundle"
    directory.mkdir()
    pips = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not pips:
        pytest.skip("this Python has no wheel of pip")
    shutil.copy(pips[-1], directory)
    write_wheel(directory, "torch", "9.0", ["nvidia_made.up; platform_system == 'Linux'"])
    write_wheel(directory, "nvidia_made_up", "1.0")
    write_wheel(directory, "madeup", "1.0", ["needed>=2"])
    write_wheel(directory, "needed", "2.1")
    write_sums(directory)
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools" / "bundle.py", tmp_path / "tools")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    lock(directory, "pip", "madeup", "needed")
    return directory


def lock(bundle, *names):
    """The lock file of the made-up project beside the bundle: the files of these packages."""
    parts = []
    for name in names:
        file = next(bundle.glob(f"{name}-*"), None)
        digest = digest_of(file) if file else "0" * 64
        parts.append(f"{name}==1.0 \\\n    --hash=sha256:{'1' * 64} \\\n    --hash=sha256:{digest}\n")
    (bundle.parent / "requirements.lock").write_text("# By make lock\n" + "".join(parts))


def record(bundle):
    """Whoever changes a bundle writes its record anew."""
    (bundle / SUMS).unlink()
    write_sums(bundle)


def install(bundle, *flags):
    """As make setup does it; the environment is beside the bundle."""
    environment = bundle.parent / "environment"
    argv = [sys.executable, "-m", "tools.bundle", "install", str(bundle), str(environment), *flags]
    # A place that pip's settings name is no part of the bundle.
    settings = {**os.environ, "PIP_FIND_LINKS": str(bundle.parent)}
    done = subprocess.run(argv, cwd=bundle.parent, env=settings, capture_output=True, text=True, timeout=120)
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


@pytest.mark.slow
def test_a_bundle_is_installed_with_its_own_pip_into_an_environment_of_its_own(bundle):
    done, environment = install(bundle)
    assert done.returncode == 0, done.stderr
    assert in_environment(environment, "import madeup, needed; print(needed.VERSION)") == "2.1"
    assert "'pytest'" in in_environment(environment, "import pytest")


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
    assert not check_refusal(bundle, f"{SUMS}:6: ", "expected '<sha256>  <file name>'").exists()


def test_a_folder_that_is_no_bundle_is_refused(tmp_path):
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    assert not check_refusal(tmp_path / "none", SUMS, "expected a folder that make bundle made").exists()


@pytest.mark.slow
def test_where_a_requirement_is_nowhere_nothing_is_installed(bundle):
    (bundle / "needed-2.1-py3-none-any.whl").unlink()
    # pip may not take it from a place of its settings either.
    write_wheel(bundle.parent, "needed", "2.1")
    (bundle / SUMS).unlink()
    write_sums(bundle)
    environment = check_refusal(bundle, "needed>=2")
    assert "'madeup'" in in_environment(environment, "import madeup")


def test_the_record_is_one_that_sha256sum_reads(bundle):
    done = subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=bundle, capture_output=True)
    assert done.returncode == 0
    assert {path.name for path in checked_files(bundle)} | {SUMS} == {path.name for path in bundle.iterdir()}


def test_a_wheel_that_nothing_requires_is_refused_though_the_record_has_it(bundle):
    write_wheel(bundle, "evil", "1.0", (), "py3-none-any")
    record(bundle)
    assert not check_refusal(bundle, "evil-1.0", "nothing requires evil").exists()


def test_a_locked_wheel_with_another_content_is_refused_though_the_record_has_it(bundle):
    write_wheel(bundle, "needed", "2.1", ["evil"])
    record(bundle)
    assert not check_refusal(bundle, "needed-2.1", "expected one that requirements.lock has").exists()


@pytest.mark.slow
def test_what_the_lock_has_not_is_listed(bundle):
    done, _ = install(bundle)
    (line,) = done.stdout.splitlines()
    assert line.endswith(": nvidia_made_up-1.0-py3-none-any.whl, torch-9.0-py3-none-any.whl")


@pytest.mark.slow
def test_the_packages_of_the_interpreter_are_used_where_that_is_asked_for_and_a_locked_source_is_built(
    bundle,
):
    """A source as chess, which is published without a wheel."""
    for name in ("torch-9.0", "nvidia_made_up-1.0"):
        (bundle / f"{name}-py3-none-any.whl").unlink()
    record(bundle)
    assert not check_refusal(bundle, "holds no torch: expected SYSTEM_TORCH=1").exists()
    source = bundle / "sourced-1.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in (
            (
                "setup.py",
                "import setuptools; setuptools.setup(name='sourced', version='1.0', py_modules=['sourced'])",
            ),
            ("sourced.py", "VERSION = '1.0'"),
        ):
            entry = tarfile.TarInfo(f"sourced-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    record(bundle)
    lock(bundle, "pip", "madeup", "needed", "sourced")
    done, environment = install(bundle, "--system")  # whose setuptools builds it
    assert done.returncode == 0, done.stderr
    assert in_environment(environment, "import sourced; print(sourced.VERSION)") == "1.0"
    assert in_environment(environment, "import madeup, pytest; print(pytest.__name__)") == "pytest"
    lock(bundle, "pip", "madeup", "needed")
    (bundle.parent / "requirements.lock").open("a").write(f"sourced==1.0 \\\n    --hash=sha256:{'1' * 64}\n")
    shutil.rmtree(environment)
    assert not check_refusal(bundle, "sourced-1.0.tar.gz", "sha256", flags=("--system",)).exists()
