"""Which program this is and what it runs on, for fault reports: versions, devices, processor, git.

Nothing is measured and nothing that is slow is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import re
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import psutil

from alphazero import __version__
from alphazero.base.errors import LaunchError
from alphazero.machine.machine import list_devices
from alphazero.machine.memory import count_cores, count_processors, read_memory
from alphazero.machine.nvml import NvmlUnusable, device_files_present, open_nvml

PACKAGE: Path = Path(__file__).resolve().parents[1]
CHECKOUT: Path = PACKAGE.parent
# What a wheel brings beside the code (CMakeLists.txt); a checkout has it in its own directory.
SHARE = PACKAGE / "share"
# Starts `alphazero ARGUMENTS`, or another module with `--module NAME`. All that starts Python does so by this
# path: `python -m` would look for modules in the working directory first, whoever put files there.
START = str(PACKAGE / "__main__.py")
UNKNOWN = "unknown"
NOT_INSTALLED = "not installed"
TIMEOUT_S = 10


def is_installed() -> bool:
    """True for a wheel's package: there is no checkout, with its scripts, benchmarks and Makefile."""
    return SHARE.is_dir()


def shipped(name: str) -> Path:
    """A file or directory that comes with the program, by its path in a checkout: configs, docs."""
    return (SHARE if is_installed() else CHECKOUT) / name


def page(name: str) -> str:
    """A page of docs/ as messages name it: where it can be opened, beside no checkout."""
    return str(shipped(f"docs/{name}")) if is_installed() else f"docs/{name}"


def set_up() -> str:
    """What messages expect where a part of the program is missing or not the right one."""
    return f"`pip install` of the wheel of alphazero {__version__}" if is_installed() else "`make setup`"


def version_of(package: str) -> str:
    """Of this program, or of an installed package by its metadata: nothing is imported."""
    if package == "alphazero":
        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def git(*arguments: str, checkout: Path = CHECKOUT) -> str:
    """The output of git in the checkout, "unknown" where there is no git or no repository."""
    if not (checkout / ".git").exists():  # not that of another repository, which this was installed below
        return UNKNOWN
    command = ["git", "-C", str(checkout), "-c", f"safe.directory={checkout}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.decode("utf-8", "replace").strip()


def program_text() -> str:
    """What `alphazero --version` prints: the version, the commit where it is known, what it runs on."""
    commit = git("rev-parse", "--short=12", "HEAD")
    changes = git("status", "--porcelain", "--untracked-files=no")
    changed = "" if changes in ("", UNKNOWN) else " with local changes"
    commit_text = "" if commit == UNKNOWN else f" (commit {commit}{changed})"
    packages = ", ".join(f"{name} {version_of(name)}" for name in ("torch", "deepspeed", "numpy"))
    return f"alphazero {version_of('alphazero')}{commit_text}\nPython {platform.python_version()}, {packages}"


def commit_of() -> str:
    """Commit and a digest of local changes; for a copy without git a digest of the Python files."""
    head, changes = git("rev-parse", "HEAD"), git("diff", "HEAD")
    if UNKNOWN not in (head, changes):
        return head[:12] + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")
    digest = hashlib.sha256()
    for path in sorted((CHECKOUT / "alphazero").rglob("*.py")):
        digest.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return f"files-{digest.hexdigest()[:12]}"


CPU_INFORMATION = Path("/proc/cpuinfo")


def environment() -> dict[str, object]:
    """This machine and this program, as plain tables for JSON."""
    changes = git("status", "--porcelain", "--untracked-files=no")
    changed_files = [] if changes == UNKNOWN else [line.split()[-1] for line in changes.splitlines()]
    try:
        devices: list[dict[str, Any]] = [asdict(device) for device in list_devices(device_files_present())]
    except LaunchError as error:
        devices = [{"fault": str(error)}]
    branch = git("rev-parse", "--abbrev-ref", "HEAD")
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": package_versions(),
        "driver": driver_version(),
        "devices": devices,
        "processor": {"name": processor_name(), "cores": count_cores(), "processors": count_processors()},
        "memory": asdict(read_memory()) | {"swap_bytes": psutil.swap_memory().total},
        "git": {"commit": git("rev-parse", "HEAD"), "branch": branch, "changed_files": changed_files},
    }


def package_versions() -> dict[str, str]:
    """Of this program, of all installed packages that it requires, and of those of NVIDIA, by name."""
    required = {"alphazero"}
    with contextlib.suppress(PackageNotFoundError):  # a checkout that was never installed
        lines = [line for line in requires("alphazero") or [] if "extra ==" not in line]
        required |= {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in lines}
    # By the names of directories: reading the metadata of all that is installed takes half a second.
    required |= {
        path.name.partition("-")[0].replace("_", "-")
        for directory in sys.path
        for path in Path(directory).glob("nvidia_*.dist-info")
    }
    versions = {name: version_of(name) for name in sorted(required)}
    return {name: known for name, known in versions.items() if known != NOT_INSTALLED}


def driver_version() -> str:
    """Of NVIDIA's driver; "none" where there is none."""
    try:
        with open_nvml() as nvml:
            return nvml.driver() or UNKNOWN
    except NvmlUnusable as error:
        return UNKNOWN if error.code is None else "none"


def processor_name(path: Path = CPU_INFORMATION) -> str:
    """As Linux names the first one."""
    with contextlib.suppress(OSError):
        if named := re.search(r"^model name\s*:\s*(.*)", path.read_text(errors="replace"), re.MULTILINE):
            return named[1].strip()
    return platform.machine()
