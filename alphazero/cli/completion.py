"""`alphazero completion`: a script by which a shell completes commands, flags and their words."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from alphazero.settings.flags import Parser

SHELLS = ("bash", "zsh", "fish")
# Metavars of values that are file names.
OF_FILES = frozenset({"W", "FILE", "DIR", "STORE", "SRC", "RUN", "PATH", "NAME|FILE", "WEIGHTS"})
HINTS = """\
Load it in the shell's own start-up file, or now:
  bash   source <(alphazero completion bash)
  zsh    alphazero completion zsh > "${fpath[1]}/_alphazero"
  fish   alphazero completion fish > ~/.config/fish/completions/alphazero.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HINTS
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The script; the shell runs no Python to complete."""
    import shtab

    return shtab.complete(whole_parser(), shell)


def whole_parser() -> Parser:
    """One parser of all commands, with the words and files that their flags take."""
    from alphazero.cli.command_table import COMMANDS, module_of

    root = Parser(prog="alphazero", description="AlphaZero-class networks: train, play, measure, share")
    root.add_argument("--version", action="store_true", help="print the version")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        parser = commands.add_parser(
            name, help=command.help, description=command.help, conflict_handler="resolve"
        )
        if name == "launch":  # flags that it does not know are the trainer's
            module_of("train").configure(parser)
        module_of(name).configure(parser)
        for action in _actions(parser):
            _add_completion(action)
    return root


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from _actions(part)


def _add_completion(action: argparse.Action) -> None:
    """Give shtab the words of a setting, and the flags that take files."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar.startswith("{") and action.choices is None:
        action.choices = metavar[1:-1].split(",")
    elif metavar in OF_FILES or action.type is Path:
        import shtab

        action.complete = shtab.FILE  # type: ignore[attr-defined]
