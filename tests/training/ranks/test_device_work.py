"""What a training step asks of a GPU, counted without one.

The real trainer and the real DeepSpeed engine run on torch's meta device, which has shapes and no numbers,
and every operation that torch dispatches for it is seen. What cannot be seen: how long anything takes, and
how many kernels an operation launches (a convolution or a step of the fused optimizer is one operation here).
"""

import contextlib
import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.network.model import layers
from alphazero.network.model.layers import TRITON, SqueezeExcitation
from alphazero.network.model.planes import plane_constants
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters
from alphazero.run.rank import HeartbeatWriter
from alphazero.settings.load import Config, load_config
from alphazero.show.console import Console
from alphazero.training.engine.engine import Engine
from alphazero.training.engine.probe import random_batch
from alphazero.training.loop.job import Job, Position, RankServices, SourceState
from alphazero.training.loop.part_clock import PartClock
from alphazero.training.loop.start_clock import StartClock
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.trainer import Trainer
from alphazero.training.ranks.batch import plan_batches
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime

META = torch.device("meta")
# One is counted that is neither among the first, which are made ready for, nor the last, with its checkpoint.
NUM_STEPS, COUNTED_STEP = 5, 3
# Operations that give memory or another look at it, and launch nothing.
NO_LAUNCH = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "lift_fresh",
    "_unsafe_view",
    "_local_scalar_dense",
}


@dataclass
class Work:
    """What was asked of the device: operations by name, and copies and waits in their order.

    events: "read" (the host waits for a number), "copy to host" and "copy to device" (the host waits; not so
    "... without waiting"), "synchronize", "message" (the one of the step to the other ranks).
    """

    operations: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)

    @property
    def num_launches(self) -> int:
        """Operations that launch something."""
        return sum(self.operations.values())

    @property
    def num_waits(self) -> int:
        """How often the host waited for the device."""
        return sum(event != "message" and not event.endswith("without waiting") for event in self.events)


