"""`alphazero export`: the four formats, names, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alphazero.cli.main import main
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import read_weights
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig
from tests.support.paths import REPOSITORY

SHAPE = NetworkConfig(blocks=1, filters=8)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return saved(tmp_path / "net.pt", SHAPE)


def saved(path: Path, config: NetworkConfig) -> Path:
    network = AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(1))
    save_weights(path, network, {"run": "small", "step": 7})
    return path


@pytest.mark.parametrize(
    ("form", "suffix"), [("lc0", ".pb.gz"), ("safetensors", ".safetensors"), ("pt", ".pt")]
)
def test_what_is_written_is_read_again(weights: Path, capsys, form: str, suffix: str) -> None:
    Path("nets").mkdir()
    weights = weights.rename("nets/mine.pt")
    assert main(["export", str(weights), "--to", form]) == 0
    written = Path(f"mine{suffix}")  # whatever the file says of its run
    assert capsys.readouterr().out == f"wrote {written} ({written.stat().st_size:,} bytes)\n"
    before, after = read_weights(weights), read_weights(written)
    assert after.config == SHAPE
    for key, tensor in before.state_dict.items():
        # lc0's 16 bits: half a step of the layer's range.
        tolerance = float(tensor.max() - tensor.min()) / 65535 if form == "lc0" and tensor.ndim else 0.0
        if key == "input.conv.weight":
            tolerance *= 99  # the column of the rule50 plane is written as a 99th
        assert torch.allclose(after.state_dict[key], tensor, atol=tolerance), key


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("runs/renamed", "renamed-12"),
        ("runs/renamed@8", "renamed-8"),
        ("runs/renamed/checkpoints/step-00000008", "renamed-8"),
        ("runs/renamed@best-move_error", "renamed-best-move_error"),
        ("runs/renamed/AlphaZeroNet_1x8_distributed.pt", "AlphaZeroNet_1x8_distributed"),
    ],
)
def test_a_file_is_named_after_what_was_asked_for(tmp_path: Path, monkeypatch, asked: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(REPOSITORY / "tests/fixtures/v0/selfplay", "runs/renamed")
    assert main(["export", asked, "--to", "safetensors"]) == 0
    assert [path.name for path in tmp_path.glob("*.safetensors")] == [f"{name}.safetensors"]


def test_a_network_with_attention_goes_to_lc0_and_comes_back_by_name(weights: Path, capsys) -> None:
    config = replace(SHAPE, policy_head="attention")
    saved(weights, config)
    assert main(["export", "net.pt", "--to", "lc0", "--out", "net.pb.gz"]) == 0
    assert main(["import-weights", "net.pb.gz", "back.pt"]) == 0
    assert "1x8, attention policy head" in capsys.readouterr().out
    assert read_weights(Path("back.pt")).config == config


@pytest.mark.parametrize("form", ["lc0", "safetensors"])
def test_tensors_that_do_not_fit_the_network_are_named(weights: Path, capsys, form: str) -> None:
    content = torch.load(weights, weights_only=True)
    content["network"]["policy_head"] = "attention"  # and the tensors are those of convolution
    torch.save(content, weights)
    assert main(["export", "net.pt", "--to", form]) == 2
    assert "net.pt: policy.embed.weight: " in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["net.pt"]


def test_a_file_that_is_there_is_kept_unless_forced(weights: Path, capsys) -> None:
    assert main(["export", str(weights), "--to", "pt", "--out", str(weights)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["export", str(weights), "--to", "pt", "--out", str(weights), "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["none.pt", "--to", "lc0"], "network none.pt: no such file or directory"),
        (["net.pt", "--to", "pt", "--license", "x", "--out", "o.pt"], "--license: not with --to pt"),
        (
            ["net.pt", "--to", "pt", "--out", "o.bin"],
            "--out o.bin: expected a name ending in .pt with --to pt",
        ),
        (["net.pt", "--to", "pt", "--out", "o.safetensors"], "expected a name ending in .pt with --to pt"),
        (["net.pt", "--to", "onnx", "--out", "o.pt"], "expected a name ending in .onnx with --to onnx"),
        (["net.pt", "--to", "lc0", "--out", "o.gz"], "expected a name ending in .pb.gz or .pb with --to lc0"),
        (["net.pt", "--to", "lc0", "--out", "none/o.pb.gz"], "cannot be written"),
    ],
)
def test_bad_requests_write_nothing(weights: Path, capsys, arguments: list[str], told: str) -> None:
    assert main(["export", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in weights.parent.iterdir()] == ["net.pt"]
