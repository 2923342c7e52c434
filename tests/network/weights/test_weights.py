"""Weights files: what is saved comes back, readable without this program; every fault is one line."""

import json
import os
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch

from alphazero.base.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network, read_weights
from alphazero.network.weights.weights import (
    WeightsFile,
    save_weights,
    weights_file_name,
    write_weights,
)
from alphazero.settings.sections import NetworkConfig

CPU = torch.device("cpu")
CONFIG = NetworkConfig(
    game="connect4",
    blocks=1,
    filters=8,
    se_ratio=2,
    value_hidden=4,
    moves_left=True,
    moves_left_hidden=4,
)
METADATA = {"step": 1200, "run": "first", "created": "2026-01-02T03:04:05Z", "best": True, "loss": 1.5}


def network() -> AlphaZeroNet:
    return AlphaZeroNet(CONFIG, get_spec("connect4"), torch.Generator().manual_seed(9))


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_what_is_saved_comes_back_to_the_bit(name: str, tmp_path: Path):
    saved = network()
    save_weights(tmp_path / name, saved, METADATA)
    loaded, metadata = open_network(tmp_path / name, CPU)
    assert metadata == METADATA
    assert loaded.config == CONFIG
    assert not loaded.training
    wanted, got = saved.state_dict(), loaded.state_dict()
    assert list(wanted) == list(got)
    assert all(torch.equal(wanted[key], got[key]) for key in wanted)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    planes = torch.rand(2, saved.spec.num_planes, 6, 7)
    assert torch.equal(loaded(planes).policy_BA, saved.eval()(planes).policy_BA)


def test_plain_torch_reads_the_pt_file(tmp_path: Path):
    save_weights(tmp_path / "w.pt", network(), METADATA)
    content = torch.load(tmp_path / "w.pt", weights_only=True)
    assert list(content) == ["magic", "version", "network", "state_dict", "metadata"]
    assert content["network"]["filters"] == 8
    for tensor in content["state_dict"].values():
        assert tensor.is_contiguous()
        assert not tensor.requires_grad
        assert tensor.dtype in (torch.float32, torch.int64)


def test_plain_safetensors_reads_the_other(tmp_path: Path):
    save_weights(tmp_path / "w.safetensors", network(), METADATA)
    with safetensors.safe_open(tmp_path / "w.safetensors", framework="numpy") as handle:
        header = json.loads(handle.metadata()["alphazero"])
    assert header["magic"] == "alphazero-weights"
    assert header["network"]["game"] == "connect4"
    assert header["metadata"] == METADATA


def test_views_channels_last_and_bf16_are_saved_plain(tmp_path: Path):
    state_dict = network().state_dict()
    flat = torch.zeros(1_000_000, dtype=torch.bfloat16)
    for key, value in state_dict.items():
        if value.ndim == 4:
            state_dict[key] = value.to(memory_format=torch.channels_last)
    state_dict["value.output.bias"] = flat[:3]
    write_weights(tmp_path / "w.pt", WeightsFile(CONFIG, state_dict, {}))
    assert (tmp_path / "w.pt").stat().st_size < 100_000
    content = torch.load(tmp_path / "w.pt", weights_only=True)["state_dict"]
    assert all(value.is_contiguous() for value in content.values())
    assert content["value.output.bias"].dtype == torch.float32
    open_network(tmp_path / "w.pt", CPU)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "w.pt"
    save_weights(path, network(), {"step": 1})

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(WeightsError, match="No space left"):
        save_weights(path, network(), {"step": 2})
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.pt"]
    assert open_network(path, CPU)[1] == {"step": 1}


@pytest.mark.parametrize("name", ["none/w.pt", "none/w.safetensors", "w.onnx"])
def test_a_place_that_cannot_be_written_is_named(name: str, tmp_path: Path):
    with pytest.raises(WeightsError) as caught:
        save_weights(tmp_path / name, network(), {})
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_runs_file_is_named_after_its_shape():
    assert weights_file_name(NetworkConfig()) == "AlphaZeroNet_20x256_distributed.pt"


