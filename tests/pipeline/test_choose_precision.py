"""`--precision auto`: what all devices of a job compute in, as ds_config.json allows."""

from types import SimpleNamespace

import pytest
import torch

from alphazero.config import TrainingConfig
from alphazero.network import precision
from alphazero.network.precision import fast_precisions
from alphazero.pipeline.precision_choice import choose_precision
from tests.support.jobs.jobs import state_of

NEW_GPU, OLD_GPU = ("bf16", "fp16", "fp32"), ("fp16", "fp32")
NEW_CPU, OLD_CPU = ("bf16", "fp32"), ("fp32",)


def chosen(asked: str, ranks: tuple[tuple[str, ...], ...], off: frozenset[str] = frozenset()):
    training = TrainingConfig(precision=asked)
    exchange = SimpleNamespace(gather=lambda own: [list(names) for names in ranks])
    training, notices = choose_precision(training, off, torch.device("cpu"), exchange)
    return training.precision, notices


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((NEW_GPU, NEW_GPU), "bf16"),
        ((NEW_GPU, OLD_GPU), "fp16"),
        ((NEW_CPU,), "bf16"),
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
    """auto is settled at the start: checkpoints and config.json name the precision itself."""
    wanted = fast_precisions(torch.device("cpu"))[0]
    for steps in ("2", "3"):
        output = zygote.run_job(tmp_path, random_store, 1, "--steps", steps, "--precision", "auto")
        assert "changed arithmetic" not in output
        assert f"precision         {wanted}" in output
    assert state_of(tmp_path, ".", 3)["precision"] == wanted
