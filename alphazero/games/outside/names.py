"""Names of games whose rules are not the core's, and the Python files that the user named for them.

openspiel:hex(board_size=7)          a game of OpenSpiel
nim.py:Nim(piles=3)@0123456789ab     a class in a Python file, as runs, stores and weights record it: without
                                     its folder, with the first digits of the file's sha256

A Python file is code. It is run only where the user names it in this process, as path/to/nim.py:Nim(piles=3);
a recorded name never finds one by itself.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.log import program_line
from alphazero.base.text import quoted

OPENSPIEL = "openspiel:"
FORMS = "openspiel:NAME(PARAMETERS) or FILE.py:CLASS(PARAMETERS)"
DIGEST_DIGITS = 12
_CLASS = re.compile(
    r"(?P<file>.+\.py):(?P<of>[A-Za-z_]\w*)(?:\((?P<parameters>[^()]*)\))?(?:@(?P<digest>[0-9a-f]{12}))?",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True)
class ClassName:
    """A class in a Python file. file: as named, or without its folder in a recorded name."""

    file: str
    of: str
    parameters: tuple[tuple[str, object], ...] = ()
    digest: str = ""

    @property
    def recorded(self) -> str:
        """The name that runs, stores and weights have."""
        return f"{self.plain}@{self.digest}"

    @property
    def plain(self) -> str:
        values = ",".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{Path(self.file).name}:{self.of}" + (f"({values})" if values else "")


_named: dict[str, ClassName] = {}  # by recorded name, with the path that the user gave
_reported: set[str] = set()


def is_outside(name: str) -> bool:
    """Whether a name is one of a game whose rules are not the core's."""
    return name.startswith(OPENSPIEL) or _CLASS.fullmatch(name) is not None


def class_of(name: str) -> ClassName | None:
    """A class in a Python file, from its name in either form; None for the name of anything else."""
    if name.startswith(OPENSPIEL) or not (match := _CLASS.fullmatch(name)):
        return None
    parameters = _parameters(name, match["parameters"] or "")
    return ClassName(match["file"], match["of"], parameters, match["digest"] or "")


def _parameters(name: str, text: str) -> tuple[tuple[str, object], ...]:
    """`heaps=3, misere=True` by name. Values are numbers, True, False and texts, in quotes or not."""
    parameters: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, sign, value = (each.strip() for each in part.partition("="))
        if not sign or not key.isidentifier() or key in parameters:
            raise ConfigError(f"game {quoted(name)}: {quoted(part)}: expected parameters as size=3, komi=7.5")
        try:
            parameters[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parameters[key] = value
        if not isinstance(parameters[key], bool | int | float | str):
            raise ConfigError(
                f"game {quoted(name)}: {quoted(part)}: expected a number, a text, True or False"
            )
    return tuple(sorted(parameters.items()))


def name_class(asked: ClassName, flag: str = "--game") -> str:
    """The user names a file in this process: its recorded name. Raises ConfigError where there is none."""
    path = Path(asked.file)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe or a device may never end
            raise ConfigError(f"{flag} {path}: is no regular file; expected a Python file with the game")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}; expected a Python file") from None
    named = replace(asked, digest=hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS])
    _named[named.recorded] = replace(named, file=str(path.absolute()))
    return named.recorded


def named_class(recorded: str, flag: str = "--game") -> ClassName:
    """The class of a recorded name, whose file the user named in this process. Raises ConfigError."""
    if recorded in _named:
        return _named[recorded]
    _, path = flag_of_rules(recorded)
    raise ConfigError(
        f"{recorded}: is a Python file, which is run only where you name it; "
        f"expected {flag} {shlex.quote(path)}"
    )


def flag_of_rules(recorded: str) -> tuple[str, ...]:
    """The words that a command needs to open files of this game; most need none.

    PATH stands for the folder of a file that the user did not name.
    """
    asked = class_of(recorded)
    if asked is None:
        return ()
    folder = Path(_named[recorded].file).parent if recorded in _named else Path("PATH")
    return ("--game", f"{folder / asked.plain}")


def version_now(recorded: str) -> str:
    """A name from a run, store or weights file as the name of the file that the user named.

    A file that changed since is reported once. Names of anything else, and of files not named, stay.
    """
    asked = class_of(recorded)
    if asked is None or recorded in _named:
        return recorded
    for name, named in _named.items():
        if named.plain != asked.plain:  # the same class, in whatever version of the file
            continue
        if recorded not in _reported and asked.digest and os.environ.get("RANK", "0") == "0":
            _reported.add(recorded)
            line = (
                f"{named.file} has changed since this was recorded: its sha256 began with {asked.digest}, "
                f"and begins with {named.digest}; what was recorded is read by the rules of now"
            )
            print(program_line(line), file=sys.stderr)
        return name
    return recorded
