"""torchrun with a meeting of the nodes before it, and one line about the rank that failed first after it.

It takes the arguments of torchrun's static rendezvous.
torchrun ends every failed job with status 1 and a page of its stack; here 128 + N is the death of a rank
by signal N. The store that ranks meet in listens on the master's address alone: torch's own listens on all
interfaces.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import LaunchError, LostConnectionError
from alphazero.base.log import error_line
from alphazero.base.text import escaped
from alphazero.launch.blame import FAILURE_VARIABLE, failure_of, first_failure
from alphazero.launch.node.host_link import LostNode, tell_nodes, watch_nodes
from alphazero.launch.node.meeting import MeetingPoint, Participant
from alphazero.launch.node.meeting import meet as meet_nodes
from alphazero.launch.node.store import serve_store
from alphazero.machine.machine import (
    DEFAULT_PORT,
    is_everywhere,
    listen_on,
    machine_identity,
    names_loopback,
)
from alphazero.run.rank import OUTPUT_VARIABLE, Failure, end_process, write_record

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

START_TIMEOUT_S = 1800.0
AGENT_LOGGER = "torch.distributed.elastic.agent.server.api"
PROCESS_LOGGER = "torch.distributed.elastic.multiprocessing.api"
# What torchrun prints of every job in which a rank ends early; `report` prints it with the reason.
LEFT_TO_REPORT = ("failed (exitcode: ", "Sending process ", "Closing process ")


def is_news(record: logging.LogRecord) -> bool:
    """False for what `report` prints better, and for a broken barrier at the end of a job.

    torchrun waits there for the other hosts, which it need not, and shows a traceback when one of them, such
    as the host that serves the barrier, leaves earlier. This host's ranks have all ended well.
    """
    is_broken_barrier = record.funcName == "_exit_barrier" and record.exc_info
    return not (is_broken_barrier or str(record.msg).startswith(LEFT_TO_REPORT))


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments as plan/commands.py writes them; job: the trainer's script and its arguments."""
    parser = argparse.ArgumentParser(prog="torchrun", allow_abbrev=False)
    parser.add_argument("--nproc_per_node", default="1")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node_rank", type=int, default=0)
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--start_timeout", type=float, default=START_TIMEOUT_S)
    parser.add_argument("--silence_timeout", type=float, default=0.0)
    parser.add_argument("job", nargs=argparse.REMAINDER)
    return parser.parse_args(list(arguments))


def for_torchrun(args: argparse.Namespace) -> list[str]:
    """torchrun's own arguments. Its logs of ranks are switched off: nothing ever removes their directory."""
    names = ("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port")
    return [*(f"--{name}={getattr(args, name)}" for name in names), f"--log_dir={os.devnull}", *args.job]


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns 0, or the exit status of the rank that failed first (128 + N for signal N)."""
    args = read_arguments(arguments)
    # torch reads it when it is imported: hide its retries and their C++ stacks.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        listener, others = meet(args)
    except LaunchError as error:
        return refuse(error)
    # One head watches all hosts; nodes that were started by hand watch each other.
    links = others if args.silence_timeout else {}
    watch_nodes(links, args.silence_timeout, end_with)
    status, fate = 1, "its launcher failed"
    try:
        status, fate = run(args, listener)
    finally:
        tell_nodes(links.values(), status, fate)
    return status


def run(args: argparse.Namespace, listener: socket.socket | None) -> tuple[int, str]:
    """torchrun; the exit status of this node's part, and how it ended."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    for name in (AGENT_LOGGER, PROCESS_LOGGER):
        logging.getLogger(name).addFilter(is_news)
    store = serve_store(listener) if listener else None  # torchrun's own finds its server and shares it
    try:
        torchrun.main(for_torchrun(args))
    except ChildFailedError as error:
        failure = report(error.failures)
        return failure.status, f"rank {failure.rank} {failure.fate}"
    except SignalException as error:
        with contextlib.suppress(OSError):  # the agent, which reads it, may be dead
            print(f"alphazero: ended by {error.sigval.name}", file=sys.stderr, flush=True)
        return 128 + int(error.sigval), f"ended by {error.sigval.name}"
    finally:
        del store
    return 0, ""


def end_with(lost: LostNode) -> None:
    """End this node's part at once, as another node is gone: the agent ends the ranks."""
    fate = f"has lost {lost.name}"
    failure = Failure(
        "", None, fate, lost.fate, "", lost.status, LostConnectionError.kind, at=time.monotonic()
    )
    _tell(failure, f"this node {fate}: {lost.fate}", os.environ)
    os._exit(lost.status)


def _tell(failure: Failure, line: str, environment: Mapping[str, str]) -> None:
    """Report a failure to the agent of this host, whose head shows it for all hosts; else to people."""
    if file := environment.get(FAILURE_VARIABLE):
        write_record(Path(file), failure)
    else:
        print(error_line(line), file=sys.stderr, flush=True)


def meet(args: argparse.Namespace) -> tuple[socket.socket | None, dict[str, socket.socket]]:
    """Return when all nodes are there, with the connections to them (meeting.py).

    On node 0 also with the socket for the store.

    Raises LaunchError where nodes do not come or do not fit, PortInUseError where the port is taken.
    """
    listener = listen_on(args.master_addr, args.master_port) if args.node_rank == 0 else None
    if listener and is_everywhere(listener):
        _say(f"{args.master_addr} is not an address of this machine: listening on all of them")
    own = Participant(args.node_rank, args.nnodes, socket.gethostname(), machine_identity())
    is_local = names_loopback(args.master_addr)
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    point = MeetingPoint(args.master_addr, args.master_port, same_machine=is_local, interface=interface)
    return listener, meet_nodes(own, point, args.start_timeout, _say, listener)


def _say(text: str) -> None:
    print(f"alphazero: {escaped(text)}", file=sys.stderr, flush=True)


def refuse(error: LaunchError, environment: Mapping[str, str] = os.environ) -> int:
    """Say why no rank was started; returns the exit status."""
    fate, status = "could not start its ranks", error.exit_code
    failure = Failure("", None, fate, str(error), "", status, error.kind, at=time.monotonic())
    _tell(failure, str(error), environment)
    return error.exit_code


def report(failures: Mapping[int, ProcessFailure], environment: Mapping[str, str] = os.environ) -> Failure:
    """Say which rank failed first and how."""
    directory = environment.get(OUTPUT_VARIABLE)
    accounts = Path(directory) if directory else None
    failed = [
        failure_of(rank, end.local_rank, end.pid, end.exitcode, accounts)
        for rank, end in sorted(failures.items())
    ]
    failure = first_failure(failed)
    _tell(failure, f"rank {failure.rank} on {socket.gethostname()} {failure.fate}", environment)
    others = [f"rank {other.rank} {other.fate}" for other in failed if other is not failure]
    if others:
        print(f"alphazero: then {'; '.join(others)}", file=sys.stderr)
    return failure


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
