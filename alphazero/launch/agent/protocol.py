"""Messages between the head and the agents of the hosts: JSON, one object per line, over pipes (stdin and
stdout of a remote agent).

The agent's stdout carries nothing else: output of the job travels inside messages, so that no line of a
program can be taken for a message.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from alphazero.base.errors import LaunchError
from alphazero.base.records import from_table
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.run.rank import Failure
from alphazero.run.rank_watch import RankState

VERSION = 6
# Head to agent, after the plan: a beat a second, and three requests.
BEAT, STOP, END, STACKS = "beat", "stop", "end", "stacks"
BEAT_S = 1.0
CHUNK_BYTES = 1 << 16
MOST_LINE_BYTES = 16 << 20  # no message of ours is as long


@dataclass(frozen=True)
class Output:
    """Text that a rank (None: the launcher above the ranks) wrote: whole lines, or pieces for a terminal."""

    rank: int | None
    text: str


@dataclass(frozen=True)
class Beat:
    """The agent's sign of life."""

    ranks: tuple[RankState, ...]
    newest_checkpoint: int  # step of the newest one on this host, -1 where there is none


@dataclass(frozen=True)
class Ended:
    """This host's part is over and nothing of it runs.

    status: 128 + N for a death by signal N. failure: what failed first, None where nothing did;
    seconds_ago: the time from that failure to this message. log: path of the launcher's output on that host.
    num_left: processes that outlived the launcher and were ended. asked: the signal by which something other
    than the head (a batch system) requested the end, 0 for none. stopped: the signal to a rank, here or
    elsewhere, for which all saved and ended early, 0 for none.
    """

    status: int
    failure: Failure | None
    seconds_ago: float
    log: str
    num_left: int
    newest_checkpoint: int
    asked: int = 0
    stopped: int = 0


Message = Output | Beat | Ended
KINDS: dict[str, type[Output] | type[Beat] | type[Ended]] = {"output": Output, "beat": Beat, "ended": Ended}


def encode_plan(plan: LaunchPlan, node_rank: int) -> bytes:
    """The first line that the agent of a host reads: the plan, with the commands of other hosts left out."""
    hosts = [
        host if rank == node_rank else replace(host, machine=None, command=None, actors=())
        for rank, host in enumerate(plan.hosts)
    ]
    plan = replace(plan, hosts=tuple(hosts))
    table = {"version": VERSION, "node_rank": node_rank, "plan": asdict(plan)}
    return (json.dumps(table, default=str) + "\n").encode()


def decode_plan(line: bytes) -> tuple[LaunchPlan, int]:
    """The plan in an agent's first line, and its host's node rank; LaunchError for another version."""
    try:
        table = json.loads(line)
        version = table["version"]
        if version != VERSION:
            raise LaunchError(
                f"node agent: protocol {version}; expected {VERSION}: another commit on the head"
            )
        return from_table(LaunchPlan, table["plan"]), int(table["node_rank"])
    except (ValueError, TypeError, KeyError) as error:
        raise LaunchError(f"node agent: first line is no plan ({error}); started by hand?") from error


class Channel:
    """Lines over a pipe in each direction; neither reading nor writing waits for the other side."""

    def __init__(self, reader: int, writer: int) -> None:
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.reader = reader
        self.is_closed = False  # by the other side
        self._writer = writer
        self._received = b""
        self.unsent = bytearray()  # what the other side has not taken

    def read(self) -> list[bytes]:
        """Whole lines that have come since the last call."""
        try:
            data = os.read(self.reader, CHUNK_BYTES)
        except BlockingIOError:
            return []
        self.is_closed = not data
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > MOST_LINE_BYTES:
            self._received = b""
        return lines

    def put(self, data: bytes) -> None:
        """Write as much as the pipe takes now; the rest goes with later calls."""
        self.unsent += data
        self.flush()

    def flush(self) -> bool:
        """Write what can be written now; True when nothing is left."""
        while self.unsent:
            try:
                del self.unsent[: os.write(self._writer, self.unsent[:CHUNK_BYTES])]
            except BlockingIOError:
                return False
            except OSError:  # the reader is gone, which its other pipe shows
                self.unsent.clear()
        return True


def encode(message: Message) -> bytes:
    """A message of the agent as its line."""
    kind = next(name for name, kind in KINDS.items() if isinstance(message, kind))
    return (json.dumps({kind: asdict(message)}) + "\n").encode()


def decode(line: bytes) -> Message | None:
    """The message in a line of an agent; None for anything else (what a login script of the host prints)."""
    try:
        ((kind, fields),) = json.loads(line).items()
        return from_table(KINDS[kind], fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
