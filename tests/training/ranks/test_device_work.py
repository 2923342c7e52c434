"""What a step asks of a device, counted on one that has no numbers (benchmarks/device_work.py)."""

import pytest
import torch

from alphazero.settings.load import load_config
from benchmarks.device_work import META, count_step, meta_device_as_cuda
from benchmarks.device_work import Counting as CountingMode

SIZES = {"blocks": 2, "filters": 16, "batch_size": 24, "validation_interval": 0, "log_interval": 100}


def count(lone_runtime, num_micro_batches=1, **flags):
    config = load_config("connect4", {**SIZES, "precision": "fp32", **flags})
    return count_step(config, num_micro_batches, lone_runtime)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("num_micro_batches", [1, 3])
def test_the_host_waits_for_nothing_in_a_step(lone_runtime, num_micro_batches, optimizer):
    work = count(lone_runtime, num_micro_batches, optimizer=optimizer)[0]
    assert work.num_waits == 0, work.events
    # Six arrays of each micro-batch; after the message the verdict.
    arrays = ["copy to device without waiting"] * 6 * num_micro_batches
    assert work.events == [*arrays, "message", "copy to host without waiting"]


def test_a_further_micro_batch_and_a_step_launch_no_more_than_they_did(lone_runtime):
    """With two blocks; docs/performance.md has 20x256. Each parameter was once hooked, normed and clipped."""
    one, three = (count(lone_runtime, number)[0].num_launches for number in (1, 3))
    a_pass = (three - one) / 2
    assert a_pass <= 160
    assert one - a_pass <= 35


def test_a_norm_is_taken_of_all_gradients_at_once(lone_runtime):
    operations = count(lone_runtime)[0].operations
    assert operations["linalg_vector_norm"] == 1  # whether it is finite
    assert operations["_foreach_norm"] == 1  # how long it is
    assert operations["_fused_adamw_"] == 2  # with decay and without


def test_all_that_a_network_computes_with_is_on_the_device(lone_runtime):
    engine = count(lone_runtime, ema_decay="0.9")[1]
    mode = CountingMode()
    with meta_device_as_cuda(mode), mode, engine.evaluating() as averaged:
        placed = {**dict(averaged.named_parameters()), **dict(averaged.named_buffers())}
        assert {name for name, tensor in placed.items() if not tensor.is_meta} == set()
        assert "policy.policy_map_A" in placed
        spec = averaged.spec
        planes = torch.zeros((4, spec.num_planes, spec.board_height, spec.board_width), device=META)
        assert averaged(planes).policy_BA.is_meta
        state = engine.optimizer_state()
    trained = {**dict(engine.network.named_parameters()), **dict(engine.network.named_buffers())}
    assert {name for name, tensor in trained.items() if not tensor.is_meta} == set()
    assert {name for name, tensor in state.items() if not tensor.is_meta} == {"step"}
