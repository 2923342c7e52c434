"""The commands of `alphazero`: their names, modules and help, and how one is run."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from alphazero.base.errors import DEBUG_VARIABLE, ConfigError
from alphazero.base.text import one_of, quoted, table
from alphazero.games.registry import read_game
from alphazero.machine.environment import program_text
from alphazero.machine.machine import WORKER_VARIABLE
from alphazero.settings.flags import Parser

GAME_FILE = (
    "game_file"  # of the arguments: what --game names, in commands that learn the game from their files
)


class CommandEntry(NamedTuple):
    """A command, whose module `alphazero.cli.ROOM.NAME` has configure(parser) and run(args) -> exit
    code, and is imported only when called, so that help answers at once on a machine without torch."""

    room: str
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "launch": CommandEntry("training", "start training on the devices of this machine"),
    "train": CommandEntry("training", "train in this process; every rank of a job runs this"),
    "selfplay": CommandEntry("playing", "play games of a network against itself into a game store"),
    "data": CommandEntry("training", "import PGN files and lc0 data; describe, verify and export stores"),
    "checkpoint": CommandEntry("training", "list, verify and prune the checkpoints of a run"),
    "eval": CommandEntry("measuring", "measure networks by known games, puzzles, test suites, exact truth"),
    "match": CommandEntry(
        "playing", "play networks, UCI engines, random moves or a solver against each other"
    ),
    "rate": CommandEntry("playing", "measure the Elo of networks against a ladder of fixed opponents"),
    "play": CommandEntry("playing", "play against a network in the terminal or the browser"),
    "analyse": CommandEntry("playing", "evaluate and search one position, or annotate games"),
    "uci": CommandEntry("playing", "run a network as a UCI engine for chess programs"),
    "import-weights": CommandEntry("", "convert an lc0 network to a weights file of this program"),
    "export": CommandEntry("", "write a network for other programs: lc0, ONNX, or a weights file"),
    "runs": CommandEntry("training", "list the runs of a directory: network, step, best figures, state"),
    "report": CommandEntry("training", "show a run, or several side by side, as a page or a picture"),
    "health": CommandEntry("training", "check the GPUs and the host of this machine"),
    "doctor": CommandEntry("training", "environment and health of this machine; what the presets cost on it"),
    "solve": CommandEntry("playing", "compute the exact value of a Connect Four position"),
    "games": CommandEntry("training", "list the games that can be learned; check the rules of one"),
    "perft": CommandEntry("", "count the leaves of the move tree (a test of the rules)"),
    "bench": CommandEntry("", "measure a part of the system"),
    "completion": CommandEntry("", "print what completes these commands in bash, zsh or fish"),
}


def module_of(command: str) -> ModuleType:
    """The module of one command, imported now."""
    parts = ("alphazero.cli", COMMANDS[command].room, command.replace("-", "_"))
    return importlib.import_module(".".join(part for part in parts if part))


def build_parser(command: str) -> Parser:
    """The parser of one command, its module imported now."""
    parser = Parser(prog=f"alphazero {command}", description=COMMANDS[command].help)
    module = module_of(command)
    module.configure(parser)
    passes_on = hasattr(module, "PASSES_ON_UNKNOWN_FLAGS")
    for part in (parser, *parser.parts()):
        _add_common_flags(
            part, has_game=not passes_on and command != "games" and "--game" not in part.flags()
        )
    return parser


def _add_common_flags(parser: Parser, *, has_game: bool) -> None:
    quiet = argparse.SUPPRESS  # a subcommand's default must not replace what stands before it
    if has_game:
        parser.add_argument(
            "--game",
            dest=GAME_FILE,
            default=quiet,
            metavar="FILE.py:CLASS",
            help="the rules of a game in Python, where what is opened is of one (docs/your_own_game.md)",
        )
    parser.add_argument(
        "--debug",
        action="store_true",
        default=quiet,
        help="print tracebacks, of an internal error and of the rules of a game in Python, and where the "
        "seconds of a training job's start go",
    )


def _apply_common_flags(args: argparse.Namespace) -> None:
    """Where --game names a Python file, what is opened may be of it. Raises ConfigError."""
    if getattr(args, "debug", False):
        os.environ[DEBUG_VARIABLE] = "1"
    if text := getattr(args, GAME_FILE, None):
        read_game("--game", text)


def usage() -> str:
    """The list of commands."""
    lines = table([(f"  {name}", command.help) for name, command in COMMANDS.items()])
    return "usage: alphazero COMMAND [...]   (alphazero COMMAND --help; alphazero --version)\n\n" + "\n".join(
        lines
    )


def run_command(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code. Errors are raised."""
    if argv and argv[0] in ("-V", "--version"):
        print(program_text())
        return 0
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    command = argv[0]
    if command not in COMMANDS:
        raise ConfigError(f"{quoted(command)}: no such command; {one_of(command, COMMANDS)}")
    module = module_of(command)
    if WORKER_VARIABLE in os.environ:  # a process of this command started this one, and has the arguments
        from alphazero.play.workers import Worker, serve

        def work(args: argparse.Namespace, worker: Worker) -> None:
            _apply_common_flags(args)
            module.work(args, worker)

        return serve(work)
    parser = build_parser(command)
    if getattr(module, "PASSES_ON_UNKNOWN_FLAGS", False):
        is_benchmarks = len(argv) > 1 and not argv[1].startswith("-") and argv[1] != "all"
        for_help = [word for word in argv[1:] if is_benchmarks and word in ("-h", "--help")]
        args, passed_on = parser.parse_known_args([word for word in argv[1:] if word not in for_help])
        args.passed_on = [*passed_on, *for_help]
    else:
        args = parser.parse_args(argv[1:])
    _apply_common_flags(args)
    return int(module.run(args))
