"""What `--weights` may name: runs, their best and their steps, checkpoints, their files, weights files."""

import shutil
from pathlib import Path

import pytest
import torch

from alphazero.base.errors import AlphaZeroError, WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState, save
from alphazero.network.weights.open_network import open_network, open_weights
from alphazero.network.weights.weights import save_weights
from alphazero.run.find import WEIGHTS_VARIABLE, default_weights
from alphazero.settings.load import Config, to_table
from alphazero.settings.sections import NetworkConfig

CPU = torch.device("cpu")
SHAPE = NetworkConfig(game="connect4", blocks=1, filters=8, value_channels=4, value_hidden=8)
STEPS = (10, 20)


def network_of(seed: int) -> AlphaZeroNet:
    return AlphaZeroNet(SHAPE, get_spec("connect4"), torch.Generator().manual_seed(seed))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Checkpoints of steps 10 (the best) and 20 (with averages), their weights drawn from these seeds."""
    directory = tmp_path / "runs" / "x"
    table = to_table(Config(network=SHAPE))
    for step in STEPS:
        state = TrainingState(step, 20, 0, 8, 8, "", 1, table, figures={"policy_loss": float(step)})
        ema = network_of(21).state_dict() if step == 20 else None
        checkpoint = Checkpoint(state, network_of(step).state_dict(), {}, ema)
        save(directory / "checkpoints", checkpoint)
    return directory


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("", 21),
        ("@latest", 21),
        ("@20", 21),
        ("@10", 10),
        ("@step-00000010", 10),
        ("@best-policy_loss", 10),
        ("@policy_loss", 10),
        ("/checkpoints", 21),
        ("/checkpoints/step-00000010", 10),
        ("/checkpoints/step-00000010/weights.safetensors", 10),
    ],
)
def test_a_name_means_these_weights(run: Path, name: str, seed: int) -> None:
    network, metadata = open_network(f"{run}{name}", CPU)
    expected = network_of(seed).state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in network.state_dict().items())
    assert metadata == {"step": 10 if seed == 10 else 20, "run": "x", "averaged": seed == 21}
    assert not network.training


def test_a_file_whose_name_has_an_at_sign_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x@10.pt"
    save_weights(path, network_of(3), {})
    assert open_weights(str(path)).config == SHAPE


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere", "network nowhere: no such file or directory; expected a weights file"),
        ("nowhere@10", "nowhere@10: no such file or directory"),
        ("runs/x@30", "has no step-00000030; there is step-00000010, step-00000020"),
        ("runs/x@best-nonsense", "best-nonsense: no such metric"),
        ("runs/x@best-value_mse", "no best-value_mse; there is policy_loss"),
        ("runs/x@newest", "'newest' names no checkpoint; expected one of latest, best-policy_loss, 10, 20"),
        ("runs/x@best", "'best' names no checkpoint; expected one of latest, best-policy_loss, 10, 20"),
        ("@best", "network @best: 'best' names no checkpoint; expected one of latest, best-policy_loss, 10"),
        ("other", r"no complete checkpoint \(there is none yet\)"),
    ],
)
def test_a_name_of_nothing_is_told_with_the_ways_to_write_one(
    run: Path, monkeypatch, name: str, told: str
) -> None:
    monkeypatch.chdir(run.parent.parent)
    Path("other").mkdir()
    with pytest.raises(AlphaZeroError, match=told):
        open_weights(name)


def test_the_only_run_is_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent.parent)
    monkeypatch.delenv(WEIGHTS_VARIABLE, raising=False)
    Path("runs/notes").mkdir()
    assert default_weights() == "runs/x"
    for name in ("runs", "@latest", "@20"):
        assert open_weights(name).metadata["step"] == 20
    Path("runs/y/checkpoints").mkdir(parents=True)
    for find in (default_weights, lambda: open_weights("runs"), lambda: open_weights("@10")):
        with pytest.raises(WeightsError, match=r"holds runs/x, runs/y"):
            find()
    monkeypatch.setenv(WEIGHTS_VARIABLE, "net.pt")
    assert default_weights() == "net.pt"


def test_a_damaged_checkpoint_is_named_and_the_newest_run_falls_back(run: Path) -> None:
    newest = run / "checkpoints" / "step-00000020"
    content = bytearray((newest / "ema.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "ema.safetensors").write_bytes(content)
    with pytest.raises(AlphaZeroError, match=r"ema\.safetensors: sha256"):
        open_weights(f"{run}@20")
    shutil.rmtree(newest)
    assert open_weights(str(run)).metadata["step"] == 10
