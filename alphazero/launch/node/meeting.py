"""How the nodes of a job meet: they connect to number 0, and those that wait name the missing ones.

Before torch's rendezvous, nodes meet at node 0: each connects to the master
port and introduces itself; node 0 answers all of them when all are there, and sends those that wait the
numbers of the missing ones. Messages are JSON objects, one a line. gloo and NCCL listen at ports that the
system chooses, and would wait for minutes behind a firewall; so before the last answer every node tries a
free port of each other one. torch's own rendezvous follows on the same port. It would wait in silence, or
with traces of C++, and takes two nodes for one; its client waits for ever for a server that does not answer.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from alphazero.base.errors import LaunchError
from alphazero.base.log import Say
from alphazero.base.records import from_table
from alphazero.machine.machine import ANY_PORT, EVERYWHERE, list_addresses, listen_on

VERSION = 3
MAX_LINE_BYTES = 4096
MAX_ANSWER_BYTES = 16 << 20  # of number 0: it names all nodes
REPORT_S = 10.0  # between two lines on who is missing
TICK_S = 0.2
RETRY_S = 0.5
CONNECT_S = 5.0
INTRODUCE_S = 10.0  # a connection that is silent for so long is a stranger's
REACH_S = 10.0  # a port that does not answer for so long is closed
PORTS_AT_ONCE = 64
SPARE_CONNECTIONS = 64
MAX_HOST = 255
MOST_SHOWN = 4


@dataclass(frozen=True)
class Participant:
    """A node as it introduces itself. machine: which boot and network it runs in, "" where unknown.

    address, port: where the others try to reach it.
    """

    rank: int
    count: int
    host: str
    machine: str = ""
    address: str = ""
    port: int = 0
    alphazero: int = VERSION


@dataclass(frozen=True)
class MeetingPoint:
    """Where the nodes meet, and whether all may be on one machine.

    interface: which the job will use; "" for that on the route to node 0.
    """

    address: str
    port: int
    same_machine: bool = False
    interface: str = ""

    @property
    def shown(self) -> str:
        """ADDRESS:PORT."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    def named(self, ranks: Sequence[int], count: int) -> str:
        """`node 1 of 2`, `nodes 1 and 3 of 4`."""
        if len(ranks) == 1:
            return f"node {ranks[0]} of {count}"
        words = ", ".join(map(str, ranks[:-1]))
        return f"nodes {words} and {ranks[-1]} of {count}"

    def name_of(self, member: Participant) -> str:
        """`node 1 (host1)`."""
        return f"node {member.rank} ({member.host})"


def meet(
    own: Participant, point: MeetingPoint, limit_s: float, say: Say, listener: socket.socket | None = None
) -> dict[str, socket.socket]:
    """Return when all are there and reach each other: the connections, by the names of the nodes.

    listener: of number 0, to which the others connect; it stays open for later connections. Raises
    LaunchError, on all that have connected, for those that do not within limit_s, a rank given twice,
    different numbers of nodes, a machine that appears as two nodes, and closed ports; on the others also
    where number 0 cannot be reached, with the reason.
    """
    if own.count == 1:
        return {}
    if listener is not None:
        return _Reception(own, point, limit_s, say).run(listener)
    return _Caller(own, point, limit_s, say).run()


