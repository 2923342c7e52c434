"""The `alphazero` command: finds the sub-command, shows user errors as one line, exit code 2."""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from alphazero.cluster.agent.rank_failure import note_failure
from alphazero.errors import AlphaZeroError, ConfigError

CRASH_STATUS = 1  # of an interpreter that ends with a traceback
# Each module offers configure(parser) and run(args) -> exit code; it is imported only when called,
# so that help answers at once on a machine without torch.
COMMANDS: dict[str, tuple[str, str]] = {
    "launch": ("alphazero.cli.launch", "start training on the devices of this machine"),
    "train": ("alphazero.cli.train", "train in this process (what every rank runs)"),
    "selfplay": ("alphazero.cli.selfplay", "games of a network against itself, into a game store"),
    "data": ("alphazero.cli.data", "import PGN into a game store, describe and verify stores"),
    "checkpoint": ("alphazero.cli.checkpoint", "list, verify and prune the checkpoints of a run"),
    "eval": ("alphazero.cli.eval", "policy accuracy, losses and value error on positions"),
    "match": ("alphazero.cli.match", "networks against each other, or against random moves"),
    "analyse": ("alphazero.cli.analyse", "policy and value of one position"),
    "import-weights": ("alphazero.cli.import_weights", "turn an lc0 network into our weights file"),
    "report": ("alphazero.cli.report", "plots of a run, or of several"),
    "health": ("alphazero.cli.health", "GPUs and host of this machine: what is broken, slow or in use"),
    "solve": ("alphazero.cli.solve", "the exact value of a Connect Four position"),
    "perft": ("alphazero.cli.perft", "count the leaves of the move tree"),
    "bench": ("alphazero.cli.bench", "measure a part of the system"),
}


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line and whose flags are never guessed from a prefix."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage: one line for one mistake."""
        raise ConfigError(message)


def build_parser(command: str) -> Parser:
    """The parser of one command, its module imported now."""
    module_name, help_text = COMMANDS[command]
    parser = Parser(prog=f"alphazero {command}", description=help_text)
    importlib.import_module(module_name).configure(parser)
    return parser


def usage() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {help_text}" for name, (_, help_text) in COMMANDS.items()]
    return "usage: alphazero COMMAND [...]   (alphazero COMMAND --help)\n\n" + "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    command = argv[0]
    try:
        if command not in COMMANDS:
            raise ConfigError(f"{command!r}: no such command; expected one of {', '.join(COMMANDS)}")
        module = importlib.import_module(COMMANDS[command][0])
        parser = build_parser(command)
        if getattr(module, "PASSES_ON_UNKNOWN_FLAGS", False):
            args, passed_on = parser.parse_known_args(argv[1:])
            args.passed_on = passed_on
        else:
            args = parser.parse_args(argv[1:])
        return int(module.run(args))
    except AlphaZeroError as error:
        note_failure(error, error.exit_code)
        if not error.found_by_all_ranks or os.environ.get("RANK", "0") == "0":
            print(f"alphazero: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("alphazero: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output left (| head): its choice, no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A full disk, a directory that may not be written: the system's own words name the file.
        note_failure(error, AlphaZeroError.exit_code)
        print(f"alphazero: error: {error}", file=sys.stderr)
        return AlphaZeroError.exit_code
    except Exception as error:
        note_failure(error, CRASH_STATUS)
        raise


def entry_point(argv: Sequence[str] | None = None) -> NoReturn:
    """The process `alphazero ARGV`, by default of the command line; never returns."""
    end_process(main(sys.argv[1:] if argv is None else argv))


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
