"""Who gets which share of the batch, and micro-batches that fit into memory."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import TrainingState
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig, TrainingConfig
from alphazero.training.engine import planner
from alphazero.training.engine.planner import choose_plan, host_weight
from alphazero.training.engine.probe import (
    largest_that_fits,
)
from alphazero.training.ranks.batch import micro_batch_sizes
from alphazero.training.ranks.runtime import read_runtime

NOTHING = DeepSpeedSettings()


@pytest.mark.parametrize(
    ("flags", "told", "weight"),
    [((), None, 1.0), (("a=2", "b=3"), None, 2.0), (("b=3",), "0.5", 0.5), (("a=2",), "2.0", 2.0)],
)
def test_the_weight_of_a_host_comes_from_flag_or_hostfile(flags, told, weight):
    environment = {} if told is None else {"ALPHAZERO_HOST_WEIGHT": told}
    assert host_weight(TrainingConfig(host_weights=flags), "a", environment) == weight


@pytest.mark.parametrize(
    ("flags", "told", "message"),
    [
        (("a=2",), "3", "--host-weights a=2 contradicts weight=3"),
        (("a=0",), None, "expected a weight above 0"),
        ((), "inf", "expected a number above 0"),
        ((), "x", "ALPHAZERO_HOST_WEIGHT='x'"),
    ],
)
def test_weights_that_cannot_be_are_refused(flags, told, message):
    environment = {} if told is None else {"ALPHAZERO_HOST_WEIGHT": told}
    with pytest.raises(ConfigError, match=message):
        host_weight(TrainingConfig(host_weights=flags), "a", environment)


@pytest.mark.parametrize("entry", ["a", "a=", "=2", "a=x", "a=-1"])
def test_a_weight_of_another_form_is_refused_with_the_flag(entry):
    with pytest.raises(ConfigError, match=r"--host-weights: .*expected HOST=WEIGHT"):
        load_config("", {"host_weights": [entry]})


@pytest.mark.parametrize("most", [0, 1, 5, 16, 47, 96, 1000])
def test_the_search_finds_the_largest_that_fits(most):
    sizes = micro_batch_sizes(96)
    expected = max((size for size in sizes if size <= most), default=None)
    assert largest_that_fits(sizes, lambda size: size <= most) == expected


def planned(
    ranks: int,
    saved: TrainingState | None = None,
    deepspeed: DeepSpeedSettings = NOTHING,
    device: str = "cpu",
    **training: int | str,
):
    """choose_plan on `ranks` ranks that agree, as a plan and the lines about it."""
    config = load_config("", {name: str(value) for name, value in training.items()}, deepspeed)
    exchange = SimpleNamespace(
        gather=lambda value: [value] * ranks,
        numbers=lambda value: [value] * ranks,
        on_each=lambda action: action(),
    )
    ranked = {"world_size": ranks, "local_world_size": ranks}
    runtime = dataclasses.replace(read_runtime({}, "cpu"), device=torch.device(device), **ranked)
    network = AlphaZeroNet(NetworkConfig(blocks=1, filters=8), get_spec("chess"))
    return choose_plan(config, runtime, network, saved, exchange)


def saved_state(micro_batch_size: int = 256, num_threads: int = 0) -> TrainingState:
    """Of a checkpoint at step 5 of a run of batch 1024."""
    return TrainingState(5, 9, 0, 1024, micro_batch_size, "window", 1, {}, num_threads=num_threads)


def test_auto_on_cpus_is_the_size_that_is_chosen_unasked():
    assert planned(2, batch_size=2048, micro_batch_size="auto")[0] == planned(2, batch_size=2048)[0]


def test_idle_ranks_are_told_at_the_start_and_a_resume_gets_no_advice_it_could_not_follow():
    _, notices = planned(12, batch_size=1024)
    (line,) = (line for line in notices if "idle" in line)
    assert line.startswith("33 %") and "--batch-size 1020 or 1032" in line
    _, notices = planned(3, saved_state(), batch_size=1024)
    (line,) = (line for line in notices if "idle" in line)
    assert line.startswith("33 %") and "--batch-size" not in line
    assert line.endswith("; --micro-batch-size 32 keeps all busy and changes the arithmetic")


def test_a_resume_keeps_its_micro_batch_however_small_and_with_whatever_ranks():
    for micro_batch_size in (1, 256):
        plan, notices = planned(3, saved_state(micro_batch_size), batch_size=1024)
        assert plan.micro_batch_size == micro_batch_size
        assert not [line for line in notices if "micro-batches of" in line and "idle" not in line]


def test_on_gpus_only_memory_makes_micro_batches_smaller(monkeypatch):
    """The number of ranks does not: a resumed run and a request keep their size."""
    monkeypatch.setattr(planner, "reserve_bytes", lambda *_: 0)
    monkeypatch.setattr(planner, "fits", lambda *_: True)
    plan, notices = planned(2, saved_state(1024), batch_size=1024, device="cuda")
    assert plan.micro_batch_size == 1024 and not [line for line in notices if "changed" in line]
    assert planned(2, batch_size=1024, micro_batch_size=1024, device="cuda")[0].micro_batch_size == 1024
    for size in ("auto", "0"):
        plan, _ = planned(3, batch_size=4096, micro_batch_size=size, device="cuda")
        assert plan.micro_batch_size == 512
    monkeypatch.setattr(planner, "fits", lambda *given: given[3] <= 300)
    plan, notices = planned(2, saved_state(1024), batch_size=1024, device="cuda")
    assert (
        plan.micro_batch_size == 256 and "micro-batches of 1024 do not fit into device memory" in notices[0]
    )


def test_auto_does_not_end_in_tiny_micro_batches():
    with pytest.raises(ConfigError, match=r"--batch-size 1021: .*256"):
        planned(4, batch_size=1021, micro_batch_size="auto")


def test_a_resume_with_other_threads_says_so():
    threads = torch.get_num_threads()
    change = f"changed: threads per rank {threads + 1} -> {threads}; sums in fp32 differ in their last digits"
    assert change in planned(1, saved_state(num_threads=threads + 1), batch_size=1024)[1]
    notices = planned(1, saved_state(num_threads=threads), batch_size=1024)[1]
    assert not [line for line in notices if "threads" in line]


@pytest.mark.slow
def test_a_run_with_auto_is_resumed_with_the_size_it_had(zygote, tmp_path, random_store):
    auto = ("--micro-batch-size", "auto", "--batch-size", "96")
    output = zygote.run_job(tmp_path, random_store, 2, "--steps", "2", *auto)
    assert "96 = 2 micro-batches" in output
    output = zygote.run_job(tmp_path, random_store, 1, "--steps", "4", *auto)
    assert "96 = 2 micro-batches" in output


@pytest.mark.parametrize(("limit", "passes"), [(10**9, (2, 1, 1)), (1000, (2, 2, 2))])
@pytest.mark.parametrize("stage", [2, 3])
def test_passes_are_equal_where_deepspeed_takes_each_gradient(stage, limit, passes):
    deepspeed = DeepSpeedSettings(zero_options={"reduce_bucket_size": limit})
    plan, _ = planned(3, deepspeed=deepspeed, batch_size=1024, micro_batch_size=256, zero_stage=stage)
    assert plan.passes == passes
