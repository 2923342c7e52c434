"""torchrun, with one line about the rank that failed first, and that rank's exit status.

`python -m alphazero.ranks.torchrun ARGS` takes torchrun's own arguments. torchrun ends every failed job
with status 1 and a page of its own stack; here 128 + N is the death of a rank by signal N.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from alphazero.cluster.agent.node_agent import FAILURE_VARIABLE


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns 0, or the exit status of the rank that failed first."""
    try:
        torchrun.main(list(arguments))
    except ChildFailedError as error:
        return report(error.failures)
    except SignalException as error:
        print(f"alphazero: ended by {error.sigval.name}", file=sys.stderr)
        return 128 + int(error.sigval)
    return 0


def report(failures: dict[int, ProcessFailure]) -> int:
    """Say which rank failed first and how; returns its exit status (128 + N for signal N)."""
    rank = min(failures, key=lambda rank: _precedence(failures[rank]))
    host = socket.gethostname()
    if file := os.environ.get(FAILURE_VARIABLE):  # the head says it, of all hosts
        account = {"rank": rank, "fate": _fate(failures[rank]), "time_s": failures[rank].timestamp}
        Path(file).write_text(json.dumps(account), encoding="utf-8")
    else:
        print(f"alphazero: error: rank {rank} on {host} {_fate(failures[rank])}", file=sys.stderr)
    others = [f"rank {other} {_fate(failures[other])}" for other in sorted(failures) if other != rank]
    if others:
        print(f"alphazero: then {'; '.join(others)}", file=sys.stderr)
    return _exit_status(failures[rank])


def _precedence(failure: ProcessFailure) -> tuple[int, int]:
    """Time first. It is whole seconds: within one, a killed rank comes before one that ended knowing why
    (exit status 2), and both before those that missed them."""
    was_killed = failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM
    return failure.timestamp, 0 if was_killed else 1 if failure.exitcode == 2 else 2


def _fate(failure: ProcessFailure) -> str:
    if failure.exitcode >= 0:
        return f"(pid {failure.pid}) ended with exit status {failure.exitcode}"
    name = failure.signal_name()
    hint = ": perhaps out of memory, see dmesg" if failure.exitcode == -signal.SIGKILL else ""
    return f"(pid {failure.pid}) was killed by {name}{hint}"


def _exit_status(failure: ProcessFailure) -> int:
    return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
