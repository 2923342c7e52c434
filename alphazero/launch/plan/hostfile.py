"""The hostfile: which hosts take part and how many processes each runs, read strictly.

One host per line, `<host> slots=<positive int>`, then `actors=<int>` and `weight=<number above 0>` where
they are wanted; `#` starts a comment. What DeepSpeed's own reader accepts silently (slots=0, trailing words,
a missing file) is an error.

--include and --exclude choose hosts and slots in DeepSpeed's syntax: `worker-0@worker-1:0,2` is all slots of
worker-0 and slots 0 and 2 of worker-1.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphazero.base.errors import LaunchError
from alphazero.base.files import open_regular
from alphazero.base.text import quoted

WANTED = "expected '<host> slots=<positive int>'"
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
# RFC 1123 labels; underscores occur in machine-made names. Never a leading '-', which ssh would read as
# an option.
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*")
LINE = re.compile(r"(\S+)\s+slots=([1-9][0-9]{0,3})((?:\s+(?:actors|weight)=\S*)*)")
NUMBER = re.compile(r"[0-9]{1,4}")
WEIGHT = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")


@dataclass(frozen=True)
class Host:
    """A line of the hostfile: `address` is a name or an IP address without brackets, `user` may be empty.

    weight: the share of the work that each rank here gets beside ranks of other hosts; 1 is usual. actors:
    how many of the slots, the last ones, play. chosen: the slots that a filter left, ascending, () for all.
    """

    address: str
    slots: int
    user: str = ""
    line: int = 0
    weight: float = 1.0
    actors: int = 0
    chosen: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The host as it was written, less brackets."""
        return f"{self.user}@{self.address}" if self.user else self.address


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts of the file at `path`, in its order, at least one.

    Raises LaunchError for a file that cannot be read or holds no host.
    """
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: is not text (byte {error.start}); {WANTED} on each line") from error
    except OSError as error:
        raise LaunchError(f"--hostfile {path}: cannot be read: {error.strerror}") from error
    return parse_hostfile(text, str(path))


def parse_hostfile(text: str, source: str) -> tuple[Host, ...]:
    """The hosts `text` names; `source` is what errors call it.

    Raises LaunchError naming source and line for a line of another form or a host named twice, and for a
    text without hosts.
    """
    hosts: dict[str, Host] = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        host = _parse_line(line, f"{source}:{number}: {quoted(line)}", number)
        key = host.address.lower()
        if key in hosts:
            first = hosts[key].line
            raise LaunchError(
                f"{source}:{number}: {quoted(line)}: {host.address} is on line {first} already; "
                "expected each host once"
            )
        hosts[key] = host
    if not hosts:
        raise LaunchError(f"{source}: names no host; {WANTED} on at least one line")
    return tuple(hosts.values())


def _parse_line(line: str, where: str, number: int) -> Host:
    words = LINE.fullmatch(line)
    given = [word.partition("=")[::2] for word in words[3].split()] if words else []
    if words is None or len(dict(given)) < len(given):
        raise LaunchError(f"{where}: {WANTED}")
    name, slots = words[1], words[2]
    actors, weight = dict(given).get("actors", "0"), dict(given).get("weight", "1")
    if not NUMBER.fullmatch(actors) or int(actors) > int(slots):
        raise LaunchError(f"{where}: expected actors=<0 to {slots}>, where {slots} leave no rank there")
    if not WEIGHT.fullmatch(weight) or not float(weight):
        raise LaunchError(f"{where}: expected weight=<number above 0>, as weight=0.5")
    user, at, address = name.rpartition("@")
    if at and not USER.fullmatch(user):
        raise LaunchError(f"{where}: {WANTED}, where '<host>' may be 'user@host'")
    return Host(_parse_address(address, where), int(slots), user, number, float(weight), int(actors))


def _parse_address(text: str, where: str) -> str:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" not in bare:  # a zone is an interface of one host, and may hold anything
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address(bare))
    is_number = re.fullmatch(r"[0-9.]+", bare)
    if bare != text or len(bare) > 253 or is_number or not HOST_NAME.fullmatch(bare):
        raise LaunchError(f"{where}: {WANTED}; {quoted(text)} names no host")
    return bare


PART = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,6}(?:,[0-9]{1,6})*))?")


def choose_hosts(
    hosts: Sequence[Host], include: str | None, exclude: str | None, source: str
) -> tuple[Host, ...]:
    """The hosts left after the filter, in the hostfile's order, at least one.

    source: what errors call the hosts' origin. Raises LaunchError for both filters at once, text of another
    form, hosts or slots that `hosts` does not have or that are named twice, and for an empty result.
    """
    whole = {host.address.lower(): set(range(host.slots)) for host in hosts}
    left, flag = whole, ""
    if include is not None and exclude is not None:
        raise LaunchError(f"--include {include} contradicts --exclude {exclude}: expected one of them")
    if include is not None:
        flag = f"--include {include}"
        left = _read_filter(flag, include, whole, source)
    elif exclude is not None:
        flag = f"--exclude {exclude}"
        named = _read_filter(flag, exclude, whole, source)
        left = {key: slots - named.get(key, set()) for key, slots in whole.items()}
    slots_of = [(host, tuple(sorted(left.get(host.address.lower(), ())))) for host in hosts]
    chosen = tuple(
        replace(host, chosen=slots if len(slots) < host.slots else ()) for host, slots in slots_of if slots
    )
    if not chosen:
        raise LaunchError(f"{flag}: leaves no host of {source}; expected at least one")
    return chosen


def _read_filter(flag: str, text: str, whole: dict[str, set[int]], source: str) -> dict[str, set[int]]:
    """Slots by host, as the filter names them."""
    named: dict[str, set[int]] = {}
    for part in text.split("@"):
        match = PART.fullmatch(part)
        if match is None:
            raise LaunchError(f"{flag}: {part!r}: expected HOST or HOST:SLOT,SLOT, joined by @")
        key = _parse_address(match[1], flag).lower()
        if key not in whole:
            known = ", ".join(whole)
            raise LaunchError(f"{flag}: {source} has no host {match[1]}; expected some of {known}")
        if key in named:
            raise LaunchError(f"{flag}: names {match[1]} twice; expected each host once")
        slots = [int(slot) for slot in match[2].split(",")] if match[2] else sorted(whole[key])
        if len(set(slots)) < len(slots):
            raise LaunchError(f"{flag}: names a slot of {match[1]} twice; expected each once")
        if absent := set(slots) - whole[key]:
            raise LaunchError(
                f"{flag}: {match[1]} has no slot {min(absent)}; expected 0 to {len(whole[key]) - 1}, "
                f"as in {source}"
            )
        named[key] = set(slots)
    return named