class Counting(TorchDispatchMode):
    """Counts what is dispatched for the meta device. Numbers read from there are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Count one operation; carry out what the meta device can."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if name == "_local_scalar_dense" and given[0].is_meta:
            self.work.events.append("read")
            return 0.0
        in_passing = kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,))
        how = " without waiting" if in_passing else ""
        if name == "copy_" and given[1].is_meta and not given[0].is_meta:
            self.work.events.append(f"copy to host{how}")
            return given[0]
        if name == "_to_copy" and given[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            self.work.events.append(f"copy to host{how}")
            return torch.zeros(given[0].shape, dtype=kwargs.get("dtype") or given[0].dtype)
        # It changes what it is given, and torch 2.13 has no shapes for it.
        result = None if name == "_fused_sgd_" else func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not any(tensor.is_meta for tensor in (*given, *made)):
            return result
        if name in ("copy_", "_to_copy") and not given[-1].is_meta:
            self.work.events.append(f"copy to device{how}")
        is_view = any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)
        if not is_view and name not in NO_LAUNCH:
            self.work.operations[name] += 1
        return result


@contextlib.contextmanager
def meta_device_as_cuda(counting: Counting) -> Iterator[None]:
    """torch, DeepSpeed and this program take the meta device for a GPU."""
    from deepspeed.accelerator import get_accelerator

    autocast, tensor = torch.autocast, torch.tensor

    def autocast_but_on_meta(device_type: str, **options: Any) -> contextlib.AbstractContextManager[Any]:
        # Mixed precision adds its casts; nothing else depends on it.
        return contextlib.nullcontext() if device_type == "meta" else autocast(device_type, **options)

    def noted_tensor(numbers: object, **options: Any) -> torch.Tensor:
        # Of a tensor made of numbers on the meta device nothing is dispatched; a GPU waits for a copy.
        made: torch.Tensor = tensor(numbers, **options)
        if made.is_meta:
            counting.work.events.append("copy to device")
        return made

    replaced: dict[str, object] = {
        "torch.tensor": noted_tensor,
        "torch.autocast": autocast_but_on_meta,
        "torch.utils._foreach_utils._get_foreach_kernels_supported_devices": lambda: ["meta"],
        "torch.optim.optimizer._get_foreach_kernels_supported_devices": lambda: ["meta"],
        "torch.optim.optimizer._get_fused_kernels_supported_devices": lambda: ["meta"],
        "alphazero.training.engine.engine.is_told_late": lambda device: True,
        "alphazero.training.engine.optimizer.runs_fused": lambda network: True,
    }
    accelerator = type(get_accelerator())
    replaced_methods: dict[str, object] = {
        "device_name": lambda self, index=None: "meta",
        "current_device_name": lambda self: "meta",
        "synchronize": lambda self, index=None: counting.work.events.append("synchronize"),
    }
    plane_constants.cache_clear()
    with contextlib.ExitStack() as stack:
        for target, value in replaced.items():
            stack.enter_context(mock.patch(target, value))
        for name, method in replaced_methods.items():
            stack.enter_context(mock.patch.object(accelerator, name, method))
        yield
    plane_constants.cache_clear()


class Steps(Console):
    """Keeps what each step of a trainer asked for."""

    def __init__(self, counting: Counting) -> None:
        super().__init__(is_main=False)
        self._counting = counting
        self.work: list[Work] = []

    def advance_bar(self) -> None:
        """A step is done."""
        self.work.append(self._counting.work)
        self._counting.work = Work()


def count_step(config: Config, num_micro_batches: int, runtime: Runtime) -> tuple[Work, Engine]:
    """The work of one step of `num_micro_batches` on one rank, in a process group of this process alone."""
    spec = get_spec(config.network.game)
    batch_size = config.training.batch_size
    plan = plan_batches(batch_size, batch_size // num_micro_batches, [1.0], "cpu")
    # As a rank that reports no figures: the meta device has none.
    runtime = dataclasses.replace(runtime, device=META, rank=1)
    batch = random_batch(spec, batch_size // num_micro_batches)
    passes = [MicroBatch(0, index, batch, False) for index in range(num_micro_batches)]
    source = SimpleNamespace(
        prepare=lambda step, weights: NUM_STEPS,
        steps=lambda plan, first, last: (list(passes) for _ in range(first, last)),
        state=lambda: SourceState(""),
    )
    counting = Counting()
    steps, exchange = Steps(counting), Exchange()
    ask = exchange.numbers

    def noted(value: int) -> list[int]:
        counting.work.events.append("message")
        return ask(value)

    with tempfile.TemporaryDirectory() as directory, meta_device_as_cuda(counting), counting:
        run = RunDirectory(Path(directory))
        services = RankServices(
            exchange=exchange,
            console=steps,
            metrics=AllWriters([]),
            heartbeat=HeartbeatWriter(run.heartbeats, runtime.rank, runtime.host),
            stop=StopRequest(),
            writer=None,
            clock=PartClock.on(runtime.device),
            start_clock=StartClock(),
        )
        engine = Engine(AlphaZeroNet(config.network, spec), config, plan, runtime)
        job = Job(config, runtime, run, NUM_STEPS, 0)
        with mock.patch.object(exchange, "numbers", noted):
            Trainer(job, plan, Position(0), engine, source, lambda network, step: {}, services).run()
    return steps.work[COUNTED_STEP], engine


# Counted in fp32 on one rank; docs/performance.md lists them.
# ZeRO stage, operations, waits.
BIG = [(0, 436, 0), (1, 442, 0), (2, 442, 0), (3, 442, 0)]
# The tower of those pages, without the rest of what the preset has.
PLAIN = {"se_ratio": 0, "policy_head": "convolution", "ema_decay": 0.0}
SIZES = {"blocks": 2, "filters": 16, "batch_size": 24, "validation_interval": 0, "log_interval": 100}


def count(lone_runtime, num_micro_batches=1, **flags):
    config = load_config("connect4", {**SIZES, "precision": "fp32", **flags})
    return count_step(config, num_micro_batches, lone_runtime)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("num_micro_batches", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_host_waits_for_nothing_in_a_step(lone_runtime, num_micro_batches, optimizer):
    work = count(lone_runtime, num_micro_batches, optimizer=optimizer)[0]
    assert work.num_waits == 0, work.events
    # Six arrays of each micro-batch; after the message the verdict.
    arrays = ["copy to device without waiting"] * 6 * num_micro_batches
    assert work.events == [*arrays, "message", "copy to host without waiting"]


def test_a_further_micro_batch_and_a_step_launch_no_more_than_they_did(lone_runtime):
    """With two blocks. Each parameter was once hooked, normed and clipped."""
    one, three = (count(lone_runtime, number)[0].num_launches for number in (1, 3))
    a_pass = (three - one) / 2
    assert a_pass <= 160
    assert one - a_pass <= 35


@pytest.mark.parametrize(("stage", "operations", "waits"), BIG)
def test_a_step_of_20x256_asks_for_no_more_than_the_guide_lists(lone_runtime, stage, operations, waits):
    flags = {"zero_stage": stage, "batch_size": 64, "precision": "fp32", "validation_interval": 0}
    config = load_config("chess_20x256", {**flags, **PLAIN, "log_interval": 100})
    work = count_step(config, 1, lone_runtime)[0]
    assert (work.num_launches, work.num_waits) == (operations, waits)


@pytest.mark.parametrize("network", [PLAIN, {}])
def test_a_step_of_20x256_whose_passes_are_recorded_asks_for_126_operations_beside_them(
    lone_runtime, network
):
    """A recording is one launch. Squeeze-excitation and the attention head add to the recordings alone."""
    flags = {"zero_stage": 1, "batch_size": 64, "precision": "fp32", "validation_interval": 0, **network}
    config = load_config("chess_20x256", {**flags, "log_interval": 100})
    work, engine = count_step(config, 1, lone_runtime)
    mode = Counting()
    with meta_device_as_cuda(mode), mode:
        packed_BN = torch.zeros((64, engine.network.spec.packed_bytes), dtype=torch.uint8, device=META)
        policy_BA, wdl_B3, _ = engine._module._pass(packed_BN)
        ends = (policy_BA, wdl_B3)
        torch.autograd.grad(ends, list(engine.network.parameters()), [torch.empty_like(end) for end in ends])
    assert 320 < mode.work.num_launches == work.num_launches - (120 if network else 126)


@pytest.mark.parametrize(("trained_by", "operations"), [("", 876), (TRITON, 777)])
def test_a_step_of_20x256_with_squeeze_excitation(lone_runtime, monkeypatch, trained_by, operations):
    """Each of Triton's kernels is one operation."""
    monkeypatch.setattr(SqueezeExcitation, "trained_by", trained_by)
    monkeypatch.setattr(layers, "_call", lambda name, *tensors: tensors[-1].zero_())
    flags = {"batch_size": 64, "precision": "fp32", "validation_interval": 0, "log_interval": 100}
    config = load_config("chess_20x256", {**flags, **PLAIN, "se_ratio": 8})
    assert count_step(config, 1, lone_runtime)[0].num_launches == operations


def test_a_norm_is_taken_of_all_gradients_at_once(lone_runtime):
    operations = count(lone_runtime)[0].operations
    assert operations["linalg_vector_norm"] == 1  # whether it is finite
    assert operations["_foreach_norm"] == 1  # how long it is
    assert operations["_fused_adamw_"] == 2  # with decay and without


def test_all_that_a_network_computes_with_is_on_the_device(lone_runtime):
    engine = count(lone_runtime, ema_decay="0.9")[1]
    mode = Counting()
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