class _Connection:
    """Messages over a socket. most_bytes: of one that the other side may send."""

    def __init__(self, connected: socket.socket, most_bytes: int) -> None:
        self.socket = connected
        self._most_bytes = most_bytes
        self._received = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; that the other side is gone is seen when it is read."""
        with contextlib.suppress(OSError):
            self.socket.settimeout(CONNECT_S)
            self.socket.sendall((json.dumps(message) + "\n").encode())

    def read(self, limit_s: float) -> dict[str, Any] | None:
        """The next message, None where none comes in time.

        Raises ConnectionError at the end, and for what no node sends.
        """
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._received:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(MAX_LINE_BYTES)
            except TimeoutError:
                return None
            self._received += data
            if not data or len(self._received) > self._most_bytes:
                raise ConnectionError("it closes the connection, or sends what no node sends")
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ConnectionError("another program answers there")
        return message

    def is_gone(self) -> bool:
        """True where the other side has closed the connection."""
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


class _Meeting:
    """What both sides know, and the lines of a side that waits."""

    def __init__(self, own: Participant, point: MeetingPoint, limit_s: float, say: Say) -> None:
        self._own = own
        self._point = point
        self._limit_s = limit_s
        self._say = say
        self._began = time.monotonic()
        self._next_report = self._began + REPORT_S

    @property
    def _is_over(self) -> bool:
        return time.monotonic() - self._began > self._limit_s

    @property
    def _is_report_due(self) -> bool:
        """True once in REPORT_S."""
        if time.monotonic() < self._next_report:
            return False
        self._next_report = time.monotonic() + REPORT_S
        return True

    def _report(self, missing: Sequence[int], trouble: str = "") -> None:
        named, waited_s = self._point.named(missing, self._own.count), time.monotonic() - self._began
        text = f"waiting for {named} at {self._point.shown}, {waited_s:.0f} s"
        self._say(f"{text}: {trouble}" if trouble else text)

    def _open_port(self, near: socket.socket) -> socket.socket:
        """A port that the others try; near: a socket on the route to them."""
        wanted = ":" if near.family == socket.AF_INET6 else "."
        # As gloo chooses.
        on_interface = [
            address
            for name, address in list_addresses()
            if name == self._point.interface and wanted in address
        ]
        address = on_interface[0] if on_interface else near.getsockname()[0]
        opened = listen_on(address, ANY_PORT)
        self._own = replace(self._own, address=address, port=opened.getsockname()[1])
        return opened


class _Reception(_Meeting):
    """Number 0's side."""

    def run(self, listener: socket.socket) -> dict[str, socket.socket]:
        """Until all are there and reach each other."""
        self._introduced: queue.SimpleQueue[tuple[Participant, _Connection]] = queue.SimpleQueue()
        self._members: list[tuple[Participant, _Connection]] = []
        self._other_threads = threading.active_count()
        listener.settimeout(TICK_S)
        met: dict[str, socket.socket] = {}
        try:
            with self._open_port(listener):
                self._gather(listener)
                self._try_ports()
            self._tell({"go": True})
            met = {self._point.name_of(member): its.socket for member, its in self._members}
        except LaunchError as error:
            self._tell({"error": str(error)})
            raise
        finally:
            listener.settimeout(None)
            for _, connection in self._members if not met else ():
                connection.socket.close()
        return met

    def _tell(self, message: Mapping[str, Any]) -> None:
        for _, connection in self._members:
            connection.send(message)

    def _gather(self, listener: socket.socket) -> None:
        everyone = range(1, self._own.count)
        while missing := sorted(set(everyone) - {member.rank for member, _ in self._members}):
            if self._is_over:
                raise LaunchError(
                    f"{self._point.named(missing, self._own.count)} did not connect to "
                    f"{self._point.shown} within {self._limit_s:.0f} s: expected each to be started "
                    f"with --master-addr {self._point.address} --master-port "
                    f"{self._point.port}, and that port to be open"
                )
            if self._is_report_due:
                self._report(missing)
                self._tell({"missing": missing})
            with contextlib.suppress(OSError):  # none came, or it is gone again
                connected, _ = listener.accept()
                if threading.active_count() - self._other_threads > self._own.count + SPARE_CONNECTIONS:
                    connected.close()
                else:
                    threading.Thread(target=self._introduce, args=(connected,), daemon=True).start()
            self._members = [(member, its) for member, its in self._members if not its.is_gone()]
            while not self._introduced.empty():
                self._members.append(self._introduced.get())
                self._check(self._members[-1][0])

    def _introduce(self, connected: socket.socket) -> None:
        """Runs in a thread for each connection, which may be a stranger's."""
        connection = _Connection(connected, MAX_LINE_BYTES)
        member = None
        with contextlib.suppress(OSError):
            member = decode_participant(connection.read(INTRODUCE_S))
        if member is None:
            connected.close()
        else:
            self._introduced.put((member, connection))

    def _check(self, new: Participant) -> None:
        """LaunchError where it cannot be one of this job's nodes, or is one already."""
        own = self._own
        if new.count != own.count:
            raise LaunchError(
                f"node {new.rank} ({new.host}) was started with --nodes {new.count}, node 0 ({own.host}) "
                f"with --nodes {own.count}; expected the same"
            )
        for other in (own, *(member for member, _ in self._members if member is not new)):
            if other.rank == new.rank:
                raise LaunchError(
                    f"node {new.rank} was started twice, on {other.host} and on {new.host}; expected each "
                    "node once, with a unique number"
                )
            if new.machine and other.machine == new.machine and not self._point.same_machine:
                raise LaunchError(
                    f"node {new.rank} ({new.host}) is on the same machine as node {other.rank} "
                    f"({other.host}); expected another machine, or --master-addr 127.0.0.1 on all of them "
                    "where one machine is to play them all"
                )

    def _try_ports(self) -> None:
        """All try the ports of all others; LaunchError where one is closed."""
        nodes = [self._own, *(member for member, _ in self._members)]
        self._tell({"nodes": [asdict(node) for node in nodes]})
        closed = closed_ports(nodes, 0, self._point)
        deadline = time.monotonic() + REACH_S + CONNECT_S
        for member, connection in self._members:
            lines = None
            with contextlib.suppress(OSError):
                lines = (connection.read(deadline - time.monotonic()) or {}).get("closed")
            if not isinstance(lines, list):
                named = self._point.named([member.rank], self._own.count)
                raise LaunchError(f"{named} left while all tried to reach each other; expected all to stay")
            closed += [line for line in lines if isinstance(line, str) and line.isprintable()]
        if closed:
            more = f"; and {len(closed) - MOST_SHOWN} more" if len(closed) > MOST_SHOWN else ""
            raise LaunchError(
                f"{'; '.join(closed[:MOST_SHOWN])}{more}; expected machines that reach each other at all TCP "
                "ports (or --interface NAME, the network to use)"
            )


