"""torchrun with a muster of the nodes before it, and one line about the rank that failed first after it.

`python -m alphazero.training.ranks.torchrun ARGS` takes the arguments of torchrun's static rendezvous.
torchrun ends every failed job with status 1 and a page of its own stack; here 128 + N is the death of a rank
by signal N. The store that ranks meet in listens on the master's address alone: torch's own listens on all
interfaces.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.machine.machine import (
    ANY_PORT,
    is_everywhere,
    listen_on,
    machine_identity,
    names_loopback,
)
from alphazero.run.rank import (
    FAILURE_VARIABLE,
    OUTPUT_VARIABLE,
    FirstFailure,
    RankEnd,
    first_failure,
    write_first_failure,
)
from alphazero.training.ranks import meeting as muster

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

START_TIMEOUT_S = 1800.0
AGENT_LOGGER = "torch.distributed.elastic.agent.server.api"
PROCESS_LOGGER = "torch.distributed.elastic.multiprocessing.api"
# What torchrun says of every job in which a rank ends early; `report` says it with the reason.
SAID_BY_REPORT = ("failed (exitcode: ", "Sending process ", "Closing process ")


class ExitBarrierFilter(logging.Filter):
    """Leaves out that the barrier at the end of a job was broken: this host's ranks have all ended well.

    torchrun waits there for the other hosts, which it need not, and shows a traceback when one of them, as
    the one that serves the barrier, leaves earlier.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False for that record."""
        return not (record.funcName == "_exit_barrier" and record.exc_info)


class FailureFilter(logging.Filter):
    """Leaves out what `report` says better: which rank failed, and that the others are ended for it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for those records."""
        return not str(record.msg).startswith(SAID_BY_REPORT)


@dataclass(frozen=True)
class Arguments:
    """What this program is told. start_timeout_s: for all nodes to come. any_port: another port will do.

    job: the trainer and its arguments, preceded by --module where it is one.
    """

    num_processes: str
    num_nodes: int
    node_rank: int
    master_addr: str
    master_port: int
    start_timeout_s: float
    any_port: bool
    job: tuple[str, ...]

    def for_torchrun(self) -> list[str]:
        """torchrun's own arguments."""
        return [
            f"--nproc_per_node={self.num_processes}",
            f"--nnodes={self.num_nodes}",
            f"--node_rank={self.node_rank}",
            f"--master_addr={self.master_addr}",
            f"--master_port={self.master_port}",
            *self.job,
        ]


def read_arguments(arguments: Sequence[str]) -> Arguments:
    """The arguments as commands.torchrun_command writes them."""
    parser = argparse.ArgumentParser(prog="python -m alphazero.training.ranks.torchrun", allow_abbrev=False)
    parser.add_argument("--nproc_per_node", default="1")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node_rank", type=int, default=0)
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", type=int, default=12355)
    parser.add_argument("--start_timeout", type=float, default=START_TIMEOUT_S)
    parser.add_argument("--any_port", action="store_true")
    parser.add_argument("--module", action="store_true")
    parser.add_argument("job", nargs=argparse.REMAINDER)
    args = parser.parse_args(list(arguments))
    return Arguments(
        args.nproc_per_node,
        args.nnodes,
        args.node_rank,
        args.master_addr,
        args.master_port,
        args.start_timeout,
        args.any_port,
        (*(("--module",) if args.module else ()), *args.job),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns 0, or the exit status of the rank that failed first."""
    told = read_arguments(arguments)
    # torch reads it when it is imported: its retries and their C++ stacks are no news to people.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        told, listener = meet(told)
    except LaunchError as error:
        return refuse(error)
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from alphazero.training.ranks.meeting import serve_store

    logging.getLogger(AGENT_LOGGER).addFilter(ExitBarrierFilter())
    logging.getLogger(PROCESS_LOGGER).addFilter(FailureFilter())
    store = serve_store(listener) if listener else None  # torchrun's own finds its server and shares it
    try:
        torchrun.main(told.for_torchrun())
    except ChildFailedError as error:
        return report(error.failures)
    except SignalException as error:
        print(f"alphazero: ended by {error.sigval.name}", file=sys.stderr)
        return 128 + int(error.sigval)
    finally:
        del store
    return 0


def meet(told: Arguments) -> tuple[Arguments, socket.socket | None]:
    """Until all nodes are there; on node 0 the socket for the store, and the port that it has got.

    Raises LaunchError where nodes do not come or do not fit, PortInUseError where the port is taken.
    """
    own = muster.Member(told.node_rank, told.num_nodes, socket.gethostname(), machine_identity())
    listener = None
    if told.node_rank == 0:
        listener, told = _listen(told)
    place = muster.Place(told.master_addr, told.master_port, one_machine=names_loopback(told.master_addr))
    if told.num_nodes > 1 and listener is not None:
        muster.receive_all(listener, own, place, told.start_timeout_s, _say)
    elif told.num_nodes > 1:
        muster.report_to(own, place, told.start_timeout_s, _say)
    return told, listener


def _listen(told: Arguments) -> tuple[socket.socket, Arguments]:
    try:
        listener = listen_on(told.master_addr, told.master_port)
    except PortInUseError:
        if not told.any_port:
            raise
        listener = listen_on(told.master_addr, ANY_PORT)
        port = int(listener.getsockname()[1])
        _say(f"port {told.master_port} is in use here: taking {port}")
        return listener, replace(told, master_port=port)
    if is_everywhere(listener):
        _say(f"{told.master_addr} is no address of this machine: listening on all of them")
    return listener, told


def _say(text: str) -> None:
    print(f"alphazero: {text}", file=sys.stderr, flush=True)


def refuse(error: LaunchError, environment: Mapping[str, str] = os.environ) -> int:
    """Say why no rank was started, to the agent where there is one; returns the exit status."""
    if file := environment.get(FAILURE_VARIABLE):
        fate = "could not start its ranks"
        failure = FirstFailure(None, fate, error.kind, (), str(error), time.monotonic())
        write_first_failure(failure, Path(file))
    else:
        print(f"alphazero: error: {error}", file=sys.stderr)
    return error.exit_code


def report(failures: Mapping[int, ProcessFailure], environment: Mapping[str, str] = os.environ) -> int:
    """Say which rank failed first and how; returns its exit status (128 + N for signal N)."""
    ends = [
        RankEnd(rank, failure.local_rank, failure.pid, failure.exitcode)
        for rank, failure in sorted(failures.items())
    ]
    accounts = environment.get(OUTPUT_VARIABLE)
    end, failure = first_failure(ends, Path(accounts) if accounts else None)
    if file := environment.get(FAILURE_VARIABLE):  # the head says it, of all hosts
        write_first_failure(failure, Path(file))
    else:
        print(f"alphazero: error: rank {end.rank} on {socket.gethostname()} {end.fate}", file=sys.stderr)
    others = [f"rank {other.rank} {other.fate}" for other in ends if other is not end]
    if others:
        print(f"alphazero: then {'; '.join(others)}", file=sys.stderr)
    return end.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
