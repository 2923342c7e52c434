"""A network that loses packets: TCP segments that a host has to send again."""

from __future__ import annotations

from alphazero.training.alarms.alarm import Alarm
from alphazero.training.usage.host_board import HostNow

CAUSE = "network"
# Of the segments sent, as the preflight's retransmitted_warn: a healthy local network loses under 0.01 %, and
# TCP is several times slower at 1 %.
MOST_RETRANSMITTED = 0.01
# Segments of an interval behind a judgement.
LEAST_SEGMENTS = 1000


class Network:
    """Remembers the counters of each host."""

    def __init__(self) -> None:
        self._before: dict[str, HostNow] = {}

    def look(self, hosts: list[HostNow]) -> list[Alarm]:
        """Judge by what the hosts sent since the last reading; a job on one host uses no network."""
        found = []
        for now in hosts if len(hosts) > 1 else []:
            before = self._before.get(now.host, now)
            self._before[now.host] = now
            sent, again = now.segments - before.segments, now.retransmitted - before.retransmitted
            if sent >= LEAST_SEGMENTS and again > MOST_RETRANSMITTED * sent:
                found.append(_alarm(now.host, sent, again))
        return found


def _alarm(host: str, sent: float, again: float) -> Alarm:
    return Alarm(
        CAUSE,
        f"{host} had to send {again:,.0f} of {sent:,.0f} TCP segments again ({again / sent:.1%}, limit "
        f"{MOST_RETRANSMITTED:.0%})",
        "check that host's cable, switch port and MTU (ip -s link), and whether others fill the network",
        subject=host,
    )
