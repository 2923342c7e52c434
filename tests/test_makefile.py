"""The Makefile's way to install what a GPU machine needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import REPOSITORY

WITHOUT_HEADERS = """#!{python}
import sys, sysconfig
sysconfig.get_config_vars()["INCLUDEPY"] = "/nowhere"
exec(sys.argv[2])
"""


def test_a_python_without_headers_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    # Debian's python3 and python3-venv bring no Python.h, which the core is compiled with.
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
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
