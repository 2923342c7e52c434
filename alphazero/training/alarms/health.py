"""Faults that the watch of a host finds: each is told once, at once."""

from __future__ import annotations

from alphazero.health.findings import Finding
from alphazero.training.alarms.alarm import Alarm

CAUSE = "health"


def health_alarm(finding: Finding) -> Alarm:
    """The finding as an alarm; those of unlike devices, names or severities are told apart."""
    kind = f"{finding.device} {finding.name} {finding.severity.word}"
    return Alarm(CAUSE, finding.matter, finding.advice, reason=kind)
