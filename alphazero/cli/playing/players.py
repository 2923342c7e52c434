"""Players as the command line names them (`random`, `solver`, weights, key=value words), and their making."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.base.files import sha256_of
from alphazero.base.text import one_of, quoted, shortened
from alphazero.cli.flags import device_of, make_solver
from alphazero.games.registry import CHESS, read_game
from alphazero.machine.environment import START
from alphazero.play.matches.limits import Limit, TimeControl, seconds, whole_number
from alphazero.play.matches.players import (
    SOLVED_GAME,
    Player,
    decisions_of,
    engine_decisions,
    engine_trees,
    mcts_player,
    solver_decisions,
)

if TYPE_CHECKING:
    import torch

    from alphazero.network.model.resnet import AlphaZeroNet

RANDOM, SOLVER, MCTS = "random", "solver", "mcts"  # mcts: tree search with random playouts
LIMITS = ("nodes", "depth", "tc", "st", "timemargin")
KEYS = ("name", "cmd", "args", "dir", "weights", "proto", "random", *LIMITS)
OPTION = "option."
NODES = 800  # a move, of searches without a limit


def read_player(words: Sequence[str], flag: str) -> Player:
    """A player from its words, or from one text of several. Raises ConfigError."""
    if len(words) == 1 and "=" in words[0] and not Path(words[0]).exists():
        words = _split(words[0], flag)
    bare = "" if not words or _is_pair(words[0]) else words[0]
    values, options = _pairs(words[1:] if bare else words, flag)
    name, cmd = values.get("name"), values.get("cmd", "")
    if name is not None and not (name and name.isprintable()):
        raise ConfigError(
            f"{flag} name={quoted(name)}: expected a name on one line, without control characters"
        )
    weights = values.get("weights", "")
    place = shortened(f"{flag} {name or bare or cmd or weights}".rstrip())
    if [bool(bare), bool(cmd), bool(weights)].count(True) != 1:
        raise ConfigError(f"{place}: expected one of cmd=PROGRAM, weights=W, {RANDOM}, {SOLVER} and {MCTS}")
    if (share := seconds(values.get("random", "0"), f"{place}, random=")) > 1:
        raise ConfigError(f"{place}, random={quoted(values['random'])}: expected a share from 0 to 1")
    player = Player(name or "", flag=place, limit=_limit(values, place), random_share=share)
    if cmd:
        command = [cmd] if Path(cmd).is_file() else _split(cmd, f"{place}, cmd=")
        if not command:
            raise ConfigError(f"{place}, cmd=: expected a program")
        directory = values.get("dir", "")
        if directory and not Path(directory).is_dir():
            raise ConfigError(f"{place}, dir={quoted(directory)}: expected a directory")
        command += _split(values.get("args", ""), f"{place}, args=")
        return replace(
            player,
            name=name or Path(command[0]).name,
            kind="engine",
            command=tuple(command),
            directory=directory,
            options=options,
        )
    if of_engines := [key for key in ("args", "dir") if key in values] + [OPTION + key for key in options]:
        raise ConfigError(f"{place}, {of_engines[0]}: expected only with cmd=PROGRAM")
    kind = bare if bare in (RANDOM, SOLVER, MCTS) else "weights"
    weights = weights or bare
    name = name or weights.rstrip("/")
    return replace(player, name=name, kind=kind, weights=weights if kind == "weights" else "")


def _limit(values: dict[str, str], place: str) -> Limit:
    """Of a player's words, which may name none."""
    limit = Limit(
        nodes=whole_number(values["nodes"], f"{place}, nodes=") if "nodes" in values else None,
        depth=whole_number(values["depth"], f"{place}, depth=") if "depth" in values else None,
        move_time_s=seconds(values["st"], f"{place}, st=") if "st" in values else None,
        control=TimeControl.parse(values["tc"], f"{place}, tc=") if "tc" in values else None,
    )
    if "tc" in values and not limit.is_any:
        raise ConfigError(f"{place}, tc={values['tc']}: expected nodes=, depth= or st= as well")
    if "timemargin" not in values:
        return limit
    if not limit.is_any:
        raise ConfigError(f"{place}, timemargin=: expected only with tc= or st=")
    return replace(limit, margin_s=seconds(values["timemargin"], f"{place}, timemargin=", 0.001))


