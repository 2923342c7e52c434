"""Findings of a check of a GPU, host or job, how bad they are, and the exit status that follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum


class Severity(IntEnum):
    """From good to bad; `unknown` is what could not be read, which is neither good nor a fault."""

    OK = 0
    UNKNOWN = 1
    WARN = 2
    FAIL = 3

    @property
    def word(self) -> str:
        """ok, unknown, warn or fail, as in JSON."""
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    """One check of one device, of the host itself (`device` and `uuid` empty) or of a rank ("rank3").

    name: what was checked, with its unit (temperature_c). value: what was read, None where unknown.
    threshold: the limit that decided, None where there is none.
    advice: what to do, or why the value is unknown; one line, empty where all is well.
    """

    severity: Severity
    host: str
    device: str
    uuid: str
    name: str
    value: float | str | None
    threshold: float | str | None
    advice: str

    @property
    def matter(self) -> str:
        """How bad, where, and what was found."""
        device = f" {self.device}" if self.device else ""
        uuid = f" ({self.uuid})" if self.uuid else ""
        return f"{self.severity.word}: {self.host}{device}{uuid}: {self.name} = {self.value_text}"

    @property
    def value_text(self) -> str:
        """The value and its limit, for people."""
        value = "?" if self.value is None else shown(self.value)
        return value if self.threshold is None else f"{value} (limit {shown(self.threshold)})"

    def line(self) -> str:
        """For a log: host, device and UUID, what was found and what to do."""
        return f"health {self.matter}: {self.advice}"

    def to_json(self) -> dict[str, object]:
        """The keys of docs/health.md."""
        named = {"severity": self.severity.word, "device": self.device or None, "uuid": self.uuid or None}
        return asdict(self) | named


def shown(value: float | str) -> str:
    """Numbers with at most three digits after the point, without trailing zeros."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity; OK where there is no finding."""
    return max((finding.severity for finding in findings), default=Severity.OK)


def exit_status(findings: Iterable[Finding], *, strict: bool = True) -> int:
    """0 healthy (unknowns included), 1 with warnings if they are to count (strict), 2 with failures."""
    return {Severity.WARN: int(strict), Severity.FAIL: 2}.get(worst(findings), 0)
