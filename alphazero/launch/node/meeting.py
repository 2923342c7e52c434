"""Where the processes of a job meet: they connect to number 0, and those that wait name the missing ones.

Before torch's rendezvous, nodes (or ranks that a person started) meet at node 0: each connects to the master
port and sends one line of JSON with its name and number; node 0 answers all of them when all are there, and
sends those that wait the numbers of the missing ones. Before the last answer all try each other's ports
(reach.py). torch's own rendezvous follows on the same port. It would wait in silence, or with traces of C++,
and takes two nodes for one.

The store of that rendezvous is served on the master's address alone, where torch's own listens on all
interfaces. The meeting is not in the store: torch's client waits for ever for a server that does not answer.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import selectors
import socket
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.base.log import Say
from alphazero.base.records import from_json, from_table, to_json
from alphazero.launch.node.reach import (
    MOST_SHOWN,
    REACH_S,
    Door,
    address_on,
    closed_doors,
    closed_text,
    explain,
)
from alphazero.machine.machine import ANY_PORT, EVERYWHERE, find_free_port, is_everywhere, listen_on

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

VERSION = 2
MAX_LINE_BYTES = 4096
MAX_ANSWER_BYTES = 16 << 20  # of number 0: it names all nodes
REPORT_S = 10.0  # between two lines on who is missing
TICK_S = 0.2
RETRY_S = 0.5
CONNECT_S = 5.0
INTRODUCE_S = 10.0  # a connection that is silent for so long is a stranger's
SPARE_CONNECTIONS = 64
MAX_HOST = 255
STORE_TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True)
class Participant:
    """A node as it introduces itself. machine: which boot and network it runs in, "" where unknown.

    address, port: of its door (reach.py).
    """

    rank: int
    count: int
    host: str
    machine: str = ""
    address: str = ""
    port: int = 0
    alphazero: int = VERSION

    @property
    def is_sound(self) -> bool:
        """False for what no node of this version sends."""
        is_shown = self.host.isprintable() and len(self.host) <= MAX_HOST
        try:
            ipaddress.ip_address(self.address.partition("%")[0] or EVERYWHERE[0])
        except ValueError:
            return False
        return self.alphazero == VERSION and 0 <= self.rank < self.count and is_shown


@dataclass(frozen=True)
class MeetingPlace:
    """Where the nodes meet, what messages call one of them, and whether all may be on one machine.

    interface: which the job will use; "" for that on the route to node 0.
    """

    address: str
    port: int
    noun: str = "node"
    one_machine: bool = False
    interface: str = ""

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
    member: Participant | None = None
    closed: list[str] | None = None  # doors that its node cannot reach, once it has tried


def meet(
    own: Participant, place: MeetingPlace, limit_s: float, say: Say, listener: socket.socket | None = None
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
        return _Reception(own, place, limit_s, say).run(listener)
    return _Caller(own, place, limit_s, say).run()


class _Meeting:
    """What both sides know, and the lines of one that waits."""

    def __init__(self, own: Participant, place: MeetingPlace, limit_s: float, say: Say) -> None:
        self._own = own
        self._place = place
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

    def _open_door(self, near: socket.socket) -> socket.socket:
        """Where the others try to reach this node; near: a socket on the route to them."""
        address = address_on(self._place.interface, near.family, near.getsockname()[0])
        door = listen_on(address, ANY_PORT)
        self._own = replace(self._own, address=address, port=door.getsockname()[1])
        return door

    def _named_host(self, member: Participant) -> str:
        return f"{self._place.noun} {member.rank} ({member.host})"

    def _report(self, missing: Sequence[int], trouble: str = "") -> None:
        named, waited_s = self._place.named(missing, self._own.count), time.monotonic() - self._began
        text = f"waiting for {named} at {self._place.shown}, {waited_s:.0f} s"
        self._say(f"{text}: {trouble}" if trouble else text)


class _Reception(_Meeting):
    """Number 0's side."""

    def run(self, listener: socket.socket) -> dict[str, socket.socket]:
        """Until all are there and reach each other."""
        self._selector = selectors.DefaultSelector()
        self._connections: list[_Connection] = []
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        met: dict[str, socket.socket] = {}
        try:
            with self._open_door(listener):
                self._gather(listener)
                self._try_doors(listener)
            self._answer({"go": True})
            met = {self._named_host(one.member): one.socket for one in self._connections if one.member}
        except LaunchError as error:
            self._answer({"error": str(error)})
            raise
        finally:
            for connection in self._connections:
                if connection.socket not in met.values():
                    connection.socket.close()
            self._selector.close()
            listener.setblocking(True)
        return met

    def _gather(self, listener: socket.socket) -> None:
        while missing := self._missing():
            self._turn(listener)
            if self._is_over:
                raise LaunchError(
                    f"{self._place.named(missing, self._own.count)} did not connect to "
                    f"{self._place.shown} within {self._limit_s:.0f} s: expected each to be started "
                    f"with --master-addr {self._place.address} --master-port "
                    f"{self._place.port}, and that port to be open"
                )
            if (missing := self._missing()) and self._is_report_due:
                self._report(missing)
                self._answer({"missing": missing})

    def _turn(self, listener: socket.socket) -> None:
        for key, _ in self._selector.select(TICK_S):
            self._accept(listener) if key.data is None else self._read(key.data)
        self._drop_strangers()

    def _try_doors(self, listener: socket.socket) -> None:
        """All try the doors of all others; LaunchError where one is closed."""
        members = [self._own, *self._members()]
        doors = [Door(one.rank, self._named_host(one), one.address, one.port) for one in members]
        self._answer({"doors": [asdict(door) for door in doors]})
        closed = closed_doors(doors, 0)
        deadline = time.monotonic() + REACH_S + CONNECT_S
        while waited := [one.member.rank for one in self._connections if one.member and one.closed is None]:
            self._turn(listener)
            if (missing := self._missing()) or time.monotonic() > deadline:
                named = self._place.named(missing or waited, self._own.count)
                raise LaunchError(f"{named} left while all tried to reach each other; expected all to stay")
        closed += [line for one in self._connections for line in one.closed or ()]
        if closed:
            raise LaunchError(closed_text(closed))

    def _members(self) -> list[Participant]:
        return [one.member for one in self._connections if one.member]

    def _missing(self) -> list[int]:
        there = {member.rank for member in self._members()}
        return [rank for rank in range(1, self._own.count) if rank not in there]

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
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
        elif b"\n" in connection.received:
            line, _, connection.received = connection.received.partition(b"\n")
            if connection.member is not None:
                connection.closed = connection.closed or decode_closed(line)
                return
            connection.member = decode_participant(line)
            if connection.member is None:
                self._drop(connection)
            else:
                self._check(connection.member)

    def _check(self, new: Participant) -> None:
        """LaunchError where it cannot be one of this job's nodes, or is one already."""
        own, noun = self._own, self._place.noun
        flag = "--nodes" if noun == "node" else "--world-size"
        if new.count != own.count:
            raise LaunchError(
                f"{noun} {new.rank} ({new.host}) was started with {flag} {new.count}, {noun} 0 ({own.host}) "
                f"with {flag} {own.count}; expected the same"
            )
        for other in (own, *(member for member in self._members() if member is not new)):
            if other.rank == new.rank:
                raise LaunchError(
                    f"{noun} {new.rank} was started twice, on {other.host} and on {new.host}; expected each "
                    f"{noun} once, with a unique number"
                )
            if new.machine and other.machine == new.machine and not self._place.one_machine:
                raise LaunchError(
                    f"{noun} {new.rank} ({new.host}) is on the same machine as {noun} {other.rank} "
                    f"({other.host}); expected another machine, or --master-addr 127.0.0.1 on all of them "
                    "where one machine is to play them all"
                )

    def _drop_strangers(self) -> None:
        now = time.monotonic()
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
                with contextlib.suppress(OSError):  # its end is seen when it is read
                    connection.socket.settimeout(CONNECT_S)
                    connection.socket.sendall(line)
                    connection.socket.setblocking(False)