def decode_participant(table: dict[str, Any] | None) -> Participant | None:
    """A node's introduction; None for what no node of this version sends."""
    try:
        member = from_table(Participant, table or {})
        ipaddress.ip_address(member.address.partition("%")[0] or EVERYWHERE[0])
    except (ValueError, TypeError, KeyError):
        return None
    is_shown = member.host.isprintable() and len(member.host) <= MAX_HOST
    is_sound = member.alphazero == VERSION and 0 <= member.rank < member.count and is_shown
    return member if is_sound else None


class _Caller(_Meeting):
    """The side of the others. _trouble: why number 0 has not answered."""

    _trouble = "not tried"

    def run(self) -> dict[str, socket.socket]:
        """Until number 0 answers that all are there and reach each other."""
        while not self._is_over:
            try:
                return {"node 0": self._call()}
            except (OSError, UnicodeError) as error:
                self._note(explain(error))
            time.sleep(RETRY_S)
        raise LaunchError(
            f"node {self._own.rank}: node 0 did not answer at {self._point.shown} within "
            f"{self._limit_s:.0f} s: {self._trouble}; expected it to be started there"
        )

    def _note(self, trouble: str) -> None:
        self._trouble = trouble
        if self._is_report_due:
            self._report([0], trouble)

    def _call(self) -> socket.socket:
        """A connection over which number 0 has answered go. Raises OSError where it came to nothing."""
        left_s = max(0.1, self._began + self._limit_s - time.monotonic())
        address = (self._point.address, self._point.port)
        with contextlib.ExitStack() as opened:
            connected = opened.enter_context(socket.create_connection(address, min(CONNECT_S, left_s)))
            if connected.getsockname() == connected.getpeername():
                # TCP's simultaneous open: while nothing listens, a port of the range for clients may be given
                # to this very connection.
                raise ConnectionRefusedError
            with self._open_port(connected):
                self._follow(_Connection(connected, MAX_ANSWER_BYTES))
            opened.pop_all()
            return connected

    def _follow(self, connection: _Connection) -> None:
        """Do as number 0 says, until it says go. Raises LaunchError with the fault that it found."""
        connection.send(asdict(self._own))
        self._trouble = "it waits for other nodes"
        heard = time.monotonic()
        while not self._is_over:
            message = connection.read(TICK_S)
            if message is None:
                # Number 0 reports who is missing more often than that.
                if time.monotonic() - heard > 2 * REPORT_S:
                    self._note("it accepts and does not answer; another program may have the port")
                continue
            heard = time.monotonic()
            if fault := message.get("error"):
                raise LaunchError(str(fault)[:MAX_LINE_BYTES])
            if message.get("go") is True:
                return
            try:
                if missing := [int(rank) for rank in message.get("missing", ())]:
                    self._report(missing)
                nodes = [from_table(Participant, table) for table in message.get("nodes", ())]
            except (ValueError, TypeError, KeyError) as error:
                raise ConnectionError("another program answers there") from error
            if nodes:
                at_0 = connection.socket.getpeername()[0]  # where it listens on all interfaces
                nodes = [
                    replace(node, address=at_0) if node.address in EVERYWHERE else node for node in nodes
                ]
                connection.send({"closed": closed_ports(nodes, self._own.rank, self._point)[:MOST_SHOWN]})
        raise ConnectionError(self._trouble)


def closed_ports(nodes: Sequence[Participant], own_rank: int, point: MeetingPoint) -> list[str]:
    """A line for each of the other nodes whose port cannot be reached from here, and why."""
    (own,) = [node for node in nodes if node.rank == own_rank]

    def try_one(node: Participant) -> str:
        try:
            socket.create_connection((node.address, node.port), REACH_S).close()
        except OSError as error:
            names = f"{point.name_of(own)} cannot reach {point.name_of(node)}"
            return f"{names} at {node.address}:{node.port}: {explain(error)}"
        return ""

    with ThreadPoolExecutor(PORTS_AT_ONCE) as pool:
        return list(filter(None, pool.map(try_one, (node for node in nodes if node is not own))))


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
