"""The muster: all nodes of a job come to node 0 before torch's rendezvous, and whoever waits says for whom.

Each node connects to the master port and sends one line of JSON that says who it is; node 0 answers all of
them when all are there, and tells those that wait who is missing. torch's own rendezvous follows on the same
port. It would wait in silence, or with traces of C++, and takes two nodes for one.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from alphazero.errors import LaunchError

VERSION = 1
MAX_LINE_BYTES = 4096
TELL_S = 10.0  # between two words on who is missing
TICK_S = 0.2
RETRY_S = 0.5
CONNECT_S = 5.0
INTRODUCE_S = 10.0  # a connection that says nothing for so long is a stranger's
SPARE_CONNECTIONS = 64
MAX_HOST = 255

Say = Callable[[str], None]


@dataclass(frozen=True)
class Member:
    """A node as it introduces itself. machine: which boot and network it runs in, "" where unknown."""

    rank: int
    count: int
    host: str
    machine: str = ""


@dataclass(frozen=True)
class Place:
    """Where the nodes meet, what messages call one of them, and whether all may be on one machine."""

    address: str
    port: int
    noun: str = "node"
    one_machine: bool = False

    @property
    def shown(self) -> str:
        """ADDRESS:PORT."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    def named(self, ranks: Sequence[int], count: int) -> str:
        """`node 1 of 2`, `nodes 1 and 3 of 4`."""
        if len(ranks) == 1:
            return f"{self.noun} {ranks[0]} of {count}"
        words = ", ".join(map(str, ranks[:-1]))
        return f"{self.noun}s {words} and {ranks[-1]} of {count}"


@dataclass
class _Connection:
    socket: socket.socket
    since: float
    received: bytes = b""
    member: Member | None = None


def receive_all(listener: socket.socket, own: Member, place: Place, limit_s: float, say: Say) -> None:
    """Node 0: until every other node has come. The listener stays open, with what comes to it afterwards.

    Raises LaunchError, which is told to the nodes that have come, for nodes that do not come within limit_s,
    a node rank given twice, unlike numbers of nodes, and a machine that is there as two nodes.
    """
    _Reception(listener, own, place, limit_s, say).run()


class _Reception:
    """Node 0's side."""

    def __init__(self, listener: socket.socket, own: Member, place: Place, limit_s: float, say: Say) -> None:
        self._listener = listener
        self._own = own
        self._place = place
        self._limit_s = limit_s
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._connections: list[_Connection] = []
        self._began = time.monotonic()

    def run(self) -> None:
        """See receive_all."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        next_word = self._began + TELL_S
        try:
            while missing := self._missing():
                for key, _ in self._selector.select(TICK_S):
                    self._accept() if key.data is None else self._read(key.data)
                now = time.monotonic()
                self._drop_strangers(now)
                if now - self._began > self._limit_s:
                    raise LaunchError(self._why_not_all(missing))
                if now >= next_word and (missing := self._missing()):
                    next_word += TELL_S
                    self._tell_who_is_missing(missing, now - self._began)
            self._answer({"go": True})
        except LaunchError as error:
            self._answer({"error": str(error)})
            raise
        finally:
            for connection in self._connections:
                connection.socket.close()
            self._selector.close()
            self._listener.setblocking(True)

    def _missing(self) -> list[int]:
        there = {one.member.rank for one in self._connections if one.member}
        return [rank for rank in range(1, self._own.count) if rank not in there]

    def _why_not_all(self, missing: Sequence[int]) -> str:
        named = self._place.named(missing, self._own.count)
        return (
            f"{named} did not come to {self._place.shown} within {self._limit_s:.0f} s: expected each to be "
            f"started with --master-addr {self._place.address} --master-port {self._place.port}, and that "
            "port to be open"
        )

    def _tell_who_is_missing(self, missing: Sequence[int], waited_s: float) -> None:
        named = self._place.named(missing, self._own.count)
        self._say(f"waiting for {named} at {self._place.shown}, {waited_s:.0f} s")
        self._answer({"missing": list(missing)})

    def _accept(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except OSError:  # gone again
            return
        if len(self._connections) >= self._own.count + SPARE_CONNECTIONS:
            connected.close()
            return
        connected.setblocking(False)
        connection = _Connection(connected, time.monotonic())
        self._connections.append(connection)
        self._selector.register(connected, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.received += data
        if not data or len(connection.received) > MAX_LINE_BYTES:
            self._drop(connection)
        elif connection.member is None and b"\n" in connection.received:
            connection.member = decode_member(connection.received.partition(b"\n")[0])
            if connection.member is None:
                self._drop(connection)
            else:
                self._check(connection.member)

    def _check(self, new: Member) -> None:
        """LaunchError where it cannot be one of this job's nodes, or is one already."""
        own, noun = self._own, self._place.noun
        flag = "--nodes" if noun == "node" else "--world-size"
        if new.count != own.count:
            raise LaunchError(
                f"{noun} {new.rank} ({new.host}) was started with {flag} {new.count}, {noun} 0 ({own.host}) "
                f"with {flag} {own.count}; expected the same"
            )
        members = [own, *(one.member for one in self._connections if one.member and one.member is not new)]
        for other in members:
            if other.rank == new.rank:
                raise LaunchError(
                    f"{noun} {new.rank} was started twice, on {other.host} and on {new.host}; expected each "
                    f"{noun} once, with a number of its own"
                )
            if new.machine and other.machine == new.machine and not self._place.one_machine:
                raise LaunchError(
                    f"{noun} {new.rank} ({new.host}) is on the same machine as {noun} {other.rank} "
                    f"({other.host}); expected another machine, or --master-addr 127.0.0.1 on all of them "
                    "where one machine is to play them all"
                )

    def _drop_strangers(self, now: float) -> None:
        for connection in list(self._connections):
            if connection.member is None and now - connection.since > INTRODUCE_S:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.remove(connection)

    def _answer(self, message: Mapping[str, Any]) -> None:
        line = (json.dumps(message) + "\n").encode()
        for connection in self._connections:
            if connection.member is not None:
                try:
                    connection.socket.send(line)
                except OSError:
                    continue  # its end is seen when it is read


