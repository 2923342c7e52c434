"""Kernels of evaluations on GPUs are one choice for all ranks, kept by the run; a change is said."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from alphazero.network.inference import kernels
from alphazero.network.inference.kernels import CUDNN, OPERATORS
from alphazero.network.weights.checkpoint import TrainingState
from alphazero.settings.load import load_config
from alphazero.training.engine import planner
from alphazero.training.engine.planner import choose_kernels

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
SELF_PLAY = load_config("", {"mode": "selfplay"})
SAVED = TrainingState(8, 16, 0, 32, 8, "", 1, {})


class TwoRanks:
    """This rank and a second one on a GPU, which lacks the kernels named and asks the same questions."""

    def __init__(self, lacks: tuple[str, ...]) -> None:
        self.lacks, self.asked = lacks, []

    def numbers(self, own: int) -> list[int]:
        return [own, 1]

    def on_each(self, action: Callable[[], Any]) -> Any:
        return action()

    def gather(self, own: str) -> list[str]:
        return [own, "no such thing" if self.asked[-1] in self.lacks else ""]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Chooses where this rank and the other one lack kernels; the choice of this process and the lines."""

    def run(here: tuple[str, ...], there: tuple[str, ...], saved: str | None) -> tuple[str, list[str]]:
        ranks = TwoRanks(there)

        def why_not(kernels: str, *rest: object) -> str:
            ranks.asked.append(kernels)
            return "no compiler" if kernels in here else ""

        monkeypatch.setattr(planner, "why_not", why_not)
        state = None if saved is None else dataclasses.replace(SAVED, kernels=saved)
        lines = choose_kernels(SELF_PLAY, CUDA, state, ranks)  # type: ignore[arg-type]
        return kernels.kernels_in_use(), lines

    yield run
    kernels.use_kernels("")


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
    assert f"evaluations by {chosen} kernels" in lines
    if there:
        assert any("1: no such thing" in line for line in lines)


def test_a_resumed_run_keeps_its_kernels_though_faster_ones_are_there(choose):
    assert choose((), (), OPERATORS) == (OPERATORS, ["evaluations by operators kernels"])


def test_devices_that_cannot_keep_them_say_that_games_will_differ(choose):
    chosen, lines = choose((), (CUDNN,), CUDNN)
    assert chosen == OPERATORS
    assert "kernels, were cudnn" in lines[-1]


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
