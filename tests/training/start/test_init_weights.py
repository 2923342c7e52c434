"""Runs that begin with given weights (--init-weights): fine-tuning of any network."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from alphazero.base.errors import ConfigError, WeightsError
from alphazero.base.files import sha256_of
from alphazero.cli.command_table import run_command
from alphazero.data.sampling.loader import WindowEncoder, spread_sample_ids
from alphazero.games.registry import get_spec
from alphazero.measure.known_games import metrics_of, sum_over_positions
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network, read_weights
from alphazero.network.weights.weights import save_weights
from alphazero.run import checkpoint_files
from alphazero.settings.load import Config, load_config
from alphazero.settings.sections import NetworkConfig
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.given_games import open_data
from alphazero.training.start.starting_network import StartingNetwork, starting_network

POSITIONS = 64
CPU = torch.device("cpu")


def arguments(store: Path, *extra: str) -> list[str]:
    """A job without a word on the network's shape."""
    return [
        *(
            "--config",
            "chess_20x256",
            "--precision",
            "fp32",
            "--run-name",
            "job",
            "--data",
            str(store),
            "--no-tensorboard",
        ),
        *("--batch-size", "16", "--micro-batch-size", "8", "--learning-rate", "0.001"),
        *("--validation-interval", "5", "--validation-positions", str(POSITIONS), *extra),
    ]


def validations(directory: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (directory / "runs/job/metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "validation"]


def tensors_in(run: Path) -> dict[str, dict[str, bytes]]:
    """What the files of the best weights hold, all of them of step 5."""
    files = {path.name: read_weights(path) for path in run.glob("AlphaZeroNet_1x8_best-*.pt")}
    assert {weights.metadata["step"] for weights in files.values()} == {5}
    return {
        name: {key: tensor.numpy().tobytes() for key, tensor in weights.state_dict.items()}
        for name, weights in files.items()
    }


def started(directory: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted((directory / "runs/job").glob("started-*"))]


@pytest.fixture(scope="module")
def maia(shared_data: Path) -> Path:
    return shared_data / "lc0" / "maia-1100.pb.gz"


@pytest.fixture
def loss_of_maia(maia: Path, random_store: Path, lone_runtime) -> float:
    """Its policy loss on the positions that a run holds out, without any of the trainer's code."""
    config = load_config("chess_cpu", {"data": [str(random_store)]})
    _, held_out = open_data(config, Exchange())
    assert held_out is not None
    network, _ = open_network(str(maia), CPU)
    ids = spread_sample_ids(held_out, POSITIONS)
    batch = WindowEncoder(held_out, network.spec, num_threads=1, fill="fen_only").encode(ids)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of a rank with one core have this order
    try:
        return metrics_of(sum_over_positions(network, [batch], CPU, "fp32")).policy_loss
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("ranks", [1, 2])
def test_fine_tuning_begins_at_exactly_the_loss_of_the_given_network(
    zygote, tmp_path, random_store, maia, loss_of_maia, ranks
):
    job = zygote.start(tmp_path, ranks, arguments(random_store, "--steps", "5", "--init-weights", str(maia)))
    assert job.wait() == [0] * ranks, job.output()[-4000:]
    first, last = validations(tmp_path)
    assert (first["step"], last["step"]) == (0, 5)
    assert first["policy_loss"] == loss_of_maia
    assert last["policy_loss"] != loss_of_maia
    assert "blocks 6 (not 20), filters 64 (not 256)" in job.output()
    (record,) = started(tmp_path)
    assert record["init_weights"] == {
        "weights": str(maia),
        "file": str(maia),
        "sha256": sha256_of(maia),
    }
    assert json.loads((tmp_path / "runs/job/config.json").read_text())["network"]["filters"] == 64


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """The weights of a small chess network."""
    shape = NetworkConfig(blocks=1, filters=8, value_channels=4, value_hidden=8)
    network = AlphaZeroNet(shape, get_spec("chess"), torch.Generator().manual_seed(3))
    path = tmp_path_factory.mktemp("small") / "small.pt"
    save_weights(path, network, {"step": 7})
    return path


def test_a_run_goes_on_from_its_own_weights_and_makes_its_files_again(zygote, tmp_path, random_store, small):
    def start(*extra: str) -> tuple[list[int], str]:
        job = zygote.start(tmp_path, 1, arguments(random_store, *extra))
        return job.wait(), job.output()

    given = tmp_path / "given.pt"
    shutil.copy(small, given)
    assert start("--steps", "5", "--init-weights", str(given))[0] == [0]
    run = tmp_path / "runs" / "job"
    best = tensors_in(run)
    marked = checkpoint_files.best_of(run / "checkpoints")
    assert sorted(best) == sorted(f"AlphaZeroNet_1x8_best-{name}.pt" for name in marked)
    assert len(best) > 2

    given.unlink()
    lost, damaged, *_ = sorted(best)
    (run / lost).unlink()
    (run / damaged).write_bytes(b"PK")
    status, told = start("--steps", "5", "--init-weights", str(given))
    assert status == [0], told
    assert tensors_in(run) == best
    assert len(started(tmp_path)) == 1  # a start of a complete run records nothing

    status, told = start("--steps", "8", "--init-weights", str(given))
    assert status == [0], told
    assert f"--init-weights {given}: not read" in told
    assert "init_weights" not in started(tmp_path)[-1]
    status, told = start("--steps", "9", "--init-weights", str(small))
    assert status == [2]
    assert f"--init-weights was '{given}' at step 8, is '{small}'" in told


def start_of(config: Config) -> tuple[StartingNetwork, list[str]]:
    return starting_network(config, None, Exchange())


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"blocks": "3"}, "--blocks 3: the network of --init-weights {path} has 1; expected 1, or no"),
        ({"game": "connect4"}, "--game connect4: the network of --init-weights {path} has chess; expected"),
    ],
)
def test_a_flag_that_contradicts_the_given_network_is_refused(lone_runtime, small, flags, told):
    config = load_config("chess_cpu", {"init_weights": str(small), **flags})
    with pytest.raises(ConfigError) as caught:
        start_of(config)
    assert str(caught.value).startswith(told.format(path=small))


def test_a_named_preset_gives_way_to_the_given_network(lone_runtime, small):
    config = load_config("chess_20x256", {"init_weights": str(small)})
    starting, told = start_of(config)
    assert (starting.config.blocks, starting.config.filters) == (1, 8)
    expected = read_weights(small).state_dict
    assert all(
        torch.equal(tensor, expected[name]) for name, tensor in starting.build(None).state_dict().items()
    )
    assert "blocks 1 (not 20), filters 8 (not 256)" in told[0]
    assert "sha256" in told[1]


def test_missing_weights_are_one_line(lone_runtime):
    config = load_config("chess_cpu", {"init_weights": "nowhere.pt"})
    with pytest.raises(WeightsError, match=r"nowhere\.pt: no such"):
        start_of(config)


def test_the_launcher_tells_of_missing_weights_before_ranks_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "launch",
        "--gpus",
        "1",
        "--device",
        "cpu",
        "--no-preflight",
        "--init-weights",
        "nowhere@best-elo",
    ]
    with pytest.raises(WeightsError, match="@best-elo: no such"):
        run_command(words)
    assert not (tmp_path / "runs").exists()
