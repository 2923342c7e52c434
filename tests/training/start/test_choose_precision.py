"""`--precision auto`: what all devices of a job compute in, as ds_config.json allows."""

from types import SimpleNamespace

import pytest
import torch

from alphazero.network.model import precision
from alphazero.network.model.precision import fast_precisions, has_onednn_bf16
from alphazero.settings.sections import TrainingConfig
from alphazero.training.engine.planner import PrecisionChoice, choose_precision
from tests.support.jobs.jobs import state_of

NEW_GPU, OLD_GPU = ("bf16", "fp16", "fp32"), ("fp16", "fp32")
NEW_CPU, OLD_CPU = ("bf16", "fp32"), ("fp32",)


def choice(
    asked: str,
    ranks: tuple[tuple[str, ...], ...],
    off: frozenset[str] = frozenset(),
    saved: str = "",
    times: tuple[dict[str, float], ...] = (),
    keep_saved: bool = False,
) -> PrecisionChoice:
    """On ranks whose devices have these precisions; those without fp16 are CPUs, which take `times`."""
    devices = [{"device": "cuda" if "fp16" in names else "cpu", "fast": list(names)} for names in ranks]
    answers = iter((devices, list(times)))
    timed: list[tuple[str, ...]] = []

    def time_passes(names):
        assert times, "timed without need"
        timed.append(tuple(names))
        return times[0]

    exchange = SimpleNamespace(gather=lambda own: next(answers), barrier=lambda: None)
    cpu = torch.device("cpu")
    training = TrainingConfig(precision=asked)
    found = choose_precision(training, off, cpu, saved, time_passes, exchange, keep_saved=keep_saved)
    assert len(timed) == bool(times)
    return found


def chosen(asked: str, ranks: tuple[tuple[str, ...], ...], off: frozenset[str] = frozenset()):
    found = choice(asked, ranks, off)
    return found.precision, found.notices


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((NEW_GPU, NEW_GPU), "bf16"),
        ((NEW_GPU, OLD_GPU), "fp16"),
        ((NEW_GPU, NEW_CPU), "bf16"),
        ((NEW_CPU, OLD_CPU), "fp32"),
        ((NEW_GPU, OLD_CPU), "fp32"),
    ],
)
def test_auto_is_what_every_rank_has_and_says_so_where_it_is_not_bf16(ranks, expected):
    precision, notices = chosen("auto", ranks)
    assert precision == expected
    assert notices == (
        () if expected == "bf16" else (f"a device of this job has no fast bf16: training in {expected}",)
    )


@pytest.mark.parametrize(
    ("times", "expected", "reason"),
    [
        (({"bf16": 0.012, "fp32": 0.015},), "bf16", "auto: 12 ms per pass; fp32 15 ms"),
        (({"bf16": 0.015, "fp32": 0.012},), "fp32", "auto: 12 ms per pass; bf16 15 ms"),
        (
            ({"bf16": 0.01, "fp32": 0.02}, {"bf16": 0.03, "fp32": 0.02}),
            "fp32",
            "auto: 20 ms per pass; bf16 30 ms",
        ),
    ],
)
def test_auto_on_cpus_is_what_was_timed_on_the_slowest_rank(times, expected, reason):
    found = choice("auto", (NEW_CPU,) * len(times), times=times)
    assert (found.precision, found.reason, found.notices) == (expected, reason, ())


@pytest.mark.parametrize("saved", ["bf16", "fp32"])
def test_auto_on_cpus_keeps_the_precision_of_the_checkpoint_without_timing(saved):
    found = choice("auto", (NEW_CPU,), saved=saved)
    assert (found.precision, found.reason) == (saved, "auto: as in the checkpoint")


def test_a_precision_of_the_checkpoint_that_is_not_to_be_had_is_not_kept():
    assert choice("auto", (OLD_CPU,), saved="bf16").precision == "fp32"
    assert choice("auto", (NEW_CPU,), frozenset({"bf16"}), saved="bf16").precision == "fp32"
    times = ({"bf16": 0.012, "fp32": 0.015},)
    assert choice("auto", (NEW_CPU,), saved="fp16", times=times).precision == "bf16"


def test_on_gpus_the_checkpoint_does_not_decide_where_auto_was_asked_for():
    assert choice("auto", (NEW_GPU,), saved="fp32").precision == "bf16"


@pytest.mark.parametrize(("ranks", "expected"), [((NEW_GPU,), "fp16"), ((NEW_CPU, NEW_GPU), "bf16")])
def test_on_gpus_the_checkpoint_decides_where_nobody_asked(ranks, expected):
    found = choice("auto", ranks, saved="fp16", keep_saved=True)
    assert found.precision == expected


def test_what_ds_config_switches_off_is_not_taken():
    assert chosen("auto", (NEW_GPU,), frozenset({"bf16"}))[0] == "fp16"
    assert chosen("auto", (NEW_CPU,), frozenset({"bf16"}))[0] == "fp32"


@pytest.mark.parametrize("asked", ["fp32", "bf16", "fp16"])
def test_a_named_precision_stays(asked):
    assert chosen(asked, (OLD_CPU,)) == (asked, ())


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, NEW_CPU), (False, OLD_CPU)])
def test_a_cpu_has_bf16_where_onednn_has_it(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(precision, "has_onednn_bf16", lambda: has_bf16)
    assert fast_precisions(torch.device("cpu")) == expected


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, NEW_GPU), (False, OLD_GPU)])
def test_a_gpu_that_only_emulates_bf16_trains_in_fp16(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or has_bf16
    )
    assert fast_precisions(torch.device("cuda")) == expected


def test_a_run_stores_what_it_was_and_goes_on_with_it(zygote, tmp_path, random_store):
    """auto is settled once, at the start: checkpoints and config.json name the precision itself."""
    output = zygote.run_job(tmp_path, random_store, 1, "--steps", "2", "--precision", "auto")
    settled = state_of(tmp_path, ".", 2)["precision"]
    assert settled in fast_precisions(torch.device("cpu"))
    assert f"precision         {settled} (auto: " in output or not has_onednn_bf16()
    output = zygote.run_job(tmp_path, random_store, 1, "--steps", "3", "--precision", "auto")
    assert "changed arithmetic" not in output
    assert f"precision         {settled} (auto: as in the checkpoint)" in output
    assert state_of(tmp_path, ".", 3)["precision"] == settled
