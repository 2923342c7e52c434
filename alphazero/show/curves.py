"""Curves for viewers: which figures, in which group, at which step, and each point once.

metrics.jsonl has every figure (docs/runs.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from alphazero.run.metrics import Field

_LOSSES_OF_A_STEP = '{"kind": "step",'
# In the order of interest.
TRAIN, VALIDATION, SELF_PLAY, SPEED, SYSTEM = "train", "validation", "selfplay", "speed", "system"
GROUPS = (TRAIN, VALIDATION, SELF_PLAY, SPEED, SYSTEM)

_GROUP_OF_KIND = {
    "step": TRAIN,
    "epoch": TRAIN,
    "validation": VALIDATION,
    "self_play": SELF_PLAY,
    "speed": SPEED,
    "time_share": SPEED,
    "gpu": SYSTEM,
    "health": SYSTEM,
}
_PREFIX_OF_KIND = {"epoch": "epoch_", "time_share": "share_of_time/"}
# Names and axes rather than figures.
_NO_CURVES = frozenset(
    {"sample_id_sum", "slowest_rank", "generation", "minutes", "num_positions", "ended_in_step"}
)
_GPU_PREFIX = "gpu/"  # of a generation: the devices while it was played


@dataclass(frozen=True)
class Point:
    """One point of the curve GROUP/NAME."""

    group: str
    name: str
    step: int
    value: float


@dataclass
class _Curve:
    """last_step: of the newest point, shown or not. has_begun: whether it has had a value other than zero."""

    last_step: int = -1
    has_begun: bool = False


class Curves:
    """Turns figures into points with growing steps: of several at one step the first is shown.

    A curve begins with its first value other than zero, so that what is always zero has no curve. The zeros
    before it are never shown: sent once the curve begins, they would be older than checkpoints from which a
    killed run resumes, and would be sent again.
    """

    def __init__(self) -> None:
        self._curves: dict[str, _Curve] = {}

    def take(self, kind: str, step: int, figures: Mapping[str, float]) -> list[Point]:
        """The points to show now."""
        shown = []
        for point in _points(kind, step, figures):
            curve = self._curves.setdefault(f"{point.group}/{point.name}", _Curve())
            if point.step <= curve.last_step:
                continue
            curve.last_step = point.step
            curve.has_begun = curve.has_begun or point.value != 0
            if curve.has_begun:
                shown.append(point)
        return shown

    def rewind(self, step: int) -> None:
        """Expect points after `step` once more."""
        for curve in self._curves.values():
            curve.last_step = min(curve.last_step, step)

    def restore(self, lines: Iterable[str], step: int) -> None:
        """Restore the state of earlier starts of the run at `step` from the lines of metrics.jsonl."""
        for text in lines:
            if text.startswith(_LOSSES_OF_A_STEP):
                continue  # never all zero, and far more than all others
            try:
                line: dict[str, Field] = json.loads(text)
                kind, at = str(line.pop("kind")), int(line.pop("step"))
                figures = {name: value for name, value in line.items() if isinstance(value, (int, float))}
                if all(point.step <= step for point in _points(kind, at, figures)):  # of one step
                    self.take(kind, at, figures)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
                continue  # damaged: read_metrics reports it


def _points(kind: str, step: int, figures: Mapping[str, float]) -> Iterator[Point]:
    """The figures that are curves, by group and name, at the step of training at which they stand.

    An epoch stands at the step that ended it, not at its number. A generation stands at the first step that
    trains on it: a run that resumes from the checkpoint of `step` plays it again, and a point at `step`
    could not be distinguished from those before that checkpoint.
    """
    group = _GROUP_OF_KIND.get(kind)
    if group is None:
        return
    at = step + 1 if kind == "self_play" else step
    if kind == "epoch":
        at = int(figures.get("ended_in_step", step))
    prefix = _PREFIX_OF_KIND.get(kind, "")
    for name, value in figures.items():
        if name in _NO_CURVES:
            continue
        if kind == "self_play" and name.startswith(_GPU_PREFIX):
            yield Point(SYSTEM, f"selfplay_{name.removeprefix(_GPU_PREFIX)}", at, value)
        else:
            yield Point(group, prefix + name, at, value)