class Mischief:
    """A pickle that would run code when opened."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("mischief_was_run"),))


def write_bad(kind: str, path: Path) -> None:
    """One bad weights file of each kind."""
    save_weights(path.with_suffix(".pt"), network(), METADATA)
    content = torch.load(path.with_suffix(".pt"), weights_only=True)
    whole = path.with_suffix(".pt").read_bytes()
    save_weights(path.with_suffix(".safetensors"), network(), METADATA)
    tensors = path.with_suffix(".safetensors").read_bytes()
    state_dict = content["state_dict"]
    config = content["network"]
    bytes_of = {
        "empty": b"",
        "text": b"1. e4 e5 2. Nf3\n" * 10,
        "truncated": whole[: len(whole) // 2],
        "damaged": whole[:400] + bytes(300) + whole[700:],
        "truncated safetensors": tensors[:-10],
        "damaged safetensors": tensors[:8] + b"{" + bytes(50) + tensors[59:],
        "huge safetensors header": b"\xff\xff\xff\xff\xff\xff\xff\x7f{" + bytes(100),
        "bare pickle": pickle.dumps(state_dict["value.output.bias"].tolist()),
    }
    contents = {
        "mischief": {"magic": "alphazero-weights", "version": 1, "state_dict": Mischief()},
        "a list": [1, 2, 3],
        "another program": {"state_dict": state_dict},
        "another magic": {**content, "magic": "gammazero"},
        "later version": {**content, "version": 2},
        "no network": {**content, "network": None},
        "unknown setting": {**content, "network": {**config, "wings": 2}},
        "unknown game": {**content, "network": {**config, "game": "go"}},
        "setting of another type": {**content, "network": {**config, "blocks": "1"}},
        "setting out of range": {**content, "network": {**config, "blocks": 257}},
        "indivisible ratio": {**content, "network": {**config, "se_ratio": 3}},
        "larger than memory": {**content, "network": {**config, "blocks": 256, "filters": 4096}},
        "metadata": {**content, "metadata": 3},
        "state dict": {**content, "state_dict": {"a": 1}},
        "no state dict": {key: value for key, value in content.items() if key != "state_dict"},
        "missing tensor": {
            **content,
            "state_dict": {k: v for k, v in state_dict.items() if k != "input.conv.weight"},
        },
        "tensor too many": {**content, "state_dict": {**state_dict, "extra": torch.zeros(1)}},
        "other shape": {**content, "state_dict": {**state_dict, "value.output.bias": torch.zeros(4)}},
        "other type": {
            **content,
            "state_dict": {**state_dict, "value.output.bias": torch.zeros(3, dtype=torch.float16)},
        },
    }
    if kind in bytes_of:
        path.write_bytes(bytes_of[kind])
    elif kind in contents:
        torch.save(contents[kind], path)
    elif kind == "foreign safetensors":
        safetensors.torch.save_file({"a": torch.zeros(1)}, path)
    else:
        raise KeyError(kind)


BAD = {
    "empty": "no weights file",
    "text": "no weights file",
    "truncated": "damaged or truncated",
    "damaged": "damaged or truncated",
    "truncated safetensors": "damaged or truncated",
    "damaged safetensors": "damaged or truncated",
    "huge safetensors header": "damaged or truncated",
    "bare pickle": "no weights file",
    "mischief": "holds Python objects",
    "a list": "holds a list",
    "another program": "magic None",
    "another magic": "magic 'gammazero'",
    "later version": "version 2: this program reads 1",
    "no network": "network None",
    "unknown setting": "network.wings: no such setting",
    "unknown game": "network.game 'go': expected one of chess, connect4, tictactoe",
    "setting of another type": "network.blocks '1': expected int",
    "setting out of range": "network.blocks: 257: expected a whole number from 1 to 256",
    "indivisible ratio": "se_ratio 3: must divide filters",
    "larger than memory": "shape [8, ",
    "metadata": "metadata 3",
    "state dict": "state_dict: expected tensors by name",
    "no state dict": "state_dict: expected tensors by name",
    "missing tensor": "input.conv.weight: missing",
    "tensor too many": "extra: not part of this network",
    "other shape": "value.output.bias: shape [4], expected [3]",
    "other type": "value.output.bias: torch.float16, expected torch.float32",
    "foreign safetensors": "magic None",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_with_one_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.weights"
    write_bad(kind, path)
    with pytest.raises(WeightsError) as caught:
        open_network(path, CPU)
    assert str(caught.value).startswith(f"{path}: ")
    assert BAD[kind] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mischief_was_run").exists()


def test_missing_unreadable_and_directories_are_weights_errors(tmp_path: Path):
    with pytest.raises(WeightsError, match="No such file"):
        read_weights(tmp_path / "none.pt")
    with pytest.raises(WeightsError, match="directory"):
        read_weights(tmp_path)