def decode_member(line: bytes) -> Member | None:
    """A node's introduction; None for anything else that connects."""
    try:
        table = json.loads(line)
        if table.pop("alphazero") != VERSION:
            return None
        member = Member(**table)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    fields = ((member.rank, int), (member.count, int), (member.host, str), (member.machine, str))
    if any(type(value) is not kind for value, kind in fields):
        return None
    is_sound = 0 <= member.rank < member.count and member.host.isprintable() and len(member.host) <= MAX_HOST
    return member if is_sound else None


def encode_member(member: Member) -> bytes:
    """A node's introduction as its line."""
    return (json.dumps({"alphazero": VERSION, **asdict(member)}) + "\n").encode()


def report_to(own: Member, place: Place, limit_s: float, say: Say) -> None:
    """Every other node: until node 0 says that all have come.

    Raises LaunchError where node 0 cannot be reached within limit_s, saying how it fails, and what node 0
    says is wrong.
    """
    began = time.monotonic()
    caller = _Caller(own, place, began, began + limit_s, say)
    while not caller.call():
        if time.monotonic() > began + limit_s:
            raise LaunchError(
                f"{place.noun} {own.rank}: {place.noun} 0 did not answer at {place.shown} within "
                f"{limit_s:.0f} s: {caller.trouble}; expected it to be started there"
            )
        time.sleep(RETRY_S)


class _Caller:
    """The side of a node other than 0. trouble: why node 0 has not answered."""

    def __init__(self, own: Member, place: Place, began: float, deadline: float, say: Say) -> None:
        self._own = own
        self._place = place
        self._began = began
        self._deadline = deadline
        self._say = say
        self._next_word = began + TELL_S
        self.trouble = "not tried"

    def call(self) -> bool:
        """One connection: True when node 0 says go, False where it came to nothing."""
        left_s = max(0.1, self._deadline - time.monotonic())
        try:
            with socket.create_connection(
                (self._place.address, self._place.port), min(CONNECT_S, left_s)
            ) as connected:
                if connected.getsockname() == connected.getpeername():
                    # TCP's simultaneous open: while nobody listens, a port of the range for clients may be
                    # given to this very connection.
                    raise ConnectionRefusedError
                connected.sendall(encode_member(self._own))
                return self._listen(connected)
        except (OSError, UnicodeError) as error:
            self.trouble = explain(error)
            self._tell(self.trouble)
            return False

    def _listen(self, connected: socket.socket) -> bool:
        connected.settimeout(TICK_S)
        received = b""
        heard = time.monotonic()
        self.trouble = "it waits for other nodes"
        while time.monotonic() < self._deadline:
            try:
                data = connected.recv(MAX_LINE_BYTES)
            except TimeoutError:
                if time.monotonic() - heard > 2 * TELL_S:  # node 0 says who is missing more often than that
                    self.trouble = "it accepts the connection and says nothing"
                    self._tell(self.trouble)
                continue
            heard = time.monotonic()
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                if self._obey(line):
                    return True
            if not data or len(received) > MAX_LINE_BYTES:
                self.trouble = "it answers and closes the connection"
                self._tell(self.trouble)
                return False
        return False

    def _obey(self, line: bytes) -> bool:
        """True for go. Raises LaunchError with what node 0 says is wrong."""
        try:
            message = json.loads(line)
            if fault := message.get("error"):
                raise LaunchError(str(fault)[:MAX_LINE_BYTES])
            missing = [int(rank) for rank in message.get("missing", ())]
            if missing:
                waited_s = time.monotonic() - self._began
                named = self._place.named(missing, self._own.count)
                self._say(f"waiting for {named} at {self._place.shown}, {waited_s:.0f} s")
            return message.get("go") is True
        except (ValueError, TypeError, AttributeError, RecursionError):
            return False  # no word of ours

    def _tell(self, trouble: str) -> None:
        now = time.monotonic()
        if now >= self._next_word:
            self._next_word = now + TELL_S
            waited_s = now - self._began
            named = self._place.named([0], self._own.count)
            self._say(f"waiting for {named} at {self._place.shown}, {waited_s:.0f} s: {trouble}")


def explain(error: Exception) -> str:
    """Why a connection failed, for people."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused (nothing listens there yet, or another port)"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name is not known here"
    if isinstance(error, TimeoutError):
        return "no answer (a firewall, or a host that is down)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
