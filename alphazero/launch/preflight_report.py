"""What the ranks of a preflight report, compared: shared by the program and the head that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.base.text import counted
from alphazero.machine.machine import processors_text


@dataclass(frozen=True)
class RankRecord:
    """One rank; facts: versions and digests of files by name, which are alike in a healthy job."""

    rank: int
    host: str
    facts: dict[str, str]


@dataclass(frozen=True)
class PreflightFault:
    """A line that says what is wrong; rank: whose host is at fault, None for no host's."""

    line: str
    rank: int | None = None
    is_failure: bool = True


@dataclass(frozen=True)
class PreflightReport:
    """The whole job; gb_s: speed of an all-reduce of num_bytes, 0 where differences kept ranks from it."""

    backend: str
    num_ranks: int
    num_hosts: int
    num_bytes: int
    gb_s: float
    faults: tuple[PreflightFault, ...] = ()
    format: str = "alphazero-preflight"
    version: int = 2

    @property
    def failures(self) -> list[PreflightFault]:
        """The faults that keep the job from starting."""
        return [fault for fault in self.faults if fault.is_failure]

    @property
    def lines(self) -> tuple[str, ...]:
        """One about the job where it may start, and one for each fault."""
        lines = []
        if not self.failures:
            hosts = f"{counted(self.num_ranks, 'rank')} on {counted(self.num_hosts, 'host')}"
            size = f"all-reduce of {self.num_bytes >> 20} MiB"
            lines.append(f"preflight: {hosts}, {self.backend}: {size} at {self.gb_s:.2f} GB/s")
        for fault in self.faults:
            lines.append(f"{'error' if fault.is_failure else 'warning'}: preflight: {fault.line}")
        return tuple(lines)


def differences(records: Sequence[RankRecord]) -> list[PreflightFault]:
    """A fault for each fact in which a host differs from most ranks; of equals the lowest rank is right."""
    faults: dict[str, PreflightFault] = {}
    for name in dict.fromkeys(name for record in records for name in record.facts):
        ranks_by_value: dict[str, list[int]] = {}
        for record in records:
            ranks_by_value.setdefault(record.facts.get(name, "missing"), []).append(record.rank)
        usual = max(ranks_by_value, key=lambda value: len(ranks_by_value[value]))
        most = processors_text(frozenset(ranks_by_value.pop(usual)))
        for value, ranks in ranks_by_value.items():
            for rank in ranks:
                line = f"{records[rank].host}: {name} {value}; expected {usual} as on ranks {most}"
                faults.setdefault(line, PreflightFault(line, rank))
    return list(faults.values())
