"""`--precision auto`: what all devices of a job compute in, as ds_config.json allows."""

from types import SimpleNamespace

import pytest
import torch

from alphazero.network.model import precision
from alphazero.network.model.precision import fast_precisions
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config
from alphazero.settings.sections import TrainingConfig
from alphazero.training.engine.planner import choose_precision
from tests.support.jobs.jobs import state_of

NEW_GPU, OLD_GPU = ("bf16", "fp16", "fp32"), ("fp16", "fp32")
NEW_CPU, OLD_CPU = ("bf16", "fp32"), ("fp32",)


def chosen(
    asked: str,
    ranks: tuple[tuple[str, ...], ...],
    off: frozenset[str] = frozenset(),
    saved: str = "",
    by_flag: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """On ranks whose devices have these precisions."""
    exchange = SimpleNamespace(gather=lambda own: list(ranks))
    config = Config(
        training=TrainingConfig(precision=asked),
        deepspeed=DeepSpeedSettings(precisions_off=off),
        set_by_flag=frozenset({"precision"} if by_flag else ()),
    )
    return choose_precision(config, torch.device("cpu"), saved, exchange)


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
    assert len(notices) == (expected != "bf16")
    assert all(line.endswith(f"training in {expected}") for line in notices)


def test_a_precision_of_the_checkpoint_that_is_not_to_be_had_is_not_kept():
    assert chosen("auto", (OLD_CPU,), saved="bf16")[0] == "fp32"
    assert chosen("auto", (NEW_CPU,), frozenset({"bf16"}), saved="bf16")[0] == "fp32"
    assert chosen("auto", (NEW_CPU,), saved="fp16")[0] == "bf16"


@pytest.mark.parametrize("ranks", [(NEW_GPU,), (NEW_CPU,)])
def test_the_checkpoint_does_not_decide_where_auto_was_asked_for(ranks):
    assert chosen("auto", ranks, saved="fp32", by_flag=True)[0] == "bf16"
    assert chosen("auto", ranks, saved="fp32")[0] == "fp32"


def test_what_ds_config_switches_off_is_not_taken():
    assert chosen("auto", (NEW_GPU,), frozenset({"bf16"}))[0] == "fp16"
    assert chosen("auto", (NEW_CPU,), frozenset({"bf16"}))[0] == "fp32"


@pytest.mark.parametrize("asked", ["fp32", "bf16", "fp16"])
def test_a_named_precision_stays(asked):
    assert chosen(asked, (OLD_CPU,)) == (asked, ())


@pytest.mark.parametrize(
    ("instructions", "threads", "expected"),
    [
        ({"amx_bf16"}, 2, NEW_CPU),
        ({"avx512_bf16"}, 1, NEW_CPU),
        ({"avx512_bf16"}, 2, OLD_CPU),
        ({"avx512_f"}, 1, OLD_CPU),
    ],
)
def test_a_cpu_computes_in_bf16_where_that_is_faster(monkeypatch, instructions, threads, expected):
    monkeypatch.setattr(precision, "has_onednn_bf16", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert fast_precisions(torch.device("cpu")) == expected


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, NEW_GPU), (False, OLD_GPU)])
def test_a_gpu_that_only_emulates_bf16_trains_in_fp16(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or has_bf16
    )
    assert fast_precisions(torch.device("cuda")) == expected


def test_a_run_stores_what_it_was_and_goes_on_with_it(monkeypatch, zygote, tmp_path, random_store):
    """auto is settled once, at the start: checkpoints and config.json name the precision itself."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # as in the job
    output = zygote.run_job(tmp_path, random_store, 1, "--steps", "2", "--precision", "auto")
    settled = state_of(tmp_path, ".", 2)["precision"]
    assert settled in fast_precisions(torch.device("cpu"))
    assert f"precision         {settled}" in output
    assert "as in the checkpoint" not in output
    output = zygote.run_job(tmp_path, random_store, 1, "--steps", "3", "--precision", "auto")
    assert "changed arithmetic" not in output
    assert f"precision         {settled}" in output
    assert state_of(tmp_path, ".", 3)["precision"] == settled
