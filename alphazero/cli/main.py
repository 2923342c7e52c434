"""The `alphazero` process: its exit codes. A user's error is one line and exit code 2."""

from __future__ import annotations

import os
import platform
import select
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from alphazero.base.errors import DEBUG_VARIABLE, AlphaZeroError, LostConnectionError
from alphazero.base.log import error_line
from alphazero.base.text import shortened
from alphazero.cli.command_table import run_command
from alphazero.machine.environment import set_up
from alphazero.run.rank import end_process, kind_of, line_of, note_failure, shows_common_errors

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits(3)
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE, as a shell reports it

SILENT_RANK_S = 3.0  # a rank that leaves the error to another waits this long before it ends
CRASH_STATUS = 1  # of an interpreter that ends with a traceback

# How often a CPU thread that waits looks for work before it sleeps. GNU's OpenMP looks for milliseconds by
# default, on a busy machine on the very core that the others need.
SPIN_COUNT = "20000"


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    is_rank = "RANK" in os.environ  # a launcher started this process
    try:
        try:
            status = run_command(argv)
        except SystemExit as ending:  # argparse, after it has printed help
            status = ending.code if isinstance(ending.code, int) else 0
        sys.stdout.flush()  # notices a closed pipe here, where it is no error
        return status
    except AlphaZeroError as error:
        note_failure(error, error.exit_code)
        if not error.found_by_all_ranks or shows_common_errors(os.environ):
            print(error_line(str(error)), file=sys.stderr)
        else:
            # torchrun ends all ranks when the first one fails: leave time for the rank that prints.
            time.sleep(SILENT_RANK_S)
        return error.exit_code
    except KeyboardInterrupt:
        print("alphazero: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError) and stdout_is_closed():
            # The reader closed the pipe (| head), which is no error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED
        # A full disk, a read-only directory: the system's message names the file.
        note_failure(error, AlphaZeroError.exit_code)
        print(error_line(line_of(error)), file=sys.stderr)
        return AlphaZeroError.exit_code
    except Exception as error:  # a bug
        note_failure(error, CRASH_STATUS)
        if kind_of(error) == LostConnectionError.kind:  # another rank ended, which says more
            print(error_line(f"lost the other ranks: {line_of(error)}"), file=sys.stderr)
            return CRASH_STATUS
        if is_rank or os.environ.get(DEBUG_VARIABLE):
            raise  # for the launcher's report of the rank, and for tests
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("alphazero."):
            print(error_line(f"{sys.executable}: has no {error.name}; expected {set_up()}"), file=sys.stderr)
            return AlphaZeroError.exit_code
        print(f"alphazero: internal error: {internal_error(error)}", file=sys.stderr)
        return INTERNAL_ERROR


def stdout_is_closed() -> bool:
    """True where stdout is a pipe or socket whose other end is closed."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # stdout is no file of the system, as in tests
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def internal_error(error: Exception) -> str:
    """One line for an internal error, naming the file with its traceback."""
    line = shortened(" ".join(f"{type(error).__name__}: {error}".split()))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="alphazero-error-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"{shlex.join(sys.argv)}\n{platform.platform()}, Python {sys.version}\n\n")
            file.writelines(traceback.format_exception(error))
    except OSError as reason:
        return f"{line} (traceback not saved: {reason.strerror}; {DEBUG_VARIABLE}=1 prints it)"
    return f"{line} (traceback in {file.name})"


def entry_point(argv: Sequence[str] | None = None) -> NoReturn:
    """The process `alphazero ARGV`, by default of the command line; never returns."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # Before torch is imported, which reads it; the processes of a job inherit it.
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    try:
        end_process(main(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # once more, while the process was ending
        os._exit(INTERRUPTED)
    except Exception:
        # As Python would, but without unloading libraries, where NCCL waits for the other ranks.
        traceback.print_exc()
        end_process(CRASH_STATUS)
