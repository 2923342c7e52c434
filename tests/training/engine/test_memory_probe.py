"""What fits into memory: tried sizes, reckoned sizes, and nothing left behind."""

import copy
import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import load_config
from alphazero.training.engine.probe import (
    LIBRARY_BYTES,
    fits,
    largest_that_fits,
    random_batch,
    reserve_bytes,
)
from tests.support.gpu import on_cuda

SPEC = get_spec("chess")
CPU = torch.device("cpu")
MIB = 2**20


def build(**flags):
    config = load_config("", {"blocks": 3, "filters": 32, "micro_batch_size": "auto", **flags})
    return config, AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0))


@given(st.lists(st.integers(1, 10_000), unique=True), st.integers(0, 10_001))
def test_bisection_finds_what_trying_all_finds(sizes, limit):
    sizes = sorted(sizes)
    asked = []

    def size_fits(size):
        asked.append(size)
        return size <= limit

    assert largest_that_fits(sizes, size_fits) == max((s for s in sizes if s <= limit), default=None)
    assert len(asked) <= len(sizes).bit_length()


def test_the_positions_tried_are_such_as_the_loader_makes():
    batch = random_batch(SPEC, 5)
    assert batch.packed.shape == (5, SPEC.packed_bytes)
    for first, last in zip(batch.legal_offset, batch.legal_offset[1:], strict=False):
        moves = batch.legal_index[first:last]
        assert (moves[1:] > moves[:-1]).all() and moves[0] >= 0 and moves[-1] < SPEC.policy_size
        assert batch.policy[first:last].sum() == pytest.approx(1)
    assert batch.wdl.sum(1) == pytest.approx(1)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_trying_leaves_network_and_random_numbers_as_they_were(precision):
    recipe, network = build(precision=precision)
    network.eval()
    before, chance = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    assert fits(network, recipe, CPU, 4, 1 * MIB)
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(chance, torch.get_rng_state())
    assert not network.training and all(parameter.grad is None for parameter in network.parameters())


def test_what_the_allocator_refuses_does_not_fit():
    recipe, network = build()
    assert not fits(network, recipe, CPU, 4, 2**60)


def test_another_fault_than_memory_is_not_taken_for_it():
    recipe, network = build()
    other_game = AlphaZeroNet(network.config, get_spec("connect4"))
    other_game.spec = SPEC
    with pytest.raises(RuntimeError, match="channels"):
        fits(other_game, recipe, CPU, 4, 0)


def test_the_reserve_counts_what_deepspeed_and_the_optimizer_hold():
    recipe, network = build()
    size = 4 * network.parameter_count()
    # Two moments, one temporary, one bucket of gradients.
    assert reserve_bytes(network, recipe, 4) == 4 * size + LIBRARY_BYTES
    recipe, network = build(optimizer="sgd", ema_decay=0.9)
    assert reserve_bytes(network, recipe, 4) == 4 * size + LIBRARY_BYTES
    recipe, network = build(zero_stage=2)
    options = {"reduce_bucket_size": 1000, "allgather_bucket_size": 10**9, "overlap_comm": True}
    with_options = dataclasses.replace(recipe, deepspeed=DeepSpeedSettings(zero_options=options))
    reserve = reserve_bytes(network, with_options, 2)
    # Halves of two moments, temporary, flat partition and gradients; two buckets; gathered weights.
    assert reserve == pytest.approx(5 * size / 2 + 2 * 4 * 1000 + size + LIBRARY_BYTES, abs=4)


@on_cuda(order=6, alone=True)
def test_on_a_gpu_too_many_do_not_fit_and_the_memory_comes_back():
    recipe, network = build()
    device = torch.device("cuda")
    free_before, total = torch.cuda.mem_get_info(device)
    assert fits(network, recipe, device, 64, MIB)
    assert not fits(network, recipe, device, 64, total)
    assert not fits(network, recipe, device, 1 << 20, MIB)
    free_after, _ = torch.cuda.mem_get_info(device)
    # cuDNN and cuBLAS keep their handles.
    assert free_before - free_after < 1024 * MIB
