"""Why a rank ended, as a JSON file from the rank to its node agent: blame that is read from no sentence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from alphazero.cluster.agent.rank_side import OUTPUT_VARIABLE
from alphazero.errors import ERRORS_BY_KIND, AlphaZeroError, LostConnectionError, TrainingError

FAILURE_VARIABLE = "ALPHAZERO_FAILURE_FILE"  # where the launcher above the ranks says which failed first
MAX_TEXT = 500
# Kinds beside those of errors.py.
CRASH = "crash"  # an exception that nobody foresaw
OUT_OF_MEMORY = "out of memory"
SIGNAL = "signal"  # killed by the system or by somebody
TERMINATED = "terminated"  # by SIGTERM, or by NCCL's watchdog with SIGABRT: something else came before
HANG = "hang"
UNKNOWN = ""  # no account: of another program, or from before accounts
# What an exit status says where a rank left no account.
KINDS_BY_STATUS = {AlphaZeroError.exit_code: AlphaZeroError.kind, TrainingError.exit_code: TrainingError.kind}
LATE_S = 1.0  # a rank that fails so much later than another fails because of it


@dataclass(frozen=True)
class RankFailure:
    """A rank's own account. kind: of errors.py, or from above. ranks: those at fault, () for itself.

    text: one line for people. at_s: time.monotonic(), which all processes of a host share.
    """

    kind: str
    ranks: tuple[int, ...]
    text: str
    status: int
    at_s: float


@dataclass(frozen=True)
class RankEnd:
    """A rank's end as its launcher sees it. exit_code: -N for a death by signal N."""

    rank: int
    local_rank: int
    pid: int
    exit_code: int

    @property
    def fate(self) -> str:
        """For people."""
        if self.exit_code >= 0:
            return f"(pid {self.pid}) ended with exit status {self.exit_code}"
        hint = ": perhaps out of memory, see dmesg" if self.exit_code == -signal.SIGKILL else ""
        return f"(pid {self.pid}) was killed by {signal.Signals(-self.exit_code).name}{hint}"

    @property
    def status(self) -> int:
        """As a shell has it: 128 + N for a death by signal N."""
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code


@dataclass(frozen=True)
class FirstFailure:
    """Which rank of a host failed first and how; rank None: the launcher itself, before any rank began.

    at_s: as in RankFailure, None where the rank did not say.
    """

    rank: int | None
    fate: str
    kind: str
    ranks: tuple[int, ...]
    text: str
    at_s: float | None


def order_of_blame(kind: str) -> int:
    """What was killed or hung, what knew why it ended, what crashed, then those that missed one of these."""
    if kind in (SIGNAL, HANG):
        return 0
    if kind in (LostConnectionError.kind, TERMINATED):
        return 3
    return 1 if kind in ERRORS_BY_KIND or kind == OUT_OF_MEMORY else 2


def note_failure(error: BaseException, status: int, environment: Mapping[str, str] = os.environ) -> None:
    """Called in a rank that is about to end with `status`: leave an account where an agent looks for one."""
    directory, local_rank = environment.get(OUTPUT_VARIABLE), environment.get("LOCAL_RANK")
    if not directory or local_rank is None or isinstance(error, SystemExit):
        return
    ranks = error.ranks if isinstance(error, AlphaZeroError) else ()
    text = str(error) if isinstance(error, (AlphaZeroError, OSError)) else f"{type(error).__name__}: {error}"
    account = RankFailure(kind_of(error), ranks, _line(text), status, time.monotonic())
    # The agent may be gone, or its disk full: the exit status remains.
    with contextlib.suppress(OSError):
        _write(_path(Path(directory), local_rank), asdict(account))


def kind_of(error: BaseException) -> str:
    """The kind of an exception, by its types and by where it was raised."""
    if isinstance(error, AlphaZeroError):
        return error.kind
    # By name: a host without torch knows them too.
    types = {one.__name__ for one in type(error).__mro__}
    if isinstance(error, ConnectionError) or "DistError" in types:
        return LostConnectionError.kind
    if isinstance(error, MemoryError) or "OutOfMemoryError" in types:
        return OUT_OF_MEMORY
    if isinstance(error, OSError):
        return AlphaZeroError.kind
    if isinstance(error, RuntimeError) and _was_raised_in(error, "torch.distributed"):
        return LostConnectionError.kind  # gloo's errors have no type of their own
    return CRASH


def _was_raised_in(error: BaseException, package: str) -> bool:
    """True where the innermost Python function of the traceback is one of `package`."""
    traceback, module = error.__traceback__, ""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        traceback = traceback.tb_next
    return f"{module}.".startswith(f"{package}.")


def read_failure(directory: Path | None, local_rank: int) -> RankFailure | None:
    """The account of a rank; None where it left none."""
    told = _read(_path(directory, str(local_rank))) if directory else None
    try:
        return RankFailure(**told) if told else None
    except TypeError:
        return None


def first_failure(ends: Sequence[RankEnd], directory: Path | None) -> tuple[RankEnd, FirstFailure]:
    """Of ranks of one host that failed, the one to blame. directory: of their accounts, if there is one.

    A rank that says that it failed later than another fails because of it. Of the others counts what they are
    (order_of_blame), then the moment.
    """
    accounts = {end.rank: read_failure(directory, end.local_rank) for end in ends}
    earliest = min((one.at_s for one in accounts.values() if one), default=0.0)

    def precedence(end: RankEnd) -> tuple[bool, int, float]:
        account = accounts[end.rank]
        at_s = account.at_s if account else earliest
        return at_s > earliest + LATE_S, order_of_blame(_kind(end, account)), at_s

    end = min(ends, key=precedence)
    account = accounts[end.rank]
    kind = _kind(end, account)
    if account is None:
        return end, FirstFailure(end.rank, end.fate, kind, (), "", None)
    return end, FirstFailure(end.rank, end.fate, kind, account.ranks, account.text, account.at_s)


def _kind(end: RankEnd, account: RankFailure | None) -> str:
    if account is not None:
        return account.kind
    if end.exit_code < 0:
        return TERMINATED if -end.exit_code in (signal.SIGTERM, signal.SIGABRT) else SIGNAL
    return KINDS_BY_STATUS.get(end.exit_code, UNKNOWN)


def write_first_failure(failure: FirstFailure, path: Path) -> None:
    """For the node agent, by the launcher above the ranks."""
    _write(path, asdict(failure))


def read_first_failure(path: Path) -> FirstFailure | None:
    """What the launcher said; None where it said nothing."""
    told = _read(path)
    try:
        return FirstFailure(**told) if told else None
    except TypeError:
        return None


def _path(directory: Path, local_rank: str) -> Path:
    return directory / f"{local_rank}.failure.json"


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:MAX_TEXT] if lines else ""


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(fields), encoding="utf-8")
    temporary.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    """A file written by _write, its ranks a tuple again."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {**told, "ranks": tuple(told["ranks"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None
