"""Nodes that were started by hand, with no head that watches them, watch each other over a connection.

That of each node to node 0 stays open: the kernel closes it when a process ends, and probes a machine that is
silent. Node 0 passes on what it hears, by its own end.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SETTLE_S = 15.0  # in which the ranks here may still save, or report better why
PROBE_S = 1
MAX_FATE = 500


@dataclass(frozen=True)
class LostNode:
    """A node that ended before this one. status: of its part, 1 where it is not known."""

    name: str
    fate: str
    status: int = 1


def watch_nodes(
    links: Mapping[str, socket.socket], silence_s: float, on_loss: Callable[[LostNode], None]
) -> list[threading.Thread]:
    """Watch the connections to other nodes, by name; each thread calls on_loss unless its node ends well."""
    threads = []
    for name, link in links.items():
        link.settimeout(None)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # The kernel's own probes: this process may be held up for long, as while it loads libraries.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(silence_s) - PROBE_S))
        arguments = (name, link, silence_s, on_loss)
        threads.append(threading.Thread(target=_watch, args=arguments, name="host link", daemon=True))
        threads[-1].start()
    return threads


def _watch(name: str, link: socket.socket, silence_s: float, on_loss: Callable[[LostNode], None]) -> None:
    received = b""
    try:
        while data := link.recv(4096):
            received += data
    except ConnectionResetError:
        pass
    except OSError:  # the kernel's probes were not answered
        on_loss(LostNode(name, f"no sign of life for {silence_s:.0f} s"))
        return
    lost = LostNode(name, "its launcher is gone")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        table = json.loads(received)
        lost = LostNode(name, str(table["fate"])[:MAX_FATE], int(table["status"]))
    if lost.status:
        time.sleep(SETTLE_S)
        on_loss(lost)


def tell_nodes(links: Iterable[socket.socket], status: int, fate: str) -> None:
    """This node's own end, as the others are to hear of it."""
    for link in links:
        with contextlib.suppress(OSError):
            link.send(json.dumps({"status": status, "fate": fate}).encode())
            link.shutdown(socket.SHUT_WR)
