"""Kernels on GPUs are one choice for all ranks, by time, kept by the run; a change is said."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from alphazero.network.inference import kernels
from alphazero.network.inference.kernels import ATTENTION_KERNELS, CUDNN, CUDNN_TRITON, OPERATORS
from alphazero.network.model.attention import COMPILED, COMPILED_PLAIN, AttentionBody
from alphazero.network.model.layers import TRITON, SqueezeExcitation
from alphazero.network.weights.checkpoint import TrainingState
from alphazero.settings.load import Config, load_config
from alphazero.training.engine import planner
from alphazero.training.engine.planner import choose_kernels, choose_training_kernels

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
SELF_PLAY = load_config("", {"mode": "selfplay"})
SAVED = TrainingState(8, 16, 0, 32, 8, "", 1, {})


class TwoRanks:
    """This rank and a second one on a GPU, which lacks the kernels named and measures `there`, in ms."""

    def __init__(self, lacks: tuple[str, ...], there: Mapping[str, float]) -> None:
        self.lacks, self.there, self.asked = lacks, there, []

    def numbers(self, own: int) -> list[int]:
        return [own, 1]

    def on_each(self, action: Callable[[], Any]) -> Any:
        return action()

    def gather(self, own: tuple[str, float]) -> list[list[object]]:
        asked = self.asked[-1]
        return [
            list(own),
            ["no such thing" if asked in self.lacks else "", self.there.get(asked, 2.0) / 1000],
        ]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Chooses where this rank and the other one lack kernels; the choice of this process and the lines.

    times: milliseconds of this rank and of the other one, by kernels; all else takes 2.
    """

    def run(
        here: tuple[str, ...],
        there: tuple[str, ...],
        saved: str | None,
        times: tuple[Mapping[str, float], Mapping[str, float]] = (
            {CUDNN: 1, TRITON: 1},
            {CUDNN: 1, TRITON: 1},
        ),
        config: Config = SELF_PLAY,
        what: str = "kernels",
    ) -> tuple[str, list[str]]:
        ranks = TwoRanks(there, times[1])

        def trial(make_pass: object, dtype: object, timed_on: object, kernels: str) -> tuple[str, float]:
            ranks.asked.append(kernels)
            return "no compiler" if kernels in here else "", times[0].get(kernels, 2.0) / 1000

        monkeypatch.setattr(planner, "trial", trial)
        monkeypatch.setattr(planner, "evaluation_passes", lambda *rest: None)
        monkeypatch.setattr(planner, "squeeze_passes", lambda *rest: None)
        monkeypatch.setattr(planner, "attention_passes", lambda *rest: None)
        state = None if saved is None else dataclasses.replace(SAVED, **{what: saved})
        if what == "kernels":
            lines = choose_kernels(config, CUDA, state, ranks)  # type: ignore[arg-type]
            return kernels.kernels_in_use(), lines
        lines = choose_training_kernels(config, CUDA, state, ranks)  # type: ignore[arg-type]
        return (AttentionBody if what == "attention" else SqueezeExcitation).trained_by, lines

    yield run
    kernels.use_kernels("")
    SqueezeExcitation.trained_by = AttentionBody.trained_by = ""


@pytest.mark.parametrize(
    ("here", "there", "chosen"),
    [
        ((), (), CUDNN),
        ((), (CUDNN,), OPERATORS),
        ((CUDNN,), (), OPERATORS),
    ],
)
def test_the_fastest_kernels_that_every_rank_has_are_chosen_for_all(choose, here, there, chosen):
    kernels_of_all, lines = choose(here, there, None)
    assert kernels_of_all == chosen
    assert lines[-1].startswith(f"evaluations by {chosen} kernels")
    if there:
        assert any("1: no such thing" in line for line in lines)


def test_a_resumed_run_keeps_its_kernels_though_faster_ones_are_there(choose):
    assert choose((), (), OPERATORS) == (OPERATORS, ["evaluations by operators kernels"])


def test_devices_that_cannot_keep_them_say_that_games_will_differ(choose):
    chosen, lines = choose((), (CUDNN,), CUDNN)
    assert chosen == OPERATORS
    assert lines[-1].endswith("kernels, were cudnn: games will differ")


def test_a_deterministic_run_times_nothing(choose):
    config = load_config("", {"mode": "selfplay", "deterministic": True})
    times = {CUDNN: 5, OPERATORS: 1}
    assert choose((), (), None, (times, times), config) == (CUDNN, ["evaluations by cudnn kernels"])
    assert choose((CUDNN,), (), None, (times, times), config)[0] == OPERATORS


def test_the_slowest_rank_decides_which_kernels_are_the_fastest(choose):
    chosen, lines = choose((), (), None, ({CUDNN: 1, OPERATORS: 2}, {CUDNN: 4, OPERATORS: 3}))
    assert (chosen, lines) == (OPERATORS, ["evaluations by operators kernels (cudnn 4 ms, operators 3 ms)"])


