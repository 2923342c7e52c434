"""What the head and the agents of the hosts tell each other: JSON, one object a line, on stdin and stdout.

The agent's stdout carries nothing else: output of the job travels inside messages, so that no line of a
program can be taken for a message.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from alphazero.base.errors import LaunchError
from alphazero.run.rank import Phase

VERSION = 2
# Head to agent, after the job: a beat a second, and three wishes.
BEAT, STOP, END, STACKS = "beat", "stop", "end", "stacks"
BEAT_S = 1.0


@dataclass(frozen=True)
class NodeJob:
    """All that an agent needs to start one host's part of a job, and to watch over it.

    token: in the environment of every process of the job. host: what messages and log files call this host.
    argv, variables, removed: the launcher's command and what changes in its environment. directory: where
    it runs. run_directory: where logs go and heartbeats and checkpoints are looked for.
    first_rank, num_ranks: the ranks of this host. silence_s: the head is gone when it says nothing for so
    long. grace_s: from SIGTERM to SIGKILL. columns: width of the head's terminal, 0 where there is none.
    """

    token: str
    host: str
    argv: tuple[str, ...]
    variables: dict[str, str]
    removed: tuple[str, ...]
    directory: str
    run_directory: str
    first_rank: int
    num_ranks: int
    silence_s: float = 10.0
    grace_s: float = 5.0
    columns: int = 0


@dataclass(frozen=True)
class Output:
    """Text that a rank (None: the launcher above the ranks) wrote: whole lines, or pieces for a terminal."""

    rank: int | None
    text: str


@dataclass(frozen=True)
class RankState:
    """A rank as its host sees it: its last heartbeat (step -1, START before the first), its process.

    age_s: since step, phase or progress last changed, by the agent's clock. median_step_s: 0 until steps have
    been timed. state: of the process, a letter as in ps ("T" stopped, "D" in an uninterruptible call, "" gone
    or not yet there).
    """

    rank: int
    step: int
    phase: Phase
    progress: int
    age_s: float
    median_step_s: float
    pid: int
    state: str


@dataclass(frozen=True)
class Beat:
    """The agent's sign of life."""

    ranks: tuple[RankState, ...]
    newest_checkpoint: int  # step of the newest one on this host, -1 where there is none


@dataclass(frozen=True)
class Ended:
    """This host's part is over and nothing of it runs any more.

    status: 128 + N for a death by signal N. rank: the one that failed first, None where it was the launcher
    or nothing failed. seconds_ago: since that failure. fate: how it ended. cause: why, in its own words.
    kind: of the failure (rank_failure.py), "" where nobody said. ranks: those at fault, where the rank that
    failed knows others.
    log: path of its output on that host. num_left: processes that outlived the launcher and were ended.
    asked: the signal by which somebody other than the head (a batch system) asked for the end, 0 for none.
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


Message = Output | Beat | Ended
KINDS: dict[str, type[Output] | type[Beat] | type[Ended]] = {"output": Output, "beat": Beat, "ended": Ended}


def encode_job(job: NodeJob) -> bytes:
    """The first line an agent reads."""
    return (json.dumps({"version": VERSION, **dataclasses.asdict(job)}) + "\n").encode()


def decode_job(line: bytes) -> NodeJob:
    """The job in an agent's first line; LaunchError where it is none of this version."""
    try:
        table: dict[str, Any] = json.loads(line)
        version = table.pop("version")
        table["argv"], table["removed"] = tuple(table["argv"]), tuple(table["removed"])
        job = NodeJob(**table)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LaunchError(f"node agent: first line is no job ({error}); started by hand?") from error
    if version != VERSION:
        raise LaunchError(f"node agent: protocol {version}; expected {VERSION}: another commit on the head")
    return job


def encode(message: Message) -> bytes:
    """A message of the agent as its line."""
    kind = next(name for name, kind in KINDS.items() if isinstance(message, kind))
    return (json.dumps({kind: dataclasses.asdict(message)}) + "\n").encode()


def decode(line: bytes) -> Message | None:
    """The message in a line of an agent; None for anything else (what a login script of the host prints)."""
    try:
        table = json.loads(line)
        (kind, fields), *more = table.items()
        if kind == "beat":
            fields["ranks"] = tuple(map(_rank_state, fields["ranks"]))
        elif kind == "ended":
            fields["ranks"] = tuple(fields["ranks"])
        return None if more else KINDS[kind](**fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _rank_state(fields: dict[str, Any]) -> RankState:
    return RankState(**{**fields, "phase": Phase(fields["phase"])})
