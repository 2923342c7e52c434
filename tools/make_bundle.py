"""Makes a bundle (tools/bundle.py) for a machine without network, whose Python may be another than this one.

    python -m tools.make_bundle DIRECTORY [--python-version 3.12] [--extra dev] [--have FILE] [--torch]

Run by `make bundle` in .venv. Versions and hashes are those of requirements.lock, less what pyproject.toml
does not ask for, itself or through others. pip cannot judge a condition such as python_version < "3.11" for
another Python than its own, so the wheels' requirements are followed here.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.bundle import SUMS, USAGE_ERROR, BundleError, pip_fault, write_sums

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LOCK, CONSTRAINTS, PROJECT = (
    ROOT / name for name in ("requirements.lock", "constraints.txt", "pyproject.toml")
)
OLDEST_GLIBC, NEWEST_GLIBC = 5, 28  # 2.N; torch's own wheels ask for 2.28
ALWAYS = "pip"  # what installs the bundle
TORCH, DEEPSPEED = "torch", "deepspeed"


def main(argv: Sequence[str]) -> int:
    """Make one."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_bundle", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("directory", type=Path)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python-version", default=here, help="of the machine without network")
    parser.add_argument(
        "--extra", action="append", default=[], help="of pyproject.toml, beside what is required"
    )
    parser.add_argument(
        "--have", type=Path, default=None, help="what that machine has, as pip freeze prints it"
    )
    parser.add_argument(
        "--torch", action="store_true", help="torch and what it needs, too: gigabytes with CUDA"
    )
    args = parser.parse_args(argv)
    try:
        make(args.directory, args.python_version, args.extra, args.have, args.torch)
    except BundleError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def make(directory: Path, python: str, extras: Sequence[str], have: Path | None, with_torch: bool) -> None:
    """Fetch, build and record everything in a folder beside, then put it into place. Raises BundleError."""
    requirements = asked_for(python, extras)
    if directory.exists() and not (directory / SUMS).is_file():
        raise BundleError(f"{directory}: expected a bundle to replace, or nothing there")
    writing = directory.with_name(directory.name + ".writing")
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    try:
        Bundle(writing, python, have, with_torch).collect(requirements)
        build_sources(writing)
        write_sums(writing)
        shutil.rmtree(directory, ignore_errors=True)
        writing.replace(directory)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    files = [path for path in directory.iterdir() if path.name != SUMS]
    size_mib = sum(path.stat().st_size for path in files) / 2**20
    wheels = sum(path.suffix == ".whl" for path in files)
    print(f"bundle: {directory}: {wheels} wheels for Python {python} and the sources, {size_mib:.1f} MiB")
    if not with_torch:
        print("bundle: torch is not in it: make setup there with SYSTEM_TORCH=1")


def asked_for(python: str, extras: Sequence[str]) -> list[Requirement]:
    """What pyproject.toml requires, the packages that build, and those of the extras. Raises BundleError."""
    with PROJECT.open("rb") as file:
        document = tomllib.load(file)
    project = document["project"]
    optional = project["optional-dependencies"]
    is_version = re.fullmatch(r"3\.[0-9]{1,2}", python) is not None
    if not is_version or not SpecifierSet(project["requires-python"]).contains(f"{python}.0"):
        raise BundleError(
            f"PYTHON_VERSION: {python!r}: expected a version {project['requires-python']}, such as 3.12"
        )
    for extra in extras:
        if extra not in optional:
            raise BundleError(f"EXTRA: {extra!r}: expected one of {', '.join(sorted(optional))}")
    lines = [*project["dependencies"], *document["dependency-groups"]["build"]]
    for extra in extras:
        lines += optional[extra]
    return [Requirement(line) for line in lines]


def read_locked(conditions: dict[str, str]) -> dict[str, str]:
    """The part of requirements.lock, with its hashes, of every package that the conditions let in."""
    parts = {}
    for part in re.split(r"\n(?=\S)", LOCK.read_text(encoding="utf-8")):
        if not part.startswith("#"):
            requirement = Requirement(part.split("\\", 1)[0])
            if requirement.marker is None or requirement.marker.evaluate(conditions):
                parts[canonicalize_name(requirement.name)] = part
    return parts


