"""The one piece of memory that ranks add up: what is sent, in which type, and what it says of each rank."""

import os
from unittest import mock

import pytest
import torch
from torch import multiprocessing, nn

from alphazero.launch.node.store import lone_process_environment
from alphazero.training.engine.gradients import FlatGradients, StepVerdict, VerdictReader

NUM_STATISTICS = 6


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)


def step(flat, module, gradients, *, max_norm=0.0, losses=0.0, scale=1.0):
    """One step of a rank whose passes gave `gradients`; its verdict."""
    for values in gradients:
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.grad = value.clone(memory_format=torch.preserve_format)
        flat.add_gradients()
        assert all(parameter.grad is None for parameter in module.parameters())
    flat.close(scale, torch.tensor(losses))
    flat.average()
    flat.clip(max_norm)
    reader = VerdictReader(len(flat.verdict), torch.device("cpu"))
    reader.send(flat.verdict)
    verdict = reader.read()
    assert bool(flat.is_bad()) == verdict.is_bad
    return verdict


def drawn(module, seed):
    torch.manual_seed(seed)
    return [torch.randn_like(parameter) for parameter in module.parameters()]


@pytest.fixture
def lone_rank():
    with mock.patch.multiple("torch.distributed", get_world_size=lambda: 1, get_rank=lambda: 0):
        yield


def test_clipping_is_that_of_torch(lone_rank):
    module, twin = network(), network()
    flat = FlatGradients(module.parameters(), NUM_STATISTICS)
    gradients = [drawn(module, 1), drawn(module, 2)]
    assert step(flat, module, gradients, max_norm=0.5, scale=4.0) == StepVerdict(False)
    for parameter, *values in zip(twin.parameters(), *gradients, strict=True):
        parameter.grad = sum(values) / 4
    nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
    for own, expected in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own.grad, expected.grad)
        assert own.grad.stride() == own.stride()


def test_a_missing_gradient_counts_as_zeros_also_after_a_step_that_had_one(lone_rank):
    module = network()
    flat = FlatGradients(module.parameters(), NUM_STATISTICS)
    first, second = drawn(module, 1), drawn(module, 2)
    step(flat, module, [first])
    next(module.parameters()).grad = None
    for parameter, value in list(zip(module.parameters(), second, strict=True))[1:]:
        parameter.grad = value.clone()
    flat.add_gradients()
    flat.close(1.0, torch.zeros(()))
    flat.average()
    flat.clip(0.0)
    grads = [parameter.grad for parameter in module.parameters()]
    assert not grads[0].any()
    assert all(torch.equal(own, value) for own, value in zip(grads[1:], second[1:], strict=True))


def test_what_stays_free_behind_gradients_is_zero_even_after_a_bad_step(lone_rank):
    module = network()
    sizes = [parameter.numel() for parameter in module.parameters()]
    flat = FlatGradients(module.parameters(), NUM_STATISTICS, paddings=[3] * len(sizes))
    spoilt = [torch.full_like(parameter, float("nan")) for parameter in module.parameters()]
    assert step(flat, module, [spoilt], max_norm=1.0).is_bad
    gradients = drawn(module, 1)
    assert step(flat, module, [gradients]) == StepVerdict(False)
    parts = torch.split(flat.gradients, [size + 3 for size in sizes])
    for part, own, expected in zip(parts, module.parameters(), gradients, strict=True):
        assert torch.equal(own.grad, expected) and not part[-3:].any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_what_is_not_finite_is_found_wherever_it_is(lone_rank, bad, where):
    module = network()
    flat = FlatGradients(module.parameters(), NUM_STATISTICS)
    gradients = drawn(module, 1)
    if where == "gradient":
        gradients[-1][2] = bad
    assert step(flat, module, [gradients], losses=bad if where == "loss" else 0.0) == StepVerdict(True, (0,))
    assert step(flat, module, [drawn(module, 2)]) == StepVerdict(False)


@pytest.mark.parametrize(
    ("sent_as", "sent"),
    [(torch.float32, [torch.float32]), (torch.bfloat16, [torch.bfloat16, torch.float32])],
)
def test_gradients_statistics_and_verdicts_travel_in_one_message_or_the_gradients_in_their_own(sent_as, sent):
    """Four ranks that hold the same: every sum is four times what is sent."""
    module = network()
    messages = []

    def all_reduce(tensor):
        messages.append(tensor.dtype)
        tensor *= 4

    fakes = {"get_world_size": lambda: 4, "get_rank": lambda: 2, "all_reduce": all_reduce}
    with mock.patch.multiple("torch.distributed", **fakes):
        flat = FlatGradients(module.parameters(), NUM_STATISTICS, sent_as)
        flat.statistics.fill_(1 / 3)
        gradients = drawn(module, 1)
        assert step(flat, module, [gradients]) == StepVerdict(False)
    assert messages == sent
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}[sent_as]
    for parameter, value in zip(module.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, value, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(flat.statistics, torch.full((NUM_STATISTICS,), 4 / 3))


def test_a_sum_that_overflows_is_nobody_s_fault_and_bad_all_the_same():
    module = network()
    fakes = {"get_world_size": lambda: 2, "get_rank": lambda: 0, "all_reduce": lambda tensor: tensor.mul_(2)}
    with mock.patch.multiple("torch.distributed", **fakes):
        flat = FlatGradients(module.parameters(), NUM_STATISTICS)
        huge = [torch.full_like(parameter, 3e38) for parameter in module.parameters()]
        assert step(flat, module, [huge]) == StepVerdict(True)


def rank_of_two(rank, port, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    for dtype in (torch.float32, torch.bfloat16):
        module = network()
        flat = FlatGradients(module.parameters(), NUM_STATISTICS, dtype)
        flat.statistics.fill_(rank + 1.0)
        good = step(flat, module, [drawn(module, rank)], max_norm=1.0)
        norm = nn.utils.get_total_norm([parameter.grad for parameter in module.parameters()])
        bad = step(flat, module, [drawn(module, rank)], losses=float("nan") if rank else 0.0)
        answers.put((rank, good, bad, float(flat.statistics[0]), round(float(norm), 5)))
    torch.distributed.destroy_process_group()


def test_two_ranks_agree_on_whose_passes_were_at_fault():
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    port = lone_process_environment()["MASTER_PORT"]
    multiprocessing.spawn(rank_of_two, (port, answers), nprocs=2)
    for _ in range(4):
        _, good, bad, statistics, norm = answers.get(timeout=60)
        # The second step adds up what the first one left: 3 on each of two ranks.
        assert (good, bad, statistics, norm) == (StepVerdict(False), StepVerdict(True, (1,)), 6.0, 1.0)
