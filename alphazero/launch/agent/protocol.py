"""Messages between the head and the agents of the hosts: JSON, one object per line, on stdin and stdout.

The agent's stdout carries nothing else: output of the job travels inside messages, so that no line of a
program can be taken for a message.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from alphazero.base.errors import LaunchError
from alphazero.base.records import from_table, to_json
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.run.rank_watch import RankState

VERSION = 4
# Head to agent, after the plan: a beat a second, and three wishes.
BEAT, STOP, END, STACKS = "beat", "stop", "end", "stacks"
BEAT_S = 1.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class NodeStart:
    """What an agent gets first: the plan, and which of its hosts this one is."""

    version: int
    node_rank: int
    plan: LaunchPlan


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

    status: 128 + N for a death by signal N. rank: the first to fail, None where it was the launcher
    or nothing failed. seconds_ago: since that failure. fate: how it ended. cause: why, in its own words.
    kind: of the failure (run/rank.py), "" if unknown. ranks: those at fault, where the rank that failed knows
    others.
    log: path of its output on that host. num_left: processes that outlived the launcher and were ended.
    asked: the signal by which something other than the head (a batch system) requested the end, 0 for none.
    stopped: the signal to a rank, here or elsewhere, for which all saved and ended early, 0 for none.
    """

    status: int
    rank: int | None
    seconds_ago: float
    fate: str
    cause: str
    log: str
    num_left: int
    newest_checkpoint: int
    asked: int = 0
    kind: str = ""
    ranks: tuple[int, ...] = ()
    stopped: int = 0


Message = Output | Beat | Ended
KINDS: dict[str, type[Output] | type[Beat] | type[Ended]] = {"output": Output, "beat": Beat, "ended": Ended}


def encode_plan(plan: LaunchPlan, node_rank: int) -> bytes:
    """The first line that the agent of a host reads: the plan, with the commands of other hosts left out."""
    hosts = [
        host if rank == node_rank else replace(host, machine=None, command=None)
        for rank, host in enumerate(plan.hosts)
    ]
    return (to_json(NodeStart(VERSION, node_rank, replace(plan, hosts=tuple(hosts)))) + "\n").encode()


def decode_plan(line: bytes) -> tuple[LaunchPlan, int]:
    """The plan in an agent's first line, and its host's node rank; LaunchError for another version."""
    try:
        table = json.loads(line)
        version = table["version"]
        if version != VERSION:
            raise LaunchError(
                f"node agent: protocol {version}; expected {VERSION}: another commit on the head"
            )
        start = from_table(NodeStart, table)
    except (ValueError, TypeError, KeyError) as error:
        raise LaunchError(f"node agent: first line is no plan ({error}); started by hand?") from error
    return start.plan, start.node_rank


class Outbox:
    """What is to be written to a pipe whose reader may be slow: nothing here ever waits for it."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._unsent = bytearray()

    def __len__(self) -> int:
        return len(self._unsent)

    def put(self, data: bytes) -> None:
        """Write as much as the pipe takes now; the rest goes with later calls."""
        self._unsent += data
        self.flush()

    def flush(self) -> bool:
        """Write what can be written now; True when nothing is left."""
        while self._unsent:
            try:
                del self._unsent[: os.write(self._descriptor, self._unsent[:CHUNK_BYTES])]
            except BlockingIOError:
                return False
            except OSError:  # the reader is gone, which its other pipe shows
                self._unsent.clear()
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
