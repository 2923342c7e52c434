"""What to type next: the command that continues a run, and those that use its network.

The first is what the user typed, less what was meant for that start alone.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from alphazero.machine.environment import CHECKOUT, shipped

# Set by our launcher for the ranks: what the user typed, as a JSON list.
COMMAND_VARIABLE = "ALPHAZERO_COMMAND"
SCRIPT = CHECKOUT / "launch_distributed_training.sh"
GAMES = shipped("examples/games.pgn.gz")
LAUNCHED_VARIABLES = ("TORCHELASTIC_RUN_ID", "CROSS_SIZE")  # by torchrun, by DeepSpeed's launcher
UNKNOWN_COMMAND = "the command that started this job"
RESUME = "--resume"


def typed_command(argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The words that the user typed to start this process or its launcher; none where they are not known."""
    if typed := environment.get(COMMAND_VARIABLE):
        return [str(word) for word in json.loads(typed)]
    if any(name in environment for name in LAUNCHED_VARIABLES):
        return []
    program, *rest = argv
    name = Path(program).name
    if name == "__main__.py" and rest[:1] == ["launch"] and SCRIPT.is_file():
        return [_short(SCRIPT), *rest[1:]]
    if name == "__main__.py":
        return [_short(Path(sys.executable)), "-m", "alphazero", *rest]
    if name.endswith(".py"):
        return [_short(Path(sys.executable)), program, *rest]
    return [_short(Path(program)), *rest]


def continuing(words: Sequence[str], run_name: str, *more: str) -> str:
    """The command that continues the run from its newest checkpoint. more: flags and values to add."""
    if not words:
        return " ".join((UNKNOWN_COMMAND, *more))
    kept = without([word for word in words if word != "--fresh-start"], RESUME)
    for flag in ("--run-name", *(word for word in more if word.startswith("--"))):
        kept = without(kept, flag)
    return shlex.join([*kept, "--run-name", run_name, *more])


def uses_of(weights: str, measured_by: str, rules: Sequence[str] = ()) -> list[tuple[str, str]]:
    """What a network is good for, and the command.

    measured_by: of its game (games/registry.py), "" for none. rules: the words that name the game's own file.
    """
    words = shlex.join([weights, *rules])
    uses = [
        ("play against it", f"alphazero play {words}"),
        ("look at a position", f"alphazero analyse {words}"),
    ]
    if measured_by:
        games = shlex.quote(_short(GAMES)) if GAMES.is_file() else "GAMES.pgn"
        uses.append(("measure it", f"alphazero {measured_by.format(network=words, games=games)}"))
    return uses


def located(command: str) -> str:
    """A command of this environment as it can be typed here."""
    program, _, words = command.partition(" ")
    path = Path(sys.executable).with_name(program)
    return f"{shlex.quote(_short(path)) if path.is_file() else program} {words}"


def without(arguments: Sequence[str], flag: str) -> list[str]:
    """`arguments` less `flag VALUE` and `flag=VALUE`; the value of --resume may be missing."""
    kept: list[str] = []
    after_flag = False
    for argument in arguments:
        is_value = after_flag and not (flag == RESUME and argument.startswith("-"))
        after_flag = not is_value and argument == flag
        if not (is_value or after_flag or argument.startswith(f"{flag}=")):
            kept.append(argument)
    return kept


def _short(program: Path) -> str:
    """A program or file as it can be typed here: as PATH knows it, or relative where it lies below."""
    path = program.absolute()
    if (on_path := shutil.which(path.name)) and Path(on_path).absolute() == path:
        return path.name
    here = Path.cwd()
    return f"./{path.relative_to(here)}" if path.is_relative_to(here) else str(path)
