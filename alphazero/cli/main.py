"""The `alphazero` command: finds the sub-command, shows user errors as one line, exit code 2."""

from __future__ import annotations

import atexit
import importlib
import os
import platform
import select
import shlex
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from alphazero.cli.parser import Parser
from alphazero.cluster.agent.rank_failure import note_failure
from alphazero.cluster.agent.rank_side import shows_common_errors
from alphazero.errors import AlphaZeroError, ConfigError
from alphazero.text import one_of, quoted, table

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits(3)
INTERRUPTED = 130  # 128 + SIGINT
NOBODY_READS = 141  # 128 + SIGPIPE, as a shell tells of any other program
# Set, it makes what nobody foresaw a traceback on stderr instead of one line.
TRACEBACK_VARIABLE = "ALPHAZERO_TRACEBACK"
LONGEST_LINE = 300

SILENT_RANK_S = 3.0  # a rank that leaves the error to another waits so long before it ends
CRASH_STATUS = 1  # of an interpreter that ends with a traceback
# Each module offers configure(parser) and run(args) -> exit code; it is imported only when called,
# so that help answers at once on a machine without torch.
COMMANDS: dict[str, tuple[str, str]] = {
    "launch": ("alphazero.cli.launch", "start training on the devices of this machine"),
    "train": ("alphazero.cli.train", "train in this process; every rank of a job runs this"),
    "selfplay": ("alphazero.cli.selfplay", "let a network play against itself and keep the games"),
    "data": ("alphazero.cli.data", "import PGN files into a game store; describe and verify stores"),
    "checkpoint": ("alphazero.cli.checkpoint", "list, verify and prune the checkpoints of a run"),
    "eval": ("alphazero.cli.eval", "measure how well networks predict the moves and results of known games"),
    "match": ("alphazero.cli.match", "let two networks play each other, or one against random moves"),
    "analyse": ("alphazero.cli.analyse", "show what a network says of one position"),
    "import-weights": (
        "alphazero.cli.import_weights",
        "convert an lc0 network to a weights file of this program",
    ),
    "report": ("alphazero.cli.report", "plot the curves of one or more runs"),
    "health": ("alphazero.cli.health", "check the GPUs and the host of this machine"),
    "solve": ("alphazero.cli.solve", "compute the exact value of a Connect Four position"),
    "perft": ("alphazero.cli.perft", "count the leaves of the move tree (a test of the rules)"),
    "bench": ("alphazero.cli.bench", "measure a part of the system"),
}


def build_parser(command: str) -> Parser:
    """The parser of one command, its module imported now."""
    module_name, help_text = COMMANDS[command]
    parser = Parser(prog=f"alphazero {command}", description=help_text)
    importlib.import_module(module_name).configure(parser)
    return parser


def usage() -> str:
    """The list of commands."""
    lines = table([(f"  {name}", help_text) for name, (_, help_text) in COMMANDS.items()])
    return "usage: alphazero COMMAND [...]   (alphazero COMMAND --help)\n\n" + "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    is_rank = "RANK" in os.environ  # a launcher started this process
    try:
        try:
            status = run_command(argv)
        except SystemExit as ending:  # argparse, after it has printed help
            status = ending.code if isinstance(ending.code, int) else 0
        sys.stdout.flush()  # a reader that left is noticed here, where it is no error
        return status
    except AlphaZeroError as error:
        note_failure(error, error.exit_code)
        if not error.found_by_all_ranks or shows_common_errors(os.environ):
            print(f"alphazero: error: {error}", file=sys.stderr)
        else:
            # torchrun ends all ranks when the first one fails: the one that speaks must come to it.
            time.sleep(SILENT_RANK_S)
        return error.exit_code
    except KeyboardInterrupt:
        print("alphazero: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError) and nobody_reads_stdout():
            # The reader of our output left (| head): its choice, no error of ours.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return NOBODY_READS
        # A full disk, a directory that may not be written: the system's own words name the file.
        note_failure(error, AlphaZeroError.exit_code)
        print(f"alphazero: error: {error}", file=sys.stderr)
        return AlphaZeroError.exit_code
    except Exception as error:  # what nobody foresaw, a bug of ours
        note_failure(error, CRASH_STATUS)
        if is_rank or os.environ.get(TRACEBACK_VARIABLE):
            raise  # the launcher's report of the rank needs it, and so do tests
        print(f"alphazero: internal error: {internal_error(error)}", file=sys.stderr)
        return INTERNAL_ERROR


def run_command(argv: Sequence[str]) -> int:
    """What `main` guards."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    command = argv[0]
    if command not in COMMANDS:
        raise ConfigError(f"{quoted(command)}: no such command; {one_of(command, COMMANDS)}")
    module = importlib.import_module(COMMANDS[command][0])
    parser = build_parser(command)
    if getattr(module, "PASSES_ON_UNKNOWN_FLAGS", False):
        args, passed_on = parser.parse_known_args(argv[1:])
        args.passed_on = passed_on
    else:
        args = parser.parse_args(argv[1:])
    return int(module.run(args))


def nobody_reads_stdout() -> bool:
    """True where stdout is a pipe or socket whose other end is closed."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # stdout is no file of the system, as in tests
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def internal_error(error: Exception) -> str:
    """One line for an error that nobody foresaw; its traceback is kept in a file that the line names."""
    told = " ".join(f"{type(error).__name__}: {error}".split())
    if len(told) > LONGEST_LINE:
        told = f"{told[:LONGEST_LINE]}..."
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="alphazero-error-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"{shlex.join(sys.argv)}\n{platform.platform()}, Python {sys.version}\n\n")
            file.writelines(traceback.format_exception(error))
    except OSError as reason:
        return f"{told} (traceback not kept: {reason.strerror}; {TRACEBACK_VARIABLE}=1 shows it)"
    return f"{told} (traceback in {file.name})"


def entry_point(argv: Sequence[str] | None = None) -> NoReturn:
    """The process `alphazero ARGV`, by default of the command line; never returns."""
    try:
        end_process(main(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # once more, while the process was ending
        os._exit(INTERRUPTED)


def end_process(status: int) -> NoReturn:
    """What Python does at its end, but for taking modules and libraries down.

    gloo, libuv and others still have threads then; one that meets a half-gone interpreter can abort a
    process whose work is done, and the job would count as failed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 120  # as Python's own end
    os._exit(status)