def with_own_names(players: Sequence[Player]) -> list[Player]:
    """Names of one line each, equal ones numbered, so that tables and PGN distinguish them."""
    names: list[str] = []
    for player in players:
        own = name = shortened(player.name)
        count = 1
        while name in names:
            count += 1
            name = f"{own} ({count})"
        names.append(name)
    return [replace(player, name=name) for player, name in zip(players, names, strict=True)]


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
    options = {}
    for word in words:
        name, equals, value = word.removeprefix(OPTION).partition("=")
        if word.startswith(OPTION):
            if not name or not equals:
                raise ConfigError(f"{flag} {quoted(word)}: expected {OPTION}NAME=VALUE")
            options[name] = value
    values = key_values([word for word in words if not word.startswith(OPTION)], KEYS, flag)
    if values.get("proto", "uci") != "uci":
        raise ConfigError(f"{flag} proto={quoted(values['proto'])}: expected uci")
    return values, options


def _split(text: str, flag: str) -> list[str]:
    """The words of a text as a shell divides them, without anything else that a shell does."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{flag} {quoted(text)}: {error}; expected words, quoted where needed") from error


def checksums_of(weights: str) -> dict[str, int]:
    """Of every tensor of a network, in whatever file."""
    from alphazero.network.weights.open_network import open_weights
    from alphazero.training.ranks.exchange import checksums

    return checksums(open_weights(weights).state_dict.items())


SOLVER_TABLE_MIB = 256


class Lineup:
    """Makes the players of one command ready; a network that plays twice is loaded once."""

    def __init__(self, args: argparse.Namespace, limit: Limit, *, on_cpu: bool = False) -> None:
        """limit: of players without one. on_cpu: whatever --device."""
        self._args = args
        self._limit = limit
        self._on_cpu = on_cpu
        self._networks: dict[str, AlphaZeroNet] = {}
        self.checksums = cache(checksums_of)

    def settled(self, player: Player) -> Player:
        """With the limit that it plays by, and the program that plays for it.

        That is `alphazero uci` for a network by a clock or to a depth. Raises ConfigError.
        """
        limit = player.limit if player.limit.is_any else self._limit
        command = player.command
        if player.kind == "engine" and not limit.is_any:
            raise ConfigError(
                f"{player.flag}: expected a limit: nodes=, depth=, tc= or st=, "
                "or --nodes, --tc or --movetime for all"
            )
        if player.kind == "weights" and (limit.is_timed or limit.depth is not None):
            network = ("--device", self._args.device, "--precision", self._args.precision)
            command = (sys.executable, START, "uci", "--weights", player.weights, *network)
        if not command:
            searches = player.kind in ("weights", MCTS)
            limit = Limit(nodes=(limit.nodes or NODES) if searches else None)
        return replace(player, limit=limit, command=command)

    def game_of(self, players: Sequence[Player]) -> str:
        """The game of all players, which are settled. Raises ConfigError where they play different ones."""
        found: dict[str, Player] = {}
        for player in players:
            if player.command:
                found.setdefault(CHESS, player)
            elif player.kind == SOLVER:
                found.setdefault(SOLVED_GAME, player)
            elif player.kind == "weights":
                found.setdefault(self._network(player).spec.name, player)
        if len(found) > 1:
            (game, player), (other, second), *_ = found.items()
            raise ConfigError(f"{second.flag}: plays {other}, {player.name} plays {game}")
        named = getattr(self._args, "game_file", None)  # --game: of players without weights
        return next(iter(found), read_game("--game", named) if named else CHESS)

    def ready(self, player: Player) -> Player:
        """The settled player, ready to play. Raises ConfigError."""
        if player.command:
            return player
        if player.kind == RANDOM:
            return replace(player, random_share=1.0)  # the match draws all its moves
        if player.kind == SOLVER:
            return replace(player, decide=solver_decisions(make_solver(SOLVER_TABLE_MIB)))
        assert player.limit.nodes is not None
        if player.kind == MCTS:
            return replace(player, decide=decisions_of(mcts_player(player.limit.nodes, self._args.seed)))
        trees = engine_trees(self._network(player), self._device, self._args.precision)
        return replace(player, decide=engine_decisions(trees, player.limit.nodes), leave=trees.leave)

    def digest(self, player: Player) -> str:
        """Of the network or program that plays; "" for players of this program."""
        if player.weights:
            return hashlib.sha256(repr(self.checksums(player.weights)).encode()).hexdigest()
        if player.command:
            program = shutil.which(player.command[0]) or str(Path(player.directory) / player.command[0])
            return sha256_of(Path(program)) if Path(program).is_file() else ""
        return ""

    def _network(self, player: Player) -> AlphaZeroNet:
        from alphazero.network.weights.open_network import open_network

        if player.weights not in self._networks:
            flag = player.flag.partition(" ")[0]
            self._networks[player.weights], _ = open_network(player.weights, self._device, flag)
        return self._networks[player.weights]

    @cached_property
    def _device(self) -> torch.device:
        return device_of("cpu" if self._on_cpu else self._args.device)