def decode_participant(line: bytes) -> Participant | None:
    """A node's introduction; None for anything else that connects."""
    try:
        member = from_json(Participant, line)
    except ValueError:
        return None
    return member if member.is_sound else None


def decode_closed(line: bytes) -> list[str] | None:
    """What a node reports of the others' doors; None for anything else."""
    try:
        lines = json.loads(line)["closed"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_sound = isinstance(lines, list) and all(isinstance(one, str) and one.isprintable() for one in lines)
    return lines if is_sound else None


def encode_participant(member: Participant) -> bytes:
    return (to_json(member) + "\n").encode()


class _Caller(_Meeting):
    """The side of the others. _trouble: why number 0 has not answered."""

    _trouble = "not tried"

    def run(self) -> dict[str, socket.socket]:
        """Until number 0 answers that all are there and reach each other."""
        noun, shown = self._place.noun, self._place.shown
        while (connected := self._call()) is None:
            if self._is_over:
                raise LaunchError(
                    f"{noun} {self._own.rank}: {noun} 0 did not answer at {shown} within "
                    f"{self._limit_s:.0f} s: {self._trouble}; expected it to be started there"
                )
            time.sleep(RETRY_S)
        return {f"{noun} 0": connected}

    def _failed(self, trouble: str) -> bool:
        self._trouble = trouble
        if self._is_report_due:
            self._report([0], trouble)
        return False

    def _call(self) -> socket.socket | None:
        """One connection, open when number 0 answers go; None where it came to nothing."""
        left_s = max(0.1, self._began + self._limit_s - time.monotonic())
        address = (self._place.address, self._place.port)
        with contextlib.ExitStack() as opened:
            try:
                connected = opened.enter_context(socket.create_connection(address, min(CONNECT_S, left_s)))
                if connected.getsockname() == connected.getpeername():
                    # TCP's simultaneous open: while nothing listens, a port of the range for clients may be
                    # given to this very connection.
                    raise ConnectionRefusedError
                with self._open_door(connected):
                    connected.sendall(encode_participant(self._own))
                    if self._listen(connected):
                        opened.pop_all()
                        return connected
            except (OSError, UnicodeError) as error:
                self._failed(explain(error))
        return None

    def _listen(self, connected: socket.socket) -> bool:
        connected.settimeout(TICK_S)
        received = b""
        heard = time.monotonic()
        self._trouble = "it waits for other nodes"
        while not self._is_over:
            try:
                data = connected.recv(MAX_LINE_BYTES)
            except TimeoutError:
                # Number 0 reports who is missing more often than that.
                if time.monotonic() - heard > 2 * REPORT_S:
                    self._failed("it accepts and does not answer; another program may have the port")
                continue
            *lines, received = (received + data).split(b"\n")
            if any(self._obey(line, connected) for line in lines):
                return True
            heard = time.monotonic()
            if not data or len(received) > MAX_ANSWER_BYTES:
                return self._failed("it answers and closes the connection")
        return False

    def _obey(self, line: bytes, connected: socket.socket) -> bool:
        """True for go. Raises LaunchError with the fault that number 0 found."""
        try:
            message = json.loads(line)
            if fault := message.get("error"):
                raise LaunchError(str(fault)[:MAX_LINE_BYTES])
            if missing := [int(rank) for rank in message.get("missing", ())]:
                self._report(missing)
            if doors := [from_table(Door, table) for table in message.get("doors", ())]:
                at_0 = connected.getpeername()[0]  # where it listens on all interfaces
                doors = [
                    replace(door, address=at_0) if door.address in EVERYWHERE else door for door in doors
                ]
                closed = closed_doors(doors, self._own.rank)[:MOST_SHOWN]
                connected.settimeout(CONNECT_S)
                connected.sendall((json.dumps({"closed": closed}) + "\n").encode())
                connected.settimeout(TICK_S)
            return message.get("go") is True
        except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
            return False  # no message of ours


def open_store(environment: Mapping[str, str], rank: int, timeout_s: float) -> TCPStore:
    """The job's store: torchrun's own, or that of rank 0 (`served_store`). Waits for no rank but rank 0.

    Raises LaunchError where it is not served within `timeout_s`.
    """
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    is_torchruns = _launcher_serves(environment)
    try:
        # At rank 0 it shares the server that is there: torch's lives as long as one of its stores.
        is_master = rank == 0 and not is_torchruns
        return _store(address, port, timedelta(seconds=timeout_s), is_master=is_master)
    except RuntimeError as error:
        server = "torchrun on node 0" if is_torchruns else "rank 0"
        raise LaunchError(
            f"rank {rank}: {server} did not answer at {address}:{port} within {timeout_s:g} s"
        ) from error


def serve_store(listener: socket.socket) -> TCPStore:
    """A store behind a listening socket; its server lives as long as it, or a store beside it, does.

    torch gives every further store of this process that is to serve the same port this one's server.
    """
    host, port = listener.getsockname()[:2]
    host = "localhost" if is_everywhere(listener) else host
    return _store(host, port, STORE_TIMEOUT, is_master=True, master_listen_fd=listener.detach())


def _store(host: str, port: int, timeout: timedelta, **options: Any) -> TCPStore:  # noqa: ANN401
    # torch.distributed has the same name, but does not export it to type checkers.
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(
        host_name=host, port=port, timeout=timeout, wait_for_workers=False, multi_tenant=True, **options
    )


def _launcher_serves(environment: Mapping[str, str]) -> bool:
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


@contextlib.contextmanager
def served_store(environment: MutableMapping[str, str]) -> Iterator[None]:
    """While ranks meet: rank 0 serves the store, on MASTER_ADDR alone, unless a launcher above it does.

    A process that is alone takes another port where its own was taken meanwhile.
    """
    serves = environment.get("RANK") == "0" and not _launcher_serves(environment)
    if not serves or "MASTER_ADDR" not in environment:
        yield
        return
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    try:
        listener = listen_on(address, port)
    except PortInUseError:
        if environment.get("WORLD_SIZE", "1") != "1":
            raise
        listener = listen_on(address, ANY_PORT)
        environment["MASTER_PORT"] = str(listener.getsockname()[1])
    store = serve_store(listener)
    yield
    del store  # the process group has another one by now, with the same server


def lone_process_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Rendezvous variables for one process that no launcher started, which talks to no other machine."""
    lone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    own = {name: environment.get(name, "lo") for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return {**lone, **own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
