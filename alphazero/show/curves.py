"""Curves for viewers: which figures, in which group, and at which step.

metrics.jsonl has every figure (docs/runs.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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


def points_of(kind: str, step: int, figures: Mapping[str, float]) -> Iterator[Point]:
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
