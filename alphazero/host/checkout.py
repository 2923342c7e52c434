"""Which program this is: its commit, what differs from it, and the versions of packages."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
UNKNOWN = "unknown"
NOT_INSTALLED = "not installed"
TIMEOUT_S = 10


def version_of(package: str) -> str:
    """Of an installed package, from its metadata: nothing is imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def git(*arguments: str, checkout: Path = CHECKOUT) -> str:
    """What git says of the checkout, "unknown" where there is no git or no repository."""
    command = ["git", "-C", str(checkout), "-c", f"safe.directory={checkout}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.decode("utf-8", "replace").strip()


def program_text(checkout: Path = CHECKOUT) -> str:
    """What `alphazero --version` says: the version, the commit where it is known, what it runs on."""
    commit = UNKNOWN
    if (checkout / ".git").exists():  # not that of another repository, which this was installed below
        commit = git("rev-parse", "--short=12", "HEAD", checkout=checkout)
    changes = git("status", "--porcelain", "--untracked-files=no", checkout=checkout)
    changed = "" if changes in ("", UNKNOWN) else " with local changes"
    told = "" if commit == UNKNOWN else f" (commit {commit}{changed})"
    packages = ", ".join(f"{name} {version_of(name)}" for name in ("torch", "deepspeed", "numpy"))
    return f"alphazero {version_of('alphazero')}{told}\nPython {platform.python_version()}, {packages}"


def commit_of(checkout: Path = CHECKOUT) -> str:
    """Commit and a digest of local changes; for a copy without git a digest of the Python files."""
    head, changes = git("rev-parse", "HEAD", checkout=checkout), git("diff", "HEAD", checkout=checkout)
    if UNKNOWN not in (head, changes):
        return head[:12] + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")
    digest = hashlib.sha256()
    for path in sorted((checkout / "alphazero").rglob("*.py")):
        digest.update(str(path.relative_to(checkout)).encode() + path.read_bytes())
    return f"files-{digest.hexdigest()[:12]}"
