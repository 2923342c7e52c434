"""Whom the head blames of those that failed on several hosts, and how long it says that ranks load."""

from types import SimpleNamespace
from typing import Any

import pytest

from alphazero.launch.blame import order_in_job
from alphazero.launch.head.attempt import Attempt, StartOutcome
from alphazero.run.rank import Failure


def report(at: float, kind: str, rank: int | None = 0, cause: str = "", status: int = 1) -> Failure:
    return Failure("host", rank, "ended", cause, "/log", status, kind, at=at)


@pytest.mark.parametrize(
    ("blamed", "others"),
    [
        # The sentence says nothing, the kind all.
        (
            report(2.0, "crash", cause="Connection closed by peer"),
            [report(1.0, "lost connection")],
        ),
        (report(2.0, "data"), [report(1.0, "crash"), report(0.5, "lost connection")]),
        (report(2.0, "training", status=3), [report(1.0, "", status=1)]),
        (report(3.0, "signal", status=137), [report(1.0, "config", status=2), report(2.0, "terminated")]),
        (report(3.0, "", rank=None, cause="Connection refused"), [report(1.0, "config", status=2)]),
        (report(3.0, "hang", status=124), [report(1.0, "crash")]),
        (report(1.0, "crash"), [report(2.0, "crash"), report(1.5, "")]),
        (report(1.0, ""), [report(0.5, "lost connection"), report(0.6, "terminated", status=134)]),
    ],
)
def test_the_order_of_blame_is_by_kind_and_then_by_time(blamed: Failure, others: list[Failure]):
    assert min([*others, blamed], key=order_in_job) is blamed


def test_that_ranks_load_is_said_until_they_are_asked_to_stop():
    lines: list[str] = []
    attempt: Any = object.__new__(Attempt)
    attempt.plan, attempt.say = SimpleNamespace(is_by_hand=False), lines.append
    attempt._starting = SimpleNamespace(seconds=9.0, line=lambda: "9 s so far")
    attempt._states, attempt._outcome = {}, StartOutcome()
    for attempt._stop_sent in (False, True):
        attempt._next_word_s = 5.0
        attempt._show_start()
    assert lines == ["9 s so far"]
