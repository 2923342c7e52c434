"""One line of `bench gpu`: what is measured, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """A measurement. kind: who makes it (worker.MEASURES); name: unique among the rows of a document.

    expected_s: what it may take on an H100, until rows of its `pace` have shown better: "compiled" takes
    other times than "training".
    """

    kind: str
    name: str
    settings: Mapping[str, object]
    expected_s: float
    pace: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a row: figures, or an error, or the reason why it was left out."""

    row: Row
    seconds: float = 0.0
    figures: Mapping[str, object] = field(default_factory=dict)
    error: str = ""
    dropped: str = ""

    def as_json(self) -> dict[str, object]:
        """For the document; an error stands beside the settings that caused it."""
        told = {"error": self.error, "dropped": self.dropped}
        return {
            "kind": self.row.kind,
            "name": self.row.name,
            "settings": dict(self.row.settings),
            "seconds": round(self.seconds, 2),
            "figures": dict(self.figures),
            **{key: text for key, text in told.items() if text},
        }
