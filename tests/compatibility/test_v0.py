"""Files of version 0 (tests/fixtures/v0): the run resumes to the same bits, the rest is read."""

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from alphazero.cli.main import main
from alphazero.network.weights.checkpoint import load
from tests.support.jobs.jobs import environment, one_core_a_rank, step_lines
from tests.support.paths import FIXTURES, REPOSITORY

V0 = FIXTURES / "v0"
EXPECTED: dict[str, Any] = json.loads((V0 / "expected.json").read_text())
# The same arithmetic on every x86-64 processor: kernels without AVX.
PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
SAME_ARITHMETIC = torch.__version__.split("+")[0] == EXPECTED["torch"] and platform.machine() == "x86_64"
NEWEST = 12  # step of the newest checkpoint


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A directory with the run, as its user left it."""
    shutil.copytree(V0 / "selfplay", tmp_path / "runs" / "selfplay")
    return tmp_path


def resume(directory: Path) -> None:
    """Continue the run to its end by the command it was started with."""
    (started,) = (directory / "runs" / "selfplay").glob("started-*.json")
    arguments = json.loads(started.read_text())["argv"][1:]
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "train_distributed.py"), *arguments, "--resume", "latest"],
        cwd=directory,
        env={**environment(), **PORTABLE},
        preexec_fn=one_core_a_rank(1),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def tensors_digest(path: Path) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def read_shard(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def games_digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for shard in sorted(directory.glob("shard-*.arrow")):
        for row in read_shard(shard).select(["moves", "result", "policy_prob", "root_q"]).to_pylist():
            digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()


def test_a_run_resumes_and_ends_with_the_bits_that_its_own_version_ends_with(copied: Path):
    expected = EXPECTED["resumed"]
    before = step_lines(copied, "selfplay")
    resume(copied)
    checkpoint = copied / "runs" / "selfplay" / "checkpoints" / f"step-{expected['step']:08d}"
    assert {file.name for file in checkpoint.glob("*.safetensors")} == expected["tensors"].keys()
    after = step_lines(copied, "selfplay")
    assert [line["step"] for line in after] == list(range(1, expected["step"] + 1))
    assert after[:NEWEST] == before[:NEWEST]
    losses = {str(line["step"]): line["loss"] for line in after}
    if not SAME_ARITHMETIC:
        # Games differ where a search is close.
        assert losses == pytest.approx(expected["losses"], abs=0.5)
        return
    if losses != expected["losses"]:
        # oneDNN divides its sums by the size of the processor's caches: only their rounding may differ.
        assert losses == pytest.approx(expected["losses"], abs=1e-6)
        return
    for name, digest in expected["tensors"].items():
        assert tensors_digest(checkpoint / name) == digest, name
    assert games_digest(copied / "runs" / "selfplay" / "games") == expected["games"]


def test_a_checkpoint_loads_with_all_its_parts():
    checkpoint = load(V0 / "selfplay" / "checkpoints" / f"step-{NEWEST:08d}")
    assert checkpoint.state.step == NEWEST
    assert checkpoint.ema is not None and checkpoint.ema.keys() == checkpoint.weights.keys()
    assert checkpoint.champion is not None and checkpoint.lanes is not None


def test_a_weights_file_says_of_a_position_what_its_own_version_said(capsys: pytest.CaptureFixture[str]):
    expected = EXPECTED["analyse"]
    assert main(["analyse", "--json", str(V0 / "connect4.safetensors"), "--moves", "4", "4", "4"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["position"] == expected["position"]
    assert said["policy"] == pytest.approx(expected["policy"], abs=1e-5)
    assert said["wdl"] == pytest.approx(expected["wdl"], abs=1e-5)
    assert said["value"] == pytest.approx(expected["value"], abs=1e-5)


def test_a_store_is_verified_and_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(V0 / "store", tmp_path / "store")
    assert main(["data", "verify", str(tmp_path / "store")]) == 0
    assert main(["data", "info", str(tmp_path / "store")]) == 0
    said = capsys.readouterr()
    assert re.search(r"\b24\b.* games", said.out + said.err)


def test_the_games_are_imported_to_the_same_store(tmp_path: Path):
    assert main(["data", "import", str(V0 / "games.pgn"), "--store", str(tmp_path / "store")]) == 0
    made, kept = (
        read_shard(directory / "shard-00000.arrow") for directory in (tmp_path / "store", V0 / "store")
    )
    assert made.equals(kept)
    if pa.__version__ == EXPECTED["pyarrow"]:
        for name in ("manifest.json", "quarantine.jsonl", "shard-00000.arrow"):
            assert (tmp_path / "store" / name).read_bytes() == (V0 / "store" / name).read_bytes(), name


def test_the_metrics_are_drawn_and_the_checkpoints_listed(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(copied)
    assert main(["report", "runs/selfplay", "--out", "run.html"]) == 0
    assert Path("run.html").stat().st_size > 1000
    assert main(["checkpoint", "list", "runs/selfplay"]) == 0
    assert main(["checkpoint", "verify", "runs/selfplay"]) == 0
    assert "step-00000012" in capsys.readouterr().out
