"""Players as they are named on the command line: `random`, `solver`, weights, or key=value words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from alphazero.errors import ConfigError
from alphazero.evaluation.matches.limits import Limit, TimeControl, seconds, whole_number
from alphazero.text import one_of, quoted

RANDOM = "random"
SOLVER = "solver"
KEYS = (
    "name",
    "cmd",
    "args",
    "dir",
    "weights",
    "proto",
    "nodes",
    "depth",
    "tc",
    "st",
    "timemargin",
    "random",
)
OPTION = "option."


@dataclass(frozen=True)
class PlayerWords:
    """What was said of a player. kind: random, solver, weights or engine.

    given: the weights' name. limit: None where nothing was said of it.
    """

    place: str
    kind: str
    name: str
    given: str = ""
    command: tuple[str, ...] = ()
    directory: str = ""
    options: dict[str, str] = field(default_factory=dict)
    limit: Limit | None = None
    random_share: float = 0.0


def read_player(words: Sequence[str], flag: str) -> PlayerWords:
    """A player from its words, or from one text of several. Raises ConfigError."""
    if len(words) == 1 and "=" in words[0] and not Path(words[0]).exists():
        words = _split(words[0], flag)
    bare = "" if not words or _is_pair(words[0]) else words[0]
    values, options = _pairs(words[1:] if bare else words, flag)
    place = f"{flag} {values.get('name', bare or values.get('cmd', values.get('weights', '')))}".rstrip()
    kinds = [kind for kind in (bare, values.get("cmd"), values.get("weights")) if kind]
    if len(kinds) != 1:
        raise ConfigError(f"{place}: expected one of cmd=PROGRAM, weights=W, {RANDOM} and {SOLVER}")
    share = _share(values.get("random", "0"), f"{place}, random=")
    limit = _limit(values, place)
    if "cmd" in values:
        command = (*_command(values["cmd"], place), *_split(values.get("args", ""), f"{place}, args="))
        name = values.get("name", Path(command[0]).name)
        directory = values.get("dir", "")
        if directory and not Path(directory).is_dir():
            raise ConfigError(f"{place}, dir={quoted(directory)}: expected a directory")
        return PlayerWords(place, "engine", name, "", command, directory, options, limit, share)
    for key in ("args", "dir"):
        if key in values:
            raise ConfigError(f"{place}, {key}=: expected it with cmd=PROGRAM alone")
    if options:
        raise ConfigError(f"{place}, {OPTION}{next(iter(options))}: expected it with cmd=PROGRAM alone")
    kind = bare if bare in (RANDOM, SOLVER) else "weights"
    given = values.get("weights", bare)
    name = values.get("name", given.rstrip("/"))
    return PlayerWords(place, kind, name, given, limit=limit, random_share=share)


def with_own_names(players: Sequence[PlayerWords]) -> list[PlayerWords]:
    """A number behind the second name of the same kind, so that tables and PGN tell them apart."""
    seen: dict[str, int] = {}
    named = []
    for player in players:
        seen[player.name] = seen.get(player.name, 0) + 1
        count = seen[player.name]
        named.append(player if count == 1 else replace(player, name=f"{player.name} ({count})"))
    return named


def key_values(words: Sequence[str], known: Sequence[str], flag: str) -> dict[str, str]:
    """key=value words. Raises ConfigError for other words and unknown keys."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{flag} {quoted(word)}: expected key=value")
        if key not in known:
            raise ConfigError(f"{flag} {quoted(word)}: unknown key; {one_of(key, known)}")
        if key in values:
            raise ConfigError(f"{flag} {quoted(word)}: {key}= is given twice")
        values[key] = value
    return values


def _is_pair(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and (key.startswith(OPTION) or key.isalpha()) and not Path(word).exists()


def _pairs(words: Sequence[str], flag: str) -> tuple[dict[str, str], dict[str, str]]:
    """The keys with their values, and the engine's options with theirs."""
    options = [word.removeprefix(OPTION) for word in words if word.startswith(OPTION)]
    split = [option.partition("=") for option in options]
    for name, equals, _ in split:
        if not name or not equals:
            raise ConfigError(f"{flag} {quoted(OPTION + name)}: expected {OPTION}NAME=VALUE")
    values = key_values([word for word in words if not word.startswith(OPTION)], KEYS, flag)
    if values.get("proto", "uci") != "uci":
        raise ConfigError(f"{flag} proto={quoted(values['proto'])}: expected uci")
    return values, {name: value for name, _, value in split}


def _split(text: str, flag: str) -> list[str]:
    """The words of a text as a shell divides them, without anything else that a shell does."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{flag} {quoted(text)}: {error}; expected words, quoted where needed") from error


def _command(text: str, place: str) -> list[str]:
    command = [text] if Path(text).is_file() else _split(text, f"{place}, cmd=")
    if not command:
        raise ConfigError(f"{place}, cmd=: expected a program")
    return command


def _share(text: str, place: str) -> float:
    share = seconds(text, place)
    if share > 1:
        raise ConfigError(f"{place}{quoted(text)}: expected a share from 0 to 1")
    return share


def _limit(values: dict[str, str], place: str) -> Limit | None:
    limit = Limit(
        nodes=whole_number(values["nodes"], f"{place}, nodes=") if "nodes" in values else None,
        depth=whole_number(values["depth"], f"{place}, depth=") if "depth" in values else None,
        move_time_s=seconds(values["st"], f"{place}, st=") if "st" in values else None,
        control=TimeControl.parse(values["tc"], f"{place}, tc=") if "tc" in values else None,
    )
    if "timemargin" in values:
        limit = replace(limit, margin_s=seconds(values["timemargin"], f"{place}, timemargin=", 0.001))
        if not limit.is_any:
            raise ConfigError(f"{place}, timemargin=: expected it with tc= or st=")
    return limit if limit.is_any else None
