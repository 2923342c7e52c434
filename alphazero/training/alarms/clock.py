"""Clocks that cannot be trusted: hosts that disagree on the time, or a clock that is set again and again."""

from __future__ import annotations

from alphazero.training.alarms.alarm import Alarm
from alphazero.training.usage.host_board import HostNow

CAUSE = "clock"
# As between hosts before a start (cluster/hosts/compare.py); hosts read their clocks up to a step apart.
MOST_APART_S = 2.0
# Between two readings the wall clock may gain or lose so much on the clock that nobody sets.
MOST_SET_S = 1.0

ADVICE = "start chrony, ntpd or systemd-timesyncd on every host: logs and files of the run have wrong times"


class Clocks:
    """Remembers what each host's clock was ahead of its steady one."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}

    def look(self, hosts: list[HostNow], step_s: float) -> list[Alarm]:
        """Judge one more reading of all hosts. step_s: how long a step takes."""
        found = []
        for now in hosts:
            ahead = now.clock_s - now.steady_s
            moved = ahead - self._ahead.get(now.host, ahead)
            self._ahead[now.host] = ahead
            if abs(moved) > MOST_SET_S:
                text = f"the clock of {now.host} was set by {moved:+.1f} s while the run went on"
                found.append(Alarm(CAUSE, text, ADVICE, subject=now.host))
        if len(hosts) > 1 and not found:
            found += _apart(hosts, MOST_APART_S + step_s)
        return found


def _apart(hosts: list[HostNow], limit_s: float) -> list[Alarm]:
    first = min(hosts, key=lambda now: now.clock_s)
    last = max(hosts, key=lambda now: now.clock_s)
    apart_s = last.clock_s - first.clock_s
    if apart_s <= limit_s:
        return []
    text = f"the clocks of {first.host} and {last.host} are {apart_s:.1f} s apart (limit {limit_s:.1f} s)"
    return [Alarm(CAUSE, text, ADVICE, subject=f"{first.host} {last.host}")]