def test_evaluations_with_squeeze_excitation_may_be_by_triton_too(choose):
    times = {CUDNN: 2, OPERATORS: 3, CUDNN_TRITON: 1}
    squeezed = load_config("", {"mode": "selfplay", "se_ratio": 8})
    assert choose((), (), None, (times, times), squeezed)[0] == CUDNN_TRITON
    assert choose((), (), None, (times, times))[0] == CUDNN
    assert choose((), (CUDNN_TRITON,), None, (times, times), squeezed)[0] == CUDNN


SQUEEZE = {"config": load_config("", {"se_ratio": 4, "precision": "bf16"}), "what": "squeeze"}


@pytest.mark.parametrize(
    ("here", "there", "times", "chosen"),
    [
        ((), (), {TRITON: 1}, TRITON),
        ((), (), {TRITON: 3}, OPERATORS),
        ((TRITON,), (), {}, OPERATORS),
        ((), (TRITON,), {}, OPERATORS),
    ],
)
def test_squeeze_excitation_is_trained_by_what_is_right_on_all_ranks_and_fastest(
    choose, here, there, times, chosen
):
    found, lines = choose(here, there, None, (times, times), **SQUEEZE)
    assert found == chosen
    assert lines[-1].startswith(f"squeeze-excitation in training by {chosen} kernels")
    if here or there:
        assert lines[0].startswith("no triton kernels for squeeze-excitation in training: rank ")


@pytest.mark.parametrize("saved", [OPERATORS, TRITON])
def test_a_resumed_run_trains_squeeze_excitation_as_before(choose, saved):
    times = {OPERATORS: 1, TRITON: 1, saved: 5}
    line = f"squeeze-excitation in training by {saved} kernels"
    assert choose((), (), saved, (times, times), **SQUEEZE) == (saved, [line])


def test_a_run_that_knew_no_such_choice_goes_on_with_the_operators(choose):
    assert choose((), (), "", **SQUEEZE)[0] == OPERATORS


def test_without_triton_a_run_that_was_trained_by_it_says_that_its_arithmetic_changes(choose):
    chosen, lines = choose((), (TRITON,), TRITON, **SQUEEZE)
    assert chosen == OPERATORS
    assert lines[-1].startswith("changed arithmetic: ") and lines[-1].endswith("were triton")


@pytest.mark.parametrize("flags", [{"se_ratio": 0}, {"se_ratio": 4, "compile": True}])
def test_plain_towers_and_compiled_ones_have_no_such_choice(choose, flags):
    config = load_config("", flags)
    assert choose((), (), None, config=config, what="squeeze") == ("", [])


def attention(**flags: object) -> dict[str, object]:
    body = {"body": "attention", "policy_head": "attention", "precision": "bf16"}
    return {"config": load_config("", body | flags), "what": "attention"}


@pytest.mark.parametrize("chosen", ATTENTION_KERNELS)
def test_attention_is_trained_and_evaluated_by_the_fastest_of_three(choose, chosen):
    times = {chosen: 1}
    found, lines = choose((), (), None, (times, times), **attention())
    assert found == chosen and lines[-1].startswith(f"attention in training by {chosen} kernels (")
    evaluated = attention(mode="selfplay")["config"]
    found, lines = choose((), (), None, (times, times), evaluated)
    assert found == chosen and lines[-1].startswith(f"evaluations by {chosen} kernels (")


def test_attention_that_cannot_be_compiled_is_computed_by_operators(choose):
    found, lines = choose((COMPILED,), (COMPILED_PLAIN,), None, ({}, {}), **attention())
    assert found == OPERATORS and len(lines) == 3


def test_a_resumed_run_trains_attention_as_before_unless_it_is_asked_otherwise(choose):
    saved = choose((), (), COMPILED, ({COMPILED: 9}, {}), **attention())
    assert saved == (COMPILED, ["attention in training by compiled kernels"])
    assert choose((), (), "", **attention())[0] == OPERATORS
    for compile_asked in (False, True):
        assert choose((), (), COMPILED_PLAIN, **attention(compile=compile_asked)) == ("", [])


class Alone:
    def on_each(self, action: Callable[[], Any]) -> Any:
        return action()

    def numbers(self, own: int) -> list[int]:
        return [own]


def on_a_cpu(saved: TrainingState) -> list[str]:
    return choose_kernels(SELF_PLAY, CPU, saved, Alone())  # type: ignore[arg-type]


def test_ranks_on_cpus_have_no_such_choice():
    assert on_a_cpu(SAVED) == []
    assert kernels.kernels_in_use() == ""


def test_a_run_that_moves_to_cpus_says_that_games_will_differ_and_remembers_its_kernels():
    try:
        (line,) = on_a_cpu(dataclasses.replace(SAVED, kernels=CUDNN))
        assert "changed arithmetic" in line and "cudnn" in line
        assert kernels.kernels_in_use() == CUDNN
    finally:
        kernels.use_kernels("")
