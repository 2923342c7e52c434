"""Fixtures of the cluster tests: the fake NVML library, programs run under it, hostfiles."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

# The host these tests run on may be busy or small: its own findings are left out.
HEALTH_OF_GPUS = """
import sys
import alphazero.machine.health
from alphazero.cli.main import main
alphazero.machine.health.judge_host = lambda *_: []
sys.exit(main(["health", *sys.argv[1:]]))
"""


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a libnvidia-ml.so.1 compiled from fake_nvml.c."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_nvml.c")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", str(source), "-o", str(library)], check=True)
    return directory


@dataclass(frozen=True)
class Gpus:
    """A machine whose GPUs are what a scenario file says."""

    directory: Path
    library: Path

    @property
    def scenario(self) -> Path:
        """The file the fake library reads."""
        return self.directory / "scenario"

    def are(self, text: str) -> None:
        """Write the scenario at one go, as a library reads it at any time."""
        new = self.scenario.with_name("new")
        new.write_text(text)
        new.replace(self.scenario)

    def environment(self, **changes: str) -> dict[str, str]:
        """Of a program that finds the fake library."""
        kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        return {
            **kept,
            "FAKE_NVML": str(self.scenario),
            "LD_LIBRARY_PATH": str(self.library),
            "PYTHONPATH": str(REPOSITORY),
            **changes,
        }

    def health(self, *flags: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """`alphazero health` on that machine, whose host is healthy whatever runs beside the tests."""
        return subprocess.run(
            [sys.executable, "-c", HEALTH_OF_GPUS, *flags],
            cwd=self.directory,
            env=self.environment(**changes),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def report(self, status: int, *flags: str, **changes: str) -> dict:
        """Its JSON, where it ends with `status`."""
        done = self.health("--json", "--strict", *flags, **changes)
        assert done.returncode == status, done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert report["exit_status"] == status
        return report


@pytest.fixture
def gpus(fake_nvml: Path, tmp_path: Path) -> Gpus:
    """A machine with the GPUs a test gives it."""
    return Gpus(tmp_path, fake_nvml)


@pytest.fixture
def hostfile(tmp_path: Path):
    """Writes a hostfile, gives its path."""

    def write(text: str) -> Path:
        path = tmp_path / "hostfile"
        path.write_text(text)
        return path

    return write
