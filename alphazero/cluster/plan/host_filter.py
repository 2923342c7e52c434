"""--include and --exclude: which hosts of a hostfile take part, and with which of their slots.

The syntax is DeepSpeed's: `worker-0@worker-1:0,2` is all slots of worker-0 and slots 0 and 2 of worker-1.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.cluster.plan.hostfile import Host
from alphazero.errors import LaunchError

PART = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,6}(?:,[0-9]{1,6})*))?")


@dataclass(frozen=True)
class ChosenHost:
    """A host that takes part and its slots, ascending, at least one."""

    host: Host
    slots: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """True where no slot was left out."""
        return len(self.slots) == self.host.slots


def choose_hosts(
    hosts: Sequence[Host], include: str | None, exclude: str | None, source: str
) -> tuple[ChosenHost, ...]:
    """The hosts left after the filter, in the hostfile's order, at least one.

    source: what errors call the hosts' origin. Raises LaunchError for both filters at once, text of another
    form, hosts or slots that `hosts` does not have or that are named twice, and for an empty result.
    """
    whole = {host.address.lower(): set(range(host.slots)) for host in hosts}
    if include is None and exclude is None:
        return tuple(ChosenHost(host, tuple(range(host.slots))) for host in hosts)
    if include is not None and exclude is not None:
        raise LaunchError(f"--include {include} contradicts --exclude {exclude}: expected one of them")
    flag, text = ("--include", include) if include is not None else ("--exclude", exclude or "")
    named = _read_filter(f"{flag} {text}", text or "", whole, source)
    chosen = []
    for host in hosts:
        key = host.address.lower()
        left = named.get(key, set()) if include is not None else whole[key] - named.get(key, set())
        if left:
            chosen.append(ChosenHost(host, tuple(sorted(left))))
    if not chosen:
        raise LaunchError(f"{flag} {text}: leaves no host of {source}; expected at least one")
    return tuple(chosen)


def _read_filter(place: str, text: str, whole: dict[str, set[int]], source: str) -> dict[str, set[int]]:
    """Slots by host, as the filter names them."""
    named: dict[str, set[int]] = {}
    for part in text.split("@"):
        match = PART.fullmatch(part)
        if match is None:
            raise LaunchError(f"{place}: {part!r}: expected HOST or HOST:SLOT,SLOT, joined by @")
        key = _key(match[1])
        if key not in whole:
            known = ", ".join(whole)
            raise LaunchError(f"{place}: {source} has no host {match[1]}; expected some of {known}")
        if key in named:
            raise LaunchError(f"{place}: names {match[1]} twice; expected each host once")
        slots = [int(slot) for slot in match[2].split(",")] if match[2] else sorted(whole[key])
        if len(set(slots)) < len(slots):
            raise LaunchError(f"{place}: names a slot of {match[1]} twice; expected each once")
        if absent := set(slots) - whole[key]:
            raise LaunchError(
                f"{place}: {match[1]} has no slot {min(absent)}; expected 0 to {len(whole[key]) - 1}, "
                f"as {source} says"
            )
        named[key] = set(slots)
    return named


def _key(name: str) -> str:
    """A host's name as the hostfile's reader keeps it."""
    if name.startswith("["):
        try:
            return str(ipaddress.IPv6Address(name[1:-1]))
        except ValueError:
            return name
    return name.lower()
