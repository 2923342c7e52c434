"""The forward pass in int8: its integers against ones worked out by hand, its nearness to fp32."""

import argparse
import itertools
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

import alphazero._core as _core
from alphazero.base.errors import ConfigError, WeightsError
from alphazero.cli.flags import add_network_flags
from alphazero.games.lines import MOST_PLIES, NUM_POSITIONS, random_lines
from alphazero.games.registry import get_spec, make_line
from alphazero.network.inference import int8 as int8_forward
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.forward import fold_tensors
from alphazero.network.inference.int8 import (
    LEVELS,
    ActivationRange,
    Int8Forward,
    rectified_modules,
    rounded_up,
    weight_levels,
)
from alphazero.network.inference.program import PlaneExpander, byte_of_one
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.precision import EVALUATION_PRECISIONS, evaluation_precision, why_not_int8
from alphazero.network.weights.open_network import open_network
from alphazero.settings.self_play import SelfPlayConfig
from tests.support.network.evaluator_nets import calibrate, positions, trained_like

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[3]
GAMES = ("chess", "connect4", "othello", "tictactoe")

pytestmark = pytest.mark.skipif(bool(why_not_int8(CPU)), reason=why_not_int8(CPU) or "has int8")


def of_lines(game: str, count: int = NUM_POSITIONS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of random games as an evaluator takes them."""
    lines = random_lines(game)[:count]
    legal = [line.legal_indices() for line in lines]
    offset = np.cumsum([0, *map(len, legal)], dtype=np.int32)
    return np.stack([line.packed() for line in lines]), np.concatenate(legal), offset


def shares(logits: np.ndarray, offset: np.ndarray) -> list[np.ndarray]:
    """Each position's policy."""
    return [
        torch.softmax(torch.from_numpy(logits[a:b]).double(), 0).numpy()
        for a, b in itertools.pairwise(offset)
    ]


def divergence(exact: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Mean Kullback-Leibler divergence."""
    return float(np.mean([(p * np.log(p / q)).sum() for p, q in zip(exact, found, strict=True)]))


@pytest.mark.parametrize("game", GAMES)
def test_planes_in_bytes_are_exact(game):
    spec = get_spec(game)
    packed_BN = torch.from_numpy(of_lines(game, 32)[0])
    planes_BCHW = PlaneExpander(spec, 32, CPU, torch.uint8)(packed_BN)
    exact_BCHW = expand_planes(packed_BN, spec)
    assert planes_BCHW.dtype is torch.uint8
    assert torch.equal(planes_BCHW.float(), (exact_BCHW * byte_of_one(spec)).round())
    torch.testing.assert_close(planes_BCHW / byte_of_one(spec), exact_BCHW, rtol=0, atol=1e-6)


def test_a_byte_holds_the_halfmove_clock_of_chess_and_no_more_than_a_byte():
    spec = get_spec("chess")
    assert byte_of_one(spec) == 99  # the clock is scaled by 1 / 99
    packed_BN = torch.full((1, spec.packed_bytes), 255, dtype=torch.uint8)
    assert PlaneExpander(spec, 1, CPU, torch.uint8)(packed_BN).max() == 255


def test_a_quantised_convolution_sums_integers():
    """Bytes in, bytes out: the sums are those of whole numbers, scaled and rounded once."""
    network = trained_like("connect4", blocks=1, filters=16, se_ratio=0)
    folded = fold_tensors(network.state_dict())
    largest = {"input": 2.0, "blocks.0.first": 3.0, "blocks.0": 5.0, "policy.hidden": 1.0}
    forward = Int8Forward(network, 4)
    forward.range = SimpleNamespace(of=lambda folded: largest)
    forward.load(folded)
    (block,) = forward.blocks
    generator = torch.Generator().manual_seed(1)
    tower_BCHW = torch.randint(0, 256, (4, 16, 6, 7), dtype=torch.uint8, generator=generator)
    tower_BCHW = tower_BCHW.contiguous(memory_format=torch.channels_last)

    def summed(name: str, input_BCHW: torch.Tensor, input_step: float) -> torch.Tensor:
        weight, bias = folded[f"{name}.weight"], folded[f"{name}.bias"]
        step = (weight.abs().amax((1, 2, 3), keepdim=True) / weight_levels()).double()
        whole = (weight / step.float()).round().double()
        sums = functional.conv2d(input_BCHW.double(), whole, padding=1)
        return sums * step.view(1, -1, 1, 1) * input_step + bias.double().view(1, -1, 1, 1)

    def bytes_of(values: torch.Tensor, step: float) -> torch.Tensor:
        return (values / step).round().clamp(0, 255)

    step_in, step_first, step_out = 2 / 255, 3 / 255, 5 / 255
    expected_first = bytes_of(summed("blocks.0.first.conv", tower_BCHW, step_in), step_first)
    first_BCHW = block.first(tower_BCHW, "relu")
    assert first_BCHW.dtype is torch.uint8
    # Where the value lies between two bytes, rounding in fp32 may go the other way.
    assert (first_BCHW.double() - expected_first).abs().max() <= 1
    assert (first_BCHW.double() == expected_first).double().mean() > 0.999
    assert len(first_BCHW.unique()) > 100
    sums = summed("blocks.0.second.conv", first_BCHW, step_first) + tower_BCHW.double() * step_in
    expected = bytes_of(sums, step_out)
    found = block.second.add_to(tower_BCHW, first_BCHW)
    assert (found.double() - expected).abs().max() <= 1
    assert (found.double() == expected).double().mean() > 0.999


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [3, 16, 70])
def test_the_end_of_a_block_with_squeeze_excitation_beside_bytes(dtype, channels):
    generator = torch.Generator().manual_seed(2)
    branch = torch.randn((5, 42, channels), generator=generator).to(dtype)
    scale, shift = torch.rand((2, 5, channels), generator=generator)
    skip = torch.randint(0, 256, (5, 42, channels), dtype=torch.uint8, generator=generator)
    value = skip.double() * 0.01 + branch.double() * scale.double()[:, None] + shift.double()[:, None]
    expected = (value / 0.02 + 0.5).floor().clamp(0, 255)
    bits = branch.view(torch.uint16) if dtype is torch.bfloat16 else branch
    _core.excite_bytes(bits.numpy(), scale.numpy(), shift.numpy(), 0.01, 0.02, skip.numpy())
    assert (skip.double() - expected).abs().max() <= 1
    assert (skip.double() == expected).double().mean() > 0.99
    assert skip.min() == 0


def test_a_branch_that_is_no_number_becomes_a_byte_of_0():
    skip = np.full((1, 1, 3), 9, np.uint8)
    branch = np.array([[[np.nan, np.inf, -np.inf]]], np.float32)
    one = np.ones((1, 3), np.float32)
    _core.excite_bytes(branch, one, one, 1.0, 1.0, skip)
    assert skip.tolist() == [[[0, 255, 0]]]


def test_shapes_that_do_not_fit_are_refused():
    branch, skip = np.zeros((2, 3, 4), np.float32), np.zeros((2, 3, 4), np.uint8)
    small = np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match="do not fit"):
        _core.excite_bytes(branch, small, small, 1.0, 1.0, np.zeros((2, 3, 5), np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        _core.excite_bytes(branch, np.zeros((2, 3), np.float32), small, 1.0, 1.0, skip)
    with pytest.raises(ValueError, match="do not fit"):
        _core.excite_bytes(branch, small, small, 1.0, 0.0, skip)


@pytest.mark.parametrize("game", GAMES)
def test_random_games_are_the_same_for_everybody_and_go_from_early_to_late(game):
    lines, again = random_lines(game), random_lines(game)
    assert [line.key for line in lines] == [line.key for line in again]
    assert len(lines) == NUM_POSITIONS
    assert all(line.legal() and not line.outcome().over for line in lines)
    plies = [line.num_plies for line in lines]
    assert plies[0] == 0 == make_line(game).num_plies
    assert min(MOST_PLIES, 4) <= max(plies) <= MOST_PLIES
    assert plies == sorted(plies)


@pytest.mark.parametrize(("game", "head"), [("chess", "attention"), ("connect4", "convolution")])
def test_ranges_are_the_largest_activations_of_the_modules(game, head):
    network = trained_like(game, blocks=2, policy_head=head)
    packed_BN = torch.from_numpy(of_lines(game)[0])
    calibrate(network, packed_BN.numpy())
    found = ActivationRange(network).of(fold_tensors(network.state_dict()))
    assert list(found) == list(rectified_modules(2, head))
    seen: dict[str, float] = {}
    network.eval()
    for name in found:
        network.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: seen.update({name: output.max().item()})
        )
    with torch.no_grad():
        network(expand_planes(packed_BN, network.spec))
    for name, largest in found.items():
        assert seen[name] * (1 - 1e-5) <= largest <= seen[name] * (1 + 2**-6)
        assert largest == rounded_up(largest)
    assert min(found.values()) > 0


def test_a_range_has_few_bits():
    assert [rounded_up(x) for x in (0.0, 1.0, 1.001, 255.0, 257.0)] == [0.0, 1.0, 1.0078125, 255.0, 258.0]


def test_the_choices_of_settings_and_flags_are_those_that_there_are():
    (setting,) = [one for one in fields(SelfPlayConfig) if one.name == "evaluation_precision"]
    assert setting.metadata["choices"] == ("auto", "training", *EVALUATION_PRECISIONS)
    parser = argparse.ArgumentParser()
    add_network_flags(parser)
    for precision in EVALUATION_PRECISIONS:
        assert parser.parse_args(["--precision", precision]).precision == precision


@pytest.mark.parametrize("se_ratio", [0, 4])
@pytest.mark.parametrize(
    ("game", "head"), [*((game, "convolution") for game in GAMES), ("chess", "attention")]
)
def test_int8_stays_near_fp32(game, head, se_ratio):
    network = trained_like(game, filters=32, se_ratio=se_ratio, policy_head=head, value_hidden=24)
    packed, legal_index, legal_offset = of_lines(game)
    calibrate(network, packed)
    exact = NetworkEvaluator(network, CPU, "fp32", 64)(packed, legal_index, legal_offset)
    found = NetworkEvaluator(network, CPU, "int8", 64)(packed, legal_index, legal_offset)
    assert np.abs(found.wdl - exact.wdl).mean() < 0.02
    error = found.legal_logits - exact.legal_logits
    # Without VNNI weights have a bit less.
    limit = 0.05 if weight_levels() == LEVELS else 0.1
    assert error.std() < limit * exact.legal_logits.std()
    assert np.abs(error).max() > 0  # it is another precision


def test_a_trained_network_says_the_same_in_int8():
    network, _ = open_network(str(ROOT / "examples" / "chess_4x32.pb.gz"), CPU)
    packed, legal_index, legal_offset = of_lines("chess")
    exact = NetworkEvaluator(network, CPU, "fp32", 64)(packed, legal_index, legal_offset)
    found = NetworkEvaluator(network, CPU, "int8", 64)(packed, legal_index, legal_offset)
    policies = [shares(one.legal_logits, legal_offset) for one in (exact, found)]
    assert divergence(*policies) < 0.01
    values = [one.wdl[:, 0] - one.wdl[:, 2] for one in (exact, found)]
    assert np.abs(values[0] - values[1]).mean() < 0.03
    assert np.std(values[0]) > 0.1


def test_activations_beyond_the_range_are_cut_and_a_dead_layer_is_none():
    network = trained_like("connect4", se_ratio=0)
    with torch.no_grad():  # nothing passes the first ReLU of block 0
        network.blocks[0].first.norm.weight.zero_()
        network.blocks[0].first.norm.bias.fill_(-1.0)
    arrays = of_lines("connect4")
    exact = NetworkEvaluator(network, CPU, "fp32", 64)(*arrays)
    found = NetworkEvaluator(network, CPU, "int8", 64)(*arrays)
    assert np.abs(found.wdl - exact.wdl).max() < 0.1
    # Bytes that no game has: bigger sums than any position of a random game gave.
    packed, legal_index, legal_offset = positions("connect4", 64)
    found = NetworkEvaluator(network, CPU, "int8", 64)(packed, legal_index, legal_offset)
    assert np.isfinite(found.wdl).all() and np.isfinite(found.legal_logits).all()


def test_new_weights_give_what_a_new_evaluator_gives_and_bad_ones_change_nothing():
    old, new = trained_like("chess", seed=4), trained_like("chess", seed=5)
    arrays = of_lines("chess", 6)
    evaluator = NetworkEvaluator(old, CPU, "int8", 8)
    before = evaluator(*arrays)
    with torch.no_grad():
        for tensor in old.state_dict().values():
            tensor.zero_()
    np.testing.assert_array_equal(evaluator(*arrays).wdl, before.wdl)
    broken = dict(new.state_dict())
    broken["input.conv.weight"] = torch.full_like(broken["input.conv.weight"], torch.nan)
    with pytest.raises(WeightsError, match="input: gives nan"):
        evaluator.load(broken)
    np.testing.assert_array_equal(evaluator(*arrays).wdl, before.wdl)
    evaluator.load(new.state_dict())
    expected = NetworkEvaluator(new, CPU, "int8", 8)(*arrays)
    np.testing.assert_array_equal(evaluator(*arrays).wdl, expected.wdl)
    np.testing.assert_array_equal(evaluator(*arrays).legal_logits, expected.legal_logits)
    assert np.abs(expected.wdl - before.wdl).max() > 1e-3


OLD_INSTRUCTIONS = """
import json, torch
from types import SimpleNamespace
from alphazero.network.inference.forward import fold_tensors
from alphazero.network.inference.int8 import Int8Forward, weight_levels
from alphazero.games.lines import MOST_PLIES, NUM_POSITIONS, random_lines
from tests.support.network.evaluator_nets import trained_like
network = trained_like("connect4", blocks=1, filters=32, se_ratio=0)
folded = fold_tensors(network.state_dict())
folded["blocks.0.first.conv.weight"] = torch.ones(32, 32, 3, 3)
folded["blocks.0.first.conv.bias"] = torch.zeros(32)
largest = {"input": 1.0, "blocks.0.first": 288.0, "blocks.0": 1.0, "policy.hidden": 1.0}
forward = Int8Forward(network, 1)
forward.range = SimpleNamespace(of=lambda folded: largest)
forward.load(folded)
first = forward.blocks[0].first
ones_BCHW = torch.full((1, 32, 6, 7), 255, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
sums_HW = first(ones_BCHW, "relu")[0, 0]
print(json.dumps([weight_levels(), sums_HW[2, 3].item(), sums_HW[0, 0].item()]))
"""


def test_without_vnni_sums_of_two_products_do_not_overflow():
    """oneDNN, told to use AVX2, adds neighbouring products in 16 bits: the weights have 7 bits then."""
    result = subprocess.run(
        [sys.executable, "-c", OLD_INSTRUCTIONS],
        cwd=ROOT,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # 32 channels of 9 squares inside the board, of 4 in a corner: 288 and 128, in steps of 288 / 255.
    assert json.loads(result.stdout) == [63, 255, 113]


@pytest.mark.parametrize(("has_vnni", "levels"), [(True, 127), (False, 63)])
def test_weights_have_seven_bits_where_the_processor_has_no_vnni(monkeypatch, has_vnni, levels):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx_vnni": has_vnni})
    assert int8_forward.weight_levels() == levels


@pytest.mark.parametrize(
    ("asked", "device", "expected"),
    [
        ("auto", "cpu", "int8"),
        ("auto", "cuda", "bf16"),
        ("training", "cpu", "bf16"),
        ("fp32", "cpu", "fp32"),
        ("int8", "cpu", "int8"),
    ],
)
def test_the_arithmetic_of_self_play(asked, device, expected):
    assert evaluation_precision(asked, "bf16", torch.device(device)) == expected


def test_int8_is_refused_where_there_is_none(monkeypatch):
    with pytest.raises(ConfigError, match=r"precision int8: .*fp32"):
        evaluation_precision("int8", "bf16", torch.device("cuda"))
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: False)
    assert evaluation_precision("auto", "fp32", CPU) == "fp32"
    network = trained_like("connect4")
    with pytest.raises(ConfigError, match=r"int8: .*AVX2"):
        NetworkEvaluator(network, CPU, "int8", 8)
