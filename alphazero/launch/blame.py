"""Which rank of a job is to blame: by the kinds of failures in the accounts of ranks, never by their wording.

The launcher above the ranks of a host finds which of them failed first; the head compares hosts.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from alphazero.base.errors import ERRORS_BY_KIND, AlphaZeroError, LostConnectionError, TrainingError
from alphazero.base.text import exit_text
from alphazero.run.rank import OUT_OF_MEMORY, STOPPED, Failure, read_record

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


def order_in_job(failure: Failure) -> tuple[int, float]:
    """Among hosts: one or its launcher that was lost or killed comes first."""
    return 0 if failure.rank is None else order_of_blame(failure.kind), failure.at


def order_of_blame(kind: str) -> int:
    """What was killed or hung, what knew why it ended, what crashed, then those that missed one of these."""
    if kind in (SIGNAL, HANG):
        return 0
    if kind in (LostConnectionError.kind, TERMINATED, STOPPED):
        return 3
    return 1 if kind in ERRORS_BY_KIND or kind == OUT_OF_MEMORY else 2


def read_account(directory: Path | None, local_rank: int) -> Failure | None:
    """The account of a rank; None where it left none."""
    return read_record(Failure, directory / f"{local_rank}.account.json") if directory else None


def failure_of(rank: int, local_rank: int, pid: int, exit_code: int, accounts: Path | None) -> Failure:
    """The failure of a rank as its launcher sees it. exit_code: -N for a death by signal N."""
    fate, status = f"(pid {pid}) {exit_text(exit_code)}", exit_code if exit_code >= 0 else 128 - exit_code
    if account := read_account(accounts, local_rank):
        return replace(account, rank=rank, fate=fate, status=status)
    if exit_code < 0:
        kind = TERMINATED if -exit_code in (signal.SIGTERM, signal.SIGABRT) else SIGNAL
    else:
        kind = KINDS_BY_STATUS.get(exit_code, UNKNOWN)
    return Failure(rank=rank, fate=fate, status=status, kind=kind)


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
