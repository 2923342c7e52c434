"""An alarm: what goes wrong slowly, by how much, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alarm:
    """What a rule finds in one interval; people hear of it when it holds for several in a row (desk.py).

    cause: one of config.ALARMS, by which it is muted. text: what was measured, and against what it is judged.
    advice: what to do. reason: tells alarms of one cause apart that are worth a line each within the hour.
    subject: the rank or host concerned, which must be the same in all intervals in a row.
    """

    cause: str
    text: str
    advice: str
    reason: str = ""
    subject: str = ""
