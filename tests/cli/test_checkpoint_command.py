"""`alphazero checkpoint`: what people and machines are told."""

import json
import subprocess
import sys

import pytest

from alphazero.cli.main import main
from alphazero.machine.lock import only_writer
from alphazero.network.weights.checkpoint import save
from alphazero.run import checkpoint_files
from tests.support.jobs.saving import checkpoint_of


@pytest.fixture
def run_directory(tmp_path):
    directory = tmp_path / "runs" / "job" / "checkpoints"
    for step in (1, 2, 3, 4):
        save(directory, checkpoint_of(step, {"policy_top1": 0.3 - step / 100}))
    return directory.parent


def test_list_says_what_there_is(run_directory, capsys):
    assert main(["checkpoint", "list", str(run_directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [f"step-0000000{step}" for step in (1, 2, 3, 4)]
    assert lines[1].endswith("complete; top-1 29.00%; best policy_top1")
    assert main(["checkpoint", "list", str(run_directory / "checkpoints"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["step"], row["fault"]) for row in rows] == [(step, "") for step in (1, 2, 3, 4)]


def test_verify_finds_a_changed_byte_that_list_does_not_read(run_directory, capsys):
    file = run_directory / "checkpoints" / "step-00000002" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert main(["checkpoint", "list", str(run_directory)]) == 0
    assert main(["checkpoint", "verify", str(run_directory)]) == 2
    assert "weights.safetensors: sha256" in capsys.readouterr().out
    assert main(["checkpoint", "verify", str(run_directory / "checkpoints" / "step-00000003")]) == 0


def test_prune_keeps_the_newest_and_the_best(run_directory, capsys):
    arguments = ["checkpoint", "prune", str(run_directory), "--keep", "1"]
    assert main([*arguments, "--dry-run"]) == 0
    assert len(checkpoint_files.checkpoints_in(run_directory / "checkpoints")) == 4
    assert main(arguments) == 0
    assert "removed" in capsys.readouterr().out
    left = checkpoint_files.checkpoints_in(run_directory / "checkpoints")
    assert [path.name for path in left] == ["step-00000001", "step-00000004"]


@pytest.mark.parametrize("named", ["", "checkpoints", "link"])
def test_prune_is_refused_while_a_job_writes_to_the_run(run_directory, tmp_path, capsys, named):
    (run_directory / "link").symlink_to(run_directory / "checkpoints")
    (run_directory / "checkpoints" / ".step-00000009.tmp").mkdir()  # the job is writing it
    arguments = ["checkpoint", "prune", str(run_directory / named), "--keep", "1"]
    with only_writer(run_directory, "training", print):
        assert main(arguments) == 2
        assert main([*arguments, "--dry-run"]) == (0 if named != "link" else 2)
    assert "in use (training, process" in capsys.readouterr().err
    assert (run_directory / "checkpoints" / ".step-00000009.tmp").exists()
    assert len(checkpoint_files.checkpoints_in(run_directory / "checkpoints")) == 4


def test_a_directory_without_checkpoints_is_an_error(tmp_path, capsys):
    assert main(["checkpoint", "list", str(tmp_path)]) == 2
    assert "no checkpoints found" in capsys.readouterr().err


def test_it_needs_no_torch(run_directory):
    code = (
        "import sys; from alphazero.cli.main import main; "
        f"main(['checkpoint', 'verify', {str(run_directory)!r}]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "change",
    [
        {"figures": True},
        {"figures": {"policy_top1": "x"}},
        {"figures": {"policy_top1": 10**400}},
    ],
    ids=lambda change: str(change)[:30],
)
def test_a_state_of_other_types_is_a_fault_of_the_table(tmp_path, capsys, change):
    path = save(tmp_path, checkpoint_of(3))
    checkpoint_files.write_json(
        path / checkpoint_files.STATE, {**checkpoint_files.read_json(path / checkpoint_files.STATE), **change}
    )
    checkpoint_files.write_manifest(
        path, [checkpoint_files.WEIGHTS, checkpoint_files.OPTIMIZER, checkpoint_files.STATE]
    )
    assert main(["checkpoint", "verify", str(path)]) == 2
    assert f"state.json: {next(iter(change))} " in capsys.readouterr().out
