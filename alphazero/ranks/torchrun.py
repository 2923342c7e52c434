"""torchrun, with one line about the rank that failed first, and that rank's exit status.

`python -m alphazero.ranks.torchrun ARGS` takes torchrun's own arguments. torchrun ends every failed job
with status 1 and a page of its own stack; here 128 + N is the death of a rank by signal N.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from alphazero.cluster.agent.rank_failure import (
    FAILURE_VARIABLE,
    RankEnd,
    first_failure,
    write_first_failure,
)
from alphazero.cluster.agent.rank_side import OUTPUT_VARIABLE

AGENT_LOGGER = "torch.distributed.elastic.agent.server.api"


class ExitBarrierFilter(logging.Filter):
    """Leaves out that the barrier at the end of a job was broken: this host's ranks have all ended well.

    torchrun waits there for the other hosts, which it need not, and shows a traceback when one of them, as
    the one that serves the barrier, leaves earlier.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False for that record."""
        return not (record.funcName == "_exit_barrier" and record.exc_info)


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns 0, or the exit status of the rank that failed first."""
    logging.getLogger(AGENT_LOGGER).addFilter(ExitBarrierFilter())
    try:
        torchrun.main(list(arguments))
    except ChildFailedError as error:
        return report(error.failures)
    except SignalException as error:
        print(f"alphazero: ended by {error.sigval.name}", file=sys.stderr)
        return 128 + int(error.sigval)
    return 0


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
