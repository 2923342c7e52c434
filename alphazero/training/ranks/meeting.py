"""The muster: all nodes of a job come to node 0 before torch's rendezvous, and whoever waits says for whom.

Each node connects to the master port and sends one line of JSON that says who it is; node 0 answers all of
them when all are there, and tells those that wait who is missing. torch's own rendezvous follows on the same
port. It would wait in silence, or with traces of C++, and takes two nodes for one.

Who has come how far: ranks note their steps in a store, so that one that hangs the others can be named.

The store where ranks meet, served on the master's address alone: torch's own listens on all interfaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store, TCPStore

from alphazero.base.errors import LaunchError, LostConnectionError, PortInUseError
from alphazero.machine.machine import ANY_PORT, is_everywhere, listen_on
from alphazero.run.rank import note_failure

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


# torch.distributed has the same names, but does not export them to type checkers.


POLL_S = 0.05
# Ranks that do not report wait this long, so that no agent ends the one that does.
GRACE_S = 2.0
FAILED = 2


def open_store(environment: Mapping[str, str], rank: int, timeout_s: float) -> TCPStore:
    """The job's store: torchrun's own, or one that rank 0 opens. Waits for no rank but rank 0.

    Raises LaunchError where nobody serves it within `timeout_s`.
    """
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    agent_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return TCPStore(
            host_name=address,
            port=port,
            is_master=rank == 0 and not agent_serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        server = "torchrun on node 0" if agent_serves else "rank 0"
        if rank == 0 and not agent_serves:
            raise LaunchError(f"{address}:{port}: {_first_line(error)}; expected a free port here") from error
        raise LaunchError(
            f"rank {rank}: {server} did not answer at {address}:{port} within {timeout_s:g} s"
        ) from error


class RollCall:
    """Steps of all ranks in the store, and a limit on each step.

    Before each step that waits for others a rank notes it (`enter`). A thread with a connection of its own
    looks at the clock: past the limit, the ranks that entered fewer steps are named and the process ends
    with status 2, whatever the main thread hangs in.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        rank: int,
        world_size: int,
        limit_s: float,
        place_of: Callable[[int], str],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._store = connect()
        self._connect = connect
        self._rank = rank
        self._world_size = world_size
        self._limit_s = limit_s
        self._place_of = place_of
        self._end = end
        self._steps = 0
        self._step = "start"
        self._deadline = time.monotonic() + limit_s
        self._finished = threading.Event()
        self._watch = threading.Thread(target=self._watch_clock, name="roll call", daemon=True)

    def start(self) -> None:
        """Note that this rank is there, and return when all are."""
        self.enter("start")
        self._watch.start()
        self._wait_for(self._key)

    def enter(self, step: str) -> None:
        """This rank comes to `step`, where it will wait for the others; the clock starts anew."""
        self._step = step
        self._steps += 1
        self._deadline = time.monotonic() + self._limit_s
        self._store.set(self._key(self._rank), str(self._steps))

    def gather(self, name: str, text: str) -> list[str]:
        """Every rank's `text`, by rank, through the store alone."""
        self.enter(name)
        self._store.set(f"preflight/{name}/{self._rank}", text)
        keys = self._wait_for(lambda rank: f"preflight/{name}/{rank}")
        return [self._store.get(key).decode() for key in keys]

    def finish(self) -> None:
        """The end: rank 0, which may serve the store, leaves last."""
        self.enter("end")
        self._store.set(f"preflight/left/{self._rank}", "")
        if self._rank == 0:
            self._wait_for(lambda rank: f"preflight/left/{rank}")
        self._finished.set()

    def _wait_for(self, key_of: Callable[[int], str]) -> list[str]:
        """The keys of all ranks, when all are set. Raises LaunchError where the store ends before."""
        keys = [key_of(rank) for rank in range(self._world_size)]
        try:
            while not self._store.check(keys):
                time.sleep(POLL_S)
        except RuntimeError as error:
            raise LostConnectionError(self._lost()) from error
        return keys

    def _lost(self) -> str:
        return f"rank {self._rank} at step {self._step!r}: what served the store, on node 0, has ended"

    def _key(self, rank: int) -> str:
        return f"preflight/steps/{rank}"

    def _watch_clock(self) -> None:
        try:
            store = self._connect()  # the main thread may wait in its own connection, lock held
            while not self._finished.wait(POLL_S):
                if time.monotonic() > self._deadline:
                    self._report(self._behind(store))
                    break
            else:
                return
        except (RuntimeError, LaunchError):
            if self._finished.wait(GRACE_S):  # the main thread sees it too, unless it hangs
                return
            self._say(LostConnectionError(self._lost()))
        self._end(FAILED)

    def _behind(self, store: Store) -> list[int]:
        """The ranks that entered fewer steps than this one."""
        behind = []
        for rank in range(self._world_size):
            key = self._key(rank)
            if not store.check([key]) or int(store.get(key)) < self._steps:
                behind.append(rank)
        return behind

    def _report(self, behind: Sequence[int]) -> None:
        """One rank speaks: the lowest that is not behind."""
        speaker = next(rank for rank in range(self._world_size) if rank not in behind)
        if speaker != self._rank:
            self._finished.wait(GRACE_S)
            return
        if behind:
            named = ", ".join(f"rank {rank} ({self._place_of(rank)})" for rank in behind)
            what = f"{named} did not come to step {self._step!r} within {self._limit_s:g} s"
        else:
            what = (
                f"all ranks came to step {self._step!r} and none came through within {self._limit_s:g} s: "
                "is the network between them open on all ports (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)?"
            )
        self._say(LaunchError(what, ranks=behind))

    @staticmethod
    def _say(error: LaunchError) -> None:
        """To people, and to the agent of this host: the process ends without raising it."""
        note_failure(error, FAILED)
        print(f"alphazero: error: preflight: {error}", file=sys.stderr, flush=True)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


# torch.distributed has the same names, but does not export them to type checkers.


CONNECT_TIMEOUT = timedelta(seconds=60)


def serve_store(listener: socket.socket) -> TCPStore:
    """A store behind a socket that listens already; its server goes on while it or a store beside it lives.

    torch gives every further store of this process that is to serve the same port this one's server.
    """
    host, port = listener.getsockname()[:2]
    return TCPStore(
        host_name="localhost" if is_everywhere(listener) else host,
        port=port,
        is_master=True,
        timeout=CONNECT_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener.detach(),
    )


@contextlib.contextmanager
def served_store(environment: MutableMapping[str, str]) -> Iterator[None]:
    """While ranks meet: rank 0 serves the store, on MASTER_ADDR alone, unless a launcher above it does.

    A process that is alone takes another port where its own was taken meanwhile.
    """
    launcher_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if environment.get("RANK") != "0" or launcher_serves or "MASTER_ADDR" not in environment:
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
    del store  # the process group has one of its own by now, with the same server
