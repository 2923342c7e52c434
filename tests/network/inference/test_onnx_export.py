"""ONNX files: lc0's names, any batch, and in onnxruntime what our network says."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import alphazero as az
from alphazero.base.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.inference import onnx_export
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.model.sizes import on_meta_device
from alphazero.network.weights.lc0_weights import RULE50_PLANE
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig
from tests.network.weights.test_lc0_attention import BODY
from tests.network.weights.test_lc0_export import random_network
from tests.support.paths import REPOSITORY

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
SMALL = NetworkConfig(blocks=2, filters=16, se_ratio=4, moves_left=True)


@pytest.fixture(
    scope="module",
    params=["convolution", "attention", pytest.param("attention body", marks=pytest.mark.slow)],
)
def exported(request, tmp_path_factory) -> tuple[AlphaZeroNet, Path]:
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    config = (
        BODY if request.param == "attention body" else dataclasses.replace(SMALL, policy_head=request.param)
    )
    network = random_network(config)
    onnx_export.write_onnx(path, network)
    return network, path


@pytest.mark.parametrize("num_positions", [1, 33])
def test_onnxruntime_says_what_the_network_says(exported, num_positions: int) -> None:
    network, path = exported
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(num_positions)
    planes = (torch.rand(num_positions, 112, 8, 8, generator=generator) < 0.2).float()
    count = torch.randint(0, 100, (num_positions, 1, 1), generator=generator).float()
    planes[:, RULE50_PLANE] = count  # lc0 feeds plies, our network a share of 99
    policy, wdl, moves_left = session.run(None, {"/input/planes": planes.numpy()})
    planes[:, RULE50_PLANE] = count / 99
    with torch.no_grad():
        expected = network(planes)
    assert np.abs(policy - expected.policy_BA.numpy()).max() < 1e-4
    assert np.abs(wdl - torch.softmax(expected.wdl_B3, 1).numpy()).max() < 1e-4
    assert np.allclose(moves_left, expected.moves_left_B1.numpy(), atol=1e-4)


def test_names_and_shapes_are_those_of_lc0(exported) -> None:
    session = onnxruntime.InferenceSession(str(exported[1]), providers=["CPUExecutionProvider"])
    described = {tensor.name: tensor.shape for tensor in (*session.get_inputs(), *session.get_outputs())}
    assert described == {
        "/input/planes": ["batch", 112, 8, 8],
        "/output/policy": ["batch", 1858],
        "/output/wdl": ["batch", 3],
        "/output/mlh": ["batch", 1],
    }


def test_the_file_says_what_its_numbers_mean(exported) -> None:
    session = onnxruntime.InferenceSession(str(exported[1]), providers=["CPUExecutionProvider"])
    said = session.get_modelmeta().custom_metadata_map
    assert said["game"] == "chess" and said["wdl"] == "win, draw, loss of the side to move"
    assert "112" in said["planes"] and "1858" in said["actions"]


def test_a_program_that_knows_only_the_file_evaluates_a_game_of_a_python_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="pip install onnx")
    game = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"
    net = az.new_net(game, blocks=1, filters=8)
    onnx_export.write_onnx(tmp_path / "nim.onnx", net.module)
    model = onnx.load(tmp_path / "nim.onnx")
    onnx.checker.check_model(model)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert re.fullmatch(r"nim\.py:Nim\(piles=3\)@[0-9a-f]{12}", said["game"])
    assert said["planes"] == (
        "0 to 2: observation_tensor(player) of the player to move; "
        "3: ones where the second player is to move, else zeros; 4: ones"
    )
    assert said["actions"] == "the number of the action, 0 to 8"
    assert said["wdl"] == "win, draw, loss of the side to move"

    state = net.board(moves=[7]).state  # two of the third pile are gone: 1, 2, 1
    numbers = [*state.observation_tensor(1), 1, 1]
    session = onnxruntime.InferenceSession(str(tmp_path / "nim.onnx"), providers=["CPUExecutionProvider"])
    planes = np.array(numbers, np.float32).reshape(1, 5, 1, 1)
    policy, wdl = session.run(None, {"/input/planes": planes})
    legal = state.legal_actions()
    shares = np.exp(policy[0][legal]) / np.exp(policy[0][legal]).sum()
    expected = net.evaluate(moves=[7])
    assert dict(zip(legal, shares, strict=True)) == pytest.approx(expected.actions, abs=1e-5)
    assert wdl[0] == pytest.approx(expected.wdl, abs=1e-5)


def test_a_missing_package_is_named_and_nothing_is_written(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_export, "PACKAGES", ("onnx", "no_such_package"))
    network = AlphaZeroNet(SMALL, get_spec("chess"))
    with pytest.raises(WeightsError, match=r"needs no_such_package"):
        onnx_export.write_onnx(tmp_path / "net.onnx", network)
    assert list(tmp_path.iterdir()) == []


def test_a_network_above_the_limit_of_protobuf_is_refused_by_name(tmp_path: Path) -> None:
    network = on_meta_device(load_config("chess_1b", {}).network)
    message = (
        r"out.onnx: a network of 1,125,246,499 numbers: ONNX files have 4 bytes .*--to safetensors or pt"
    )
    with pytest.raises(WeightsError, match=message):
        onnx_export.write_onnx(tmp_path / "out.onnx", network)
    assert list(tmp_path.iterdir()) == []
