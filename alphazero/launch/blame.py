"""Which rank of a job is to blame: by the kinds of failures in the accounts of ranks, never by their wording.

The launcher above the ranks of a host finds which of them failed first; the head compares hosts.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.errors import ERRORS_BY_KIND, AlphaZeroError, LostConnectionError, TrainingError
from alphazero.base.text import exit_text
from alphazero.run.rank import OUT_OF_MEMORY, STOPPED, RankFailure, read_record

# Where the launcher above the ranks leaves its account of the first failure: a file in the private directory
# of the agent, which is removed with it.
FAILURE_VARIABLE = "ALPHAZERO_FAILURE_FILE"
# Kinds of failures beside those of errors.py and run/rank.py.
HANG = "hang"
SIGNAL = "signal"  # killed by the system or by a person
TERMINATED = "terminated"  # by SIGTERM, or by NCCL's watchdog with SIGABRT: something else came before
UNKNOWN = ""  # no account: of another program, or from before accounts
# What an exit status means where a rank left no account.
KINDS_BY_STATUS = {AlphaZeroError.exit_code: AlphaZeroError.kind, TrainingError.exit_code: TrainingError.kind}
LATE_S = 1.0  # a rank that fails so much later than another fails because of it


@dataclass(frozen=True)
class Failure:
    """What went wrong first: on which host, in which rank (None: the host's launcher, or the host).

    fate: how it ended; cause: why, in its own words. status: 128 + N for a death by signal N. kind: of
    errors.py, run/rank.py, or from above. ranks: those at fault, where the rank that failed knows others. at:
    when it came to pass, by time.monotonic() of the process that has this record, 0 where it is not known.
    The launcher of a host leaves it for the agent there without host and log, and the agent sends it to the
    head.
    """

    host: str
    rank: int | None
    fate: str
    cause: str = ""
    log: str = ""
    status: int = 1
    kind: str = UNKNOWN
    ranks: tuple[int, ...] = ()
    at: float = 0.0

    @property
    def key(self) -> tuple[int, float]:
        """Order of blame: a host or launcher that was lost or killed comes first."""
        return 0 if self.rank is None else order_of_blame(self.kind), self.at

    @property
    def line(self) -> str:
        """All of it, as printed."""
        who = f"{self.host}" if self.rank is None else f"rank {self.rank} on {self.host}"
        cause = f": {self.cause.removeprefix('alphazero: error: ')}" if self.cause else ""
        log = f" (log: {self.host}:{self.log})" if self.log else ""
        return f"{who} {self.fate}{cause}{log}"


def order_of_blame(kind: str) -> int:
    """What was killed or hung, what knew why it ended, what crashed, then those that missed one of these."""
    if kind in (SIGNAL, HANG):
        return 0
    if kind in (LostConnectionError.kind, TERMINATED, STOPPED):
        return 3
    return 1 if kind in ERRORS_BY_KIND or kind == OUT_OF_MEMORY else 2


def read_failure(directory: Path | None, local_rank: int) -> RankFailure | None:
    """The account of a rank; None where it left none."""
    return read_record(RankFailure, directory / f"{local_rank}.account.json") if directory else None


def failure_of(rank: int, local_rank: int, pid: int, exit_code: int, accounts: Path | None) -> Failure:
    """The failure of a rank as its launcher sees it. exit_code: -N for a death by signal N."""
    fate, status = f"(pid {pid}) {exit_text(exit_code)}", exit_code if exit_code >= 0 else 128 - exit_code
    account = read_failure(accounts, local_rank)
    if account is not None:
        text, kind, ranks = account.text, account.kind, account.ranks
        return Failure("", rank, fate, text, "", status, kind, ranks, account.at_s)
    if exit_code < 0:
        kind = TERMINATED if -exit_code in (signal.SIGTERM, signal.SIGABRT) else SIGNAL
    else:
        kind = KINDS_BY_STATUS.get(exit_code, UNKNOWN)
    return Failure("", rank, fate, status=status, kind=kind)


def first_failure(failures: Sequence[Failure]) -> Failure:
    """Of ranks of one host that failed, the one to blame.

    A rank that failed later than another, by its account, fails because of it. Among the others the kind of
    failure counts (order_of_blame), then the moment.
    """
    earliest = min((failure.at for failure in failures if failure.at), default=0.0)

    def precedence(failure: Failure) -> tuple[bool, int, float]:
        at = failure.at or earliest
        return at > earliest + LATE_S, order_of_blame(failure.kind), at

    return min(failures, key=precedence)
