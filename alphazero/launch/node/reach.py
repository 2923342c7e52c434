"""Whether the nodes of a job reach each other: before it at a free port each, during it by a connection.

gloo and NCCL listen at ports that the system chooses. Behind a firewall they would wait for minutes, and not
report for whom; so each node first opens such a port, and all others try it.

Nodes that were started by hand have no head that watches them. The connection of each to node 0 stays open:
the kernel closes it when a process ends, and probes a machine that is silent.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from alphazero.machine.machine import list_addresses

REACH_S = 10.0  # a port that does not answer for so long is closed
AT_ONCE = 64
MOST_SHOWN = 4


@dataclass(frozen=True)
class Door:
    """A port that a node has opened for the others to try. name: of the node, in messages."""

    rank: int
    name: str
    address: str
    port: int


def address_on(interface: str, family: socket.AddressFamily, otherwise: str) -> str:
    """The address that gloo takes on an interface; `otherwise` where there is no such one."""
    wanted = ":" if family == socket.AF_INET6 else "."
    found = [address for name, address in list_addresses() if name == interface and wanted in address]
    return found[0] if found else otherwise


def closed_doors(doors: Sequence[Door], own_rank: int) -> list[str]:
    """A line for each door of the others that cannot be reached from here, and why."""
    own = next(door for door in doors if door.rank == own_rank)

    def try_one(door: Door) -> str:
        try:
            socket.create_connection((door.address, door.port), REACH_S).close()
        except OSError as error:
            return f"{own.name} cannot reach {door.name} at {door.address}:{door.port}: {explain(error)}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(filter(None, pool.map(try_one, (door for door in doors if door is not own))))


def closed_text(lines: Sequence[str]) -> str:
    """What is closed, in one line."""
    shown = "; ".join(lines[:MOST_SHOWN])
    more = f"; and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
    return (
        f"{shown}{more}; expected machines that reach each other at all TCP ports (or --interface NAME, the "
        "network to use)"
    )


def explain(error: Exception) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused (nothing listens there yet, or another port)"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name is not known here"
    if isinstance(error, TimeoutError):
        return "no answer (a firewall, or a host that is down)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)


SETTLE_S = 15.0  # in which the ranks here may still save, or report better why
PROBE_S = 1
MAX_FATE = 500


@dataclass(frozen=True)
class Loss:
    """The end of another node before this one's. status: of its part, 1 where it is not known.

    is_silent: nothing was heard of its end.
    """

    name: str
    fate: str
    status: int = 1
    is_silent: bool = False


class Bond(threading.Thread):
    """Watches the connections to other nodes, of node 0 or of all, by name, until one is lost.

    on_loss: called in this thread, once. Node 0 passes on what it hears, by its own end.
    """

    def __init__(
        self, others: Mapping[str, socket.socket], silence_s: float, on_loss: Callable[[Loss], None]
    ) -> None:
        super().__init__(name="bond", daemon=True)
        self._others = dict(others)
        self._silence_s = silence_s
        self._on_loss = on_loss
        self._received = dict.fromkeys(others, b"")
        for one in others.values():
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # The kernel's own probes: this process may be held up for long, as while it loads libraries.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_S)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(silence_s) - PROBE_S))
        self.start()

    def run(self) -> None:
        """Until a node is lost, or all have ended well."""
        selector = selectors.DefaultSelector()
        for name, one in self._others.items():
            selector.register(one, selectors.EVENT_READ, name)
        while selector.get_map():
            for key, _ in selector.select():
                loss = self._read(key.data)
                if loss is not None:
                    selector.unregister(key.fileobj)
                    if loss.status:
                        time.sleep(0.0 if loss.is_silent else SETTLE_S)
                        self._on_loss(loss)
                        return

    def _read(self, name: str) -> Loss | None:
        """How a node ended; None while it runs."""
        try:
            data = self._others[name].recv(4096)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data = b""
        except OSError:  # the kernel's probes were not answered
            return Loss(name, f"no sign of life for {self._silence_s:.0f} s", is_silent=True)
        self._received[name] += data
        if data:
            return None
        with contextlib.suppress(ValueError, TypeError, KeyError):
            table = json.loads(self._received[name])
            return Loss(name, str(table["fate"])[:MAX_FATE], int(table["status"]))
        return Loss(name, "its launcher is gone")

    def end(self, status: int, fate: str) -> None:
        """This node's own end, as the others are to hear of it."""
        for one in self._others.values():
            with contextlib.suppress(OSError):
                one.send(json.dumps({"status": status, "fate": fate}).encode())
                one.shutdown(socket.SHUT_WR)
