"""A bundle: a folder of wheels, with their sha256, that takes the place of the network.

    python3 -m tools.bundle install DIRECTORY ENVIRONMENT [--system]

Makes a virtual environment of the interpreter that runs this and installs every wheel of the bundle into it,
and nothing from elsewhere. All files are checked first: what requirements.lock has must have its sha256; what
it has not must be required by pyproject.toml, itself or through others, and is listed. --system: packages of
the interpreter itself, such as its torch, are used where the bundle has none. `make setup BUNDLE=DIRECTORY`
runs it, `make bundle` makes a bundle.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import site
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# As sha256sum writes and checks it.
SUMS = "SHA256SUMS"
SUM_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)")
PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
USAGE_ERROR = 2


class BundleError(Exception):
    """One line for the user: the place, what was found, what was expected."""


def main(argv: Sequence[str]) -> int:
    """Install."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.bundle", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=("install",))
    parser.add_argument("bundle", type=Path)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--system", action="store_true", help="use the interpreter's own packages, too")
    args = parser.parse_args(argv)
    try:
        install(args.bundle, args.environment, args.system)
    except BundleError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def digest_of(path: Path) -> str:
    """sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_sums(directory: Path) -> None:
    """Record every file of a new bundle."""
    lines = [f"{digest_of(path)}  {path.name}\n" for path in sorted(directory.iterdir())]
    (directory / SUMS).write_text("".join(lines), encoding="utf-8")


def checked_files(directory: Path) -> list[Path]:
    """The recorded files, all of them there and unchanged. Raises BundleError."""
    record = directory / SUMS
    try:
        lines = record.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{record}: cannot read: expected a folder that make bundle made") from error
    digests = {}
    for number, line in enumerate(lines, 1):
        found = SUM_LINE.fullmatch(line)
        if found is None:
            raise BundleError(f"{record}:{number}: {line[:100]!r}: expected '<sha256>  <file name>'")
        digests[found["name"]] = found["digest"]
    for name, expected in digests.items():
        path = directory / name
        if not path.is_file():
            raise BundleError(f"{path}: missing: expected the file of sha256 {expected}")
        if (found_digest := digest_of(path)) != expected:
            raise BundleError(f"{path}: sha256 {found_digest}: expected {expected}")
    return [directory / name for name in digests]


def package_of(text: str) -> str:
    """The package's name that a requirement or a file's name begins with, as the index spells it."""
    found = PACKAGE_NAME.match(text)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def locked_digests() -> dict[str, set[str]]:
    """The sha256 that requirements.lock has, by package."""
    digests: dict[str, set[str]] = {}
    for part in re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8")):
        if not part.startswith("#"):
            digests.setdefault(package_of(part), set()).update(re.findall(r"--hash=sha256:(\w+)", part))
    return digests


def required_packages(wheels: dict[str, Path]) -> set[str]:
    """What pyproject.toml requires, with every extra and group, and what the wheels of that require."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = project.partition("\ndependencies = [")[2].partition("\n[project.scripts]")[0]
    lists = re.sub(r"#.*", "", lists)
    waiting = [package_of(text) for text in re.findall(r'"([^"\n]+)"', lists)]
    required: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name and name not in required:
            required.add(name)
            for found in distributions(path=[str(wheels[name])]) if name in wheels else ():
                waiting += [package_of(text) for text in found.requires or ()]
    return required


def trusted_files(directory: Path) -> tuple[list[Path], list[Path]]:
    """The bundle's wheels, and the sources of locked packages that are published without one.

    Raises BundleError for a file that differs from the lock's, and for a wheel that nothing requires.
    """
    files, locked = checked_files(directory), locked_digests()
    wheels = {package_of(path.name.split("-")[0]): path for path in files if path.suffix == ".whl"}
    required = required_packages(wheels)
    unlocked: list[str] = []
    sources = [path for path in files if path.suffix == ".gz" and source_name(path) in locked]
    for path in [path for path in files if path.suffix == ".whl"] + sources:
        name = source_name(path) if path in sources else package_of(path.name.split("-")[0])
        if name in locked and (digest := digest_of(path)) not in locked[name]:
            raise BundleError(f"{path}: sha256 {digest}: expected one that requirements.lock has for {name}")
        if name not in locked and name not in required:
            raise BundleError(
                f"{path}: nothing requires {name}: expected what requirements.lock or pyproject.toml asks for"
            )
        unlocked += [path.name] if name not in locked else []
    if unlocked:
        print(f"bundle: without a sha256 in requirements.lock, as its maker took them: {', '.join(unlocked)}")
    return [path for path in files if path.suffix == ".whl"], sources


def source_name(path: Path) -> str:
    """The package of NAME-VERSION.tar.gz."""
    return package_of(path.name.rpartition("-")[0])


def install(directory: Path, environment: Path, system: bool) -> None:
    """Make the environment and install the packages into it, all wheels or none. Raises BundleError."""
    wheels, sources = trusted_files(directory.absolute())
    if not system and not any(path.name.startswith("torch-") for path in wheels):
        raise BundleError(
            f"{directory}: holds no torch: expected SYSTEM_TORCH=1 (that of {sys.executable}), or a bundle"
            " made with TORCH=1"
        )
    pip = next((path for path in wheels if path.name.startswith("pip-")), None)
    if pip is None:
        raise BundleError(f"{directory}: holds no pip: expected a folder that make bundle made")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(environment)
    if system:
        show_packages(environment)
    # The bundle's own pip runs out of its wheel: an interpreter without pip or ensurepip will do. It looks
    # for all that the wheels need before it installs one.
    command = [sys.executable, str(pip / "pip"), "--python", str(environment / "bin" / "python"), "install"]
    flags = ["--isolated", "--quiet", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
    without_settings = {**os.environ, "PIP_CONFIG_FILE": os.devnull}  # they may name further places
    built_here = ["--no-deps", "--no-build-isolation", *map(str, sources)]  # by setuptools, one of the wheels
    for words in ([*map(str, wheels)], built_here if sources else []):
        if words:
            done = subprocess.run(
                [*command, *flags, *words], env=without_settings, capture_output=True, text=True
            )
            if done.returncode:
                raise BundleError(f"{directory}: {pip_fault(done.stderr)}")


def show_packages(environment: Path) -> None:
    """Let the environment see this interpreter's packages.

    venv's own flag shows those of the base interpreter, also where this one is of an environment itself.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({directory!r})\n" for directory in places]
    (packages / "system.pth").write_text("".join(lines), encoding="utf-8")


def pip_fault(stderr: str) -> str:
    """What pip says was wrong, in one line."""
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return "; ".join(errors) or " ".join(stderr.split())[-500:] or "pip failed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
