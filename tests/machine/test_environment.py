"""What a report of a fault says of the machine."""

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import alphazero
from alphazero.cli.main import main
from alphazero.machine import environment as module
from alphazero.machine.environment import (
    CHECKOUT,
    environment,
    page,
    processor_name,
    set_up,
    shipped,
    version_of,
)

CPU = """processor\t: 0
model name\t: Some CPU @ 2.0GHz

processor\t: 1
model name\t: Another
"""


def test_everything_is_told_and_fits_into_json():
    told = json.loads(json.dumps(environment()))
    assert told["packages"]["torch"] == version("torch")
    assert {"alphazero", "deepspeed", "numpy", "pyarrow", "psutil"} <= told["packages"].keys()
    assert "pytest" not in told["packages"]
    assert told["driver"]
    assert told["processor"]["cores"] >= 1
    assert 0 < told["memory"]["available_bytes"] <= told["memory"]["total_bytes"]
    assert set(told["git"]) == {"commit", "branch", "changed_files"}


def test_no_torch_is_imported():
    program = (
        "import sys, alphazero.machine.environment as e; e.environment(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_processor_is_that_of_the_first_entry(tmp_path: Path):
    path = tmp_path / "cpuinfo"
    path.write_text(CPU)
    assert processor_name(path) == "Some CPU @ 2.0GHz"
    assert processor_name(tmp_path / "none") == platform.machine()


def test_a_checkout_has_its_files_beside_the_package():
    assert shipped("configs/chess_cpu.toml").is_file() and shipped("configs").parent == CHECKOUT
    assert (page("cluster.md"), set_up()) == ("docs/cluster.md", "`make setup`")
    assert version_of("alphazero") == alphazero.__version__


def test_a_wheel_has_its_files_within_the_package_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "SHARE", tmp_path)
    assert shipped("examples/games.pgn.gz") == tmp_path / "examples" / "games.pgn.gz"
    assert page("cluster.md") == f"{tmp_path}/docs/cluster.md"
    assert set_up() == f"`pip install` of the wheel of alphazero {alphazero.__version__}"
    assert main(["health", "--help"]) == 0
    assert capsys.readouterr().out.endswith(f"\ndocs/ is {tmp_path}/docs\n")