def read_have(path: Path) -> dict[str, Version]:
    """The versions by package. Raises BundleError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(
            f"{path}: cannot read: expected a list of packages, as pip freeze prints it"
        ) from error
    versions = {}
    for number, line in enumerate(lines, 1):
        # The version of what was installed from a folder is not known: the bundle has its own.
        if not line.strip() or line.startswith(("#", "-e ")) or " @ " in line:
            continue
        name, _, version = line.partition("==")
        try:
            versions[canonicalize_name(name.strip(), validate=True)] = Version(version.strip())
        except ValueError as error:  # of the name or the version
            raise BundleError(
                f"{path}:{number}: {line[:100]!r}: expected name==version, as of pip freeze"
            ) from error
    return versions


class Bundle:
    """The wheels of a folder for one Python on this kind of processor, taken as others ask for them."""

    def __init__(self, directory: Path, python: str, have: Path | None, with_torch: bool) -> None:
        self.directory = directory
        self.python = python
        self.have_file = have
        self.have = read_have(have) if have else {}
        self.with_torch = with_torch
        self.conditions = {"python_version": python, "python_full_version": f"{python}.0"}
        self.locked = read_locked(self.conditions)
        self.wheels: dict[str, Distribution] = {}
        self.built: list[Path] = []  # of sources that the lock has, which are installed from these

    def collect(self, requirements: Iterable[Requirement]) -> None:
        """Take what is required, then what that requires, until nothing is lacking. Raises BundleError."""
        done: set[tuple[str, str]] = set()
        waiting = [requirement for requirement in requirements if self.is_meant(requirement, "")]
        while waiting:
            self.fetch({canonicalize_name(r.name): r for r in waiting if self.is_lacking(r)})
            following = []
            for requirement in waiting:
                name = canonicalize_name(requirement.name)
                for extra in ("", *requirement.extras):
                    if name in self.wheels and (name, extra) not in done:
                        done.add((name, extra))
                        needed = map(Requirement, self.wheels[name].requires or ())
                        following += [other for other in needed if self.is_meant(other, extra)]
            waiting = following
        for wheel in self.built:
            wheel.unlink()

    def is_meant(self, requirement: Requirement, extra: str) -> bool:
        """True where the requirement's condition is met on the other machine."""
        marker = requirement.marker
        return marker is None or marker.evaluate({**self.conditions, "extra": extra})

    def is_lacking(self, requirement: Requirement) -> bool:
        """True where the bundle still lacks it. Raises BundleError for a torch out of bounds."""
        name = canonicalize_name(requirement.name)
        if name in self.wheels:
            return False
        found = self.have.get(name)
        fits = found is not None and requirement.specifier.contains(found, prereleases=True)
        if name == TORCH and not self.with_torch:
            if found is not None and not fits:
                raise BundleError(f"{self.have_file}: torch=={found}: expected {requirement}, or TORCH=1")
            return False
        if found is not None and not fits:
            print(
                f"bundle: {self.have_file}: {name}=={found} is outside {requirement}: the bundle has its own"
            )
        return not fits or name == ALWAYS

    def fetch(self, requirements: dict[str, Requirement]) -> None:
        """Their wheels, those of the lock file by its hashes. Raises BundleError."""
        before = set(self.directory.iterdir())
        free = [r for name, r in requirements.items() if name not in self.locked]
        others = [f"{r.name}{r.specifier}" for r in free]
        sources = [other for other in others if other.startswith(DEEPSPEED)]  # published as a source alone
        if locked := [self.locked[name] for name in requirements if name in self.locked]:
            self.download("--require-hashes", text="\n".join(locked))
        if others := [other for other in others if other not in sources]:
            self.download("--only-binary=:all:", "--constraint", str(CONSTRAINTS), text="\n".join(others))
        archives = [path for path in set(self.directory.iterdir()) - before if path.suffix != ".whl"]
        for source in sources:
            self.build(source)
        for archive in archives:  # their wheels tell what they require; the bundle keeps what the lock has
            self.built.append(self.build(str(archive)))
        for path in set(self.directory.glob("*.whl")) - before:
            (wheel,) = distributions(path=[str(path)])
            self.wheels[canonicalize_name(wheel.metadata["Name"])] = wheel

    def build(self, source: str) -> Path:
        """The wheel of a source, which must not be one for this Python alone. Raises BundleError."""
        with tempfile.TemporaryDirectory(dir=self.directory.parent) as place:
            run_pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, source)
            (wheel,) = Path(place).iterdir()
            if not wheel.name.endswith("-none-any.whl"):
                raise BundleError(
                    f"{Path(source).name}: has no wheel for Python {self.python} on this processor"
                )
            return wheel.replace(self.directory / wheel.name)

    def download(self, *flags: str, text: str) -> None:
        """pip download for the other Python. Raises BundleError."""
        machine = platform.machine()
        platforms = [f"manylinux_2_{minor}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
        platforms += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
        tags = [f"--platform={name}_{machine}" for name in platforms]
        where = [f"--python-version={self.python}", "--implementation=cp", *tags]
        common = ["--no-deps", "--no-build-isolation", "--dest", str(self.directory)]
        run_pip("download", *where, *common, *flags, "--requirement", "/dev/stdin", text=text)


def run_pip(*arguments: str, text: str = "") -> None:
    """Raises BundleError with what pip says was wrong."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    # Where torch sees a GPU, DeepSpeed's build would look for a CUDA toolkit.
    environment = {**os.environ, "DS_IGNORE_CUDA_DETECTION": "1"}
    done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(pip_fault(done.stderr))


def build_sources(directory: Path) -> None:
    """The sources of this checkout as a tar file, by the build backend. Raises BundleError."""
    program = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", program, str(directory.absolute())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"the sources cannot be packed: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
