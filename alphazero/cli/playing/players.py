"""Players as the command line names them (`random`, `solver`, weights, key=value words), and their making."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import sha256_of
from alphazero.base.text import one_of, quoted, shortened
from alphazero.cli.flags import device_of, make_solver
from alphazero.games.registry import CHESS, read_game
from alphazero.machine.environment import START
from alphazero.play.matches.limits import MARGIN_S, MOST_CLOCK_S, Limit, TimeControl
from alphazero.play.matches.players import (
    SOLVED_GAME,
    Player,
    decisions_of,
    engine_decisions,
    engine_trees,
    mcts_player,
    solver_decisions,
)
from alphazero.settings.flags import number, whole

if TYPE_CHECKING:
    import torch

    from alphazero.network.model.resnet import AlphaZeroNet

RANDOM, SOLVER, MCTS = "random", "solver", "mcts"  # mcts: tree search with random playouts
OPTION = "option."
NODES = 800  # a move, of searches without a limit
MOST_NODES = 10**15
# Reads a value. Raises argparse.ArgumentTypeError.
Kind = Callable[[str], Any]


def words_of(text: str) -> list[str]:
    """The words of a text as a shell divides them, without anything else that a shell does."""
    try:
        return shlex.split(text)
    except ValueError as error:
        expected = "expected words, quoted where needed"
        raise argparse.ArgumentTypeError(f"{quoted(text)}: {error}; {expected}") from error


def _checked(is_right: Callable[[str], bool], expected: str) -> Kind:
    def read(text: str) -> str:
        if not is_right(text):
            raise argparse.ArgumentTypeError(f"{quoted(text)}: expected {expected}")
        return text

    return read


LIMITS: Mapping[str, Kind] = {
    "nodes": whole(1, MOST_NODES),
    "depth": whole(1, 1000),
    "tc": TimeControl.parse,
    "st": number(0.001, MOST_CLOCK_S),
    "timemargin": whole(0, 10**6),
}
KEYS: Mapping[str, Kind] = {
    "name": _checked(
        lambda text: bool(text) and text.isprintable(), "a name on one line, without control characters"
    ),
    "cmd": lambda text: [text] if Path(text).is_file() else words_of(text),
    "args": words_of,
    "dir": _checked(lambda text: Path(text).is_dir(), "a directory"),
    "weights": str,
    "proto": _checked(lambda text: text == "uci", "uci"),
    "random": number(0, 1),
    **LIMITS,
}


def key_values(words: Sequence[str], kinds: Mapping[str, Kind], flag: str) -> dict[str, Any]:
    """key=value words, each read as its key wants. Raises ConfigError."""
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"{flag} {quoted(word)}: expected key=value")
        if key not in kinds:
            raise ConfigError(f"{flag} {quoted(word)}: unknown key; {one_of(key, kinds)}")
        if key in values:
            raise ConfigError(f"{flag} {quoted(word)}: {key}= is given twice")
        try:
            values[key] = kinds[key](text)
        except argparse.ArgumentTypeError as error:
            raise ConfigError(f"{flag} {key}={error}") from None
    return values


def read_player(words: Sequence[str], flag: str) -> Player:
    """A player from its words, or from one text of several. Raises ConfigError."""
    if len(words) == 1 and "=" in words[0] and not Path(words[0]).exists():
        try:
            words = words_of(words[0])
        except argparse.ArgumentTypeError as error:
            raise ConfigError(f"{flag} {error}") from None
    bare = "" if not words or _is_pair(words[0]) else words[0]
    pairs = words[1:] if bare else words
    values = key_values([word for word in pairs if not word.startswith(OPTION)], KEYS, flag)
    options = {}
    for word in pairs:
        name, equals, value = word.removeprefix(OPTION).partition("=")
        if word.startswith(OPTION):
            if not name or not equals:
                raise ConfigError(f"{flag} {quoted(word)}: expected {OPTION}NAME=VALUE")
            options[name] = value
    command, weights = values.get("cmd", []), values.get("weights", bare).rstrip("/")
    name = values.get("name") or (Path(command[0]).name if command else weights)
    label = shortened(f"{flag} {name}".rstrip())
    if [bool(bare), bool(command), "weights" in values].count(True) != 1:
        raise ConfigError(f"{label}: expected one of cmd=PROGRAM, weights=W, {RANDOM}, {SOLVER} and {MCTS}")
    limit = limit_of(values)
    if not limit.is_any and (extra := [key for key in ("tc", "timemargin") if key in values]):
        raise ConfigError(f"{label}, {extra[0]}=: expected nodes=, depth=, st= or a clock as well")
    player = Player(name, flag=label, limit=limit, random_share=values.get("random", 0.0))
    if command:
        command = (*command, *values.get("args", []))
        directory = values.get("dir", "")
        return replace(player, kind="engine", command=command, directory=directory, options=options)
    if of_engines := [key for key in ("args", "dir") if key in values] + [OPTION + key for key in options]:
        raise ConfigError(f"{label}, {of_engines[0]}: expected only with cmd=PROGRAM")
    if bare in (RANDOM, SOLVER, MCTS):
        return replace(player, kind=bare)
    return replace(player, kind="weights", weights=weights)


def limit_of(values: Mapping[str, Any]) -> Limit:
    """Of these, by the keys of LIMITS, which may name none."""
    margin = values.get("timemargin")
    return Limit(
        values.get("nodes"),
        values.get("depth"),
        values.get("st"),
        values.get("tc"),
        MARGIN_S if margin is None else margin / 1000,
    )


def _is_pair(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and (key.startswith(OPTION) or key.isalpha()) and not Path(word).exists()


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


SOLVER_TABLE_MIB = 256


class Lineup:
    """Makes the players of one command ready; a network that plays twice is loaded once.

    checksums: of every tensor of a network, in whatever file.
    """

    def __init__(self, args: argparse.Namespace, limit: Limit, *, on_cpu: bool = False) -> None:
        """limit: of players without one. on_cpu: whatever --device."""
        self._args = args
        self._limit = limit
        self._on_cpu = on_cpu
        self._networks: dict[str, AlphaZeroNet] = {}
        self.checksums = cache(self._checksums)

    def settled(self, player: Player) -> Player:
        """With the limit that it plays by, and the program that plays for it.

        That is `alphazero uci` for a network by a clock or to a depth. Raises ConfigError.
        """
        limit = player.limit if player.limit.is_any else self._limit
        command = player.command
        if player.kind == "engine" and not limit.is_any:
            raise ConfigError(
                f"{player.flag}: expected a limit: nodes=, depth=, tc= or st=, "
                "or --nodes, --tc or --st for all"
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
        by_game: dict[str, Player] = {}
        for player in players:
            if player.command:
                by_game.setdefault(CHESS, player)
            elif player.kind == SOLVER:
                by_game.setdefault(SOLVED_GAME, player)
            elif player.kind == "weights":
                by_game.setdefault(self._network(player).spec.name, player)
        if len(by_game) > 1:
            (game, player), (other, second), *_ = by_game.items()
            raise ConfigError(f"{second.flag}: plays {other}, {player.name} plays {game}")
        named = getattr(self._args, "game_file", None)  # --game: of players without weights
        return next(iter(by_game), read_game("--game", named) if named else CHESS)

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

    @staticmethod
    def _checksums(weights: str) -> dict[str, int]:
        from alphazero.network.weights.open_network import open_weights
        from alphazero.training.ranks.exchange import checksums

        return checksums(open_weights(weights).state_dict.items())

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
