"""Players as the command line names them (`random`, `solver`, weights, key=value words), and their making."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.base.files import sha256_of
from alphazero.base.section import flag_of, values_of_flags
from alphazero.base.text import one_of, quoted, shortened
from alphazero.cli.flags import device_of, make_solver
from alphazero.machine.environment import START
from alphazero.play.matches.game import CHESS
from alphazero.play.matches.limits import Limit, TimeControl, seconds, whole_number
from alphazero.play.matches.players import (
    SOLVED_GAME,
    Contestant,
    EnginePlayer,
    InProcess,
    PlayerWords,
    Thinker,
    engine_thinker,
    engine_trees,
    mcts_player,
    random_player,
    solver_thinker,
    without_values,
)
from alphazero.search.metered import Meter, MeteredEvaluator
from alphazero.settings.load import Config, load_config
from alphazero.settings.self_play import SearchConfig

RANDOM = "random"
SOLVER = "solver"
MCTS = "mcts"  # tree search with random playouts
ENGINE = "engine"
SELF_PLAY = "selfplay"
RULES = (ENGINE, SELF_PLAY)
KEYS = (
    "name",
    "cmd",
    "args",
    "dir",
    "weights",
    "rules",
    "proto",
    "nodes",
    "depth",
    "tc",
    "st",
    "timemargin",
    "random",
)
OPTION = "option."
# Settings of [search] for the games of self-play alone.
OF_SELF_PLAY = {"noise_epsilon", "dirichlet_alpha", "forced_playouts"}


def read_player(words: Sequence[str], flag: str) -> PlayerWords:
    """A player from its words, or from one text of several. Raises ConfigError."""
    if len(words) == 1 and "=" in words[0] and not Path(words[0]).exists():
        words = _split(words[0], flag)
    bare = "" if not words or _is_pair(words[0]) else words[0]
    values, options = _pairs(words[1:] if bare else words, flag)
    name = values.get("name")
    if name is not None and not (name and name.isprintable()):
        raise ConfigError(
            f"{flag} name={quoted(name)}: expected a name on one line, without control characters"
        )
    given = name or bare or values.get("cmd", values.get("weights", ""))
    place = shortened(f"{flag} {given}".rstrip())
    kinds = [kind for kind in (bare, values.get("cmd"), values.get("weights")) if kind]
    if len(kinds) != 1:
        raise ConfigError(f"{place}: expected one of cmd=PROGRAM, weights=W, {RANDOM}, {SOLVER} and {MCTS}")
    random = values.get("random", "0")
    if (share := seconds(random, f"{place}, random=")) > 1:
        raise ConfigError(f"{place}, random={quoted(random)}: expected a share from 0 to 1")
    limit = _limit(values, place)
    if "cmd" in values:
        command = (*_command(values["cmd"], place), *_split(values.get("args", ""), f"{place}, args="))
        name = name or Path(command[0]).name
        directory = values.get("dir", "")
        if directory and not Path(directory).is_dir():
            raise ConfigError(f"{place}, dir={quoted(directory)}: expected a directory")
        return PlayerWords(place, "engine", name, "", command, directory, options, limit, share)
    of_engines = [key for key in ("args", "dir") if key in values] + [OPTION + name for name in options]
    if of_engines:
        raise ConfigError(f"{place}, {of_engines[0]}: expected only with cmd=PROGRAM")
    kind = bare if bare in (RANDOM, SOLVER, MCTS) else "weights"
    rules = values.get("rules", "")
    if rules and (kind != "weights" or rules not in RULES):
        raise ConfigError(f"{place}, rules={quoted(rules)}: expected {ENGINE} or {SELF_PLAY} with weights")
    given = values.get("weights", bare)
    name = name or given.rstrip("/")
    return PlayerWords(place, kind, name, given, limit=limit, random_share=share, rules=rules)


def with_own_names(players: Sequence[PlayerWords]) -> list[PlayerWords]:
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
            raise ConfigError(f"{place}, timemargin=: expected only with tc= or st=")
    return limit if limit.is_any else None


if TYPE_CHECKING:
    import torch

    from alphazero.network.model.resnet import AlphaZeroNet
    from alphazero.search.game_trees import GameTrees

SOLVER_TABLE_MIB = 256
MOST_BATCH = 64  # of positions, unless another is given


class Lineup:
    """Makes the contestants of one match; a network that plays twice is loaded once."""

    def __init__(self, args: argparse.Namespace, limit: Limit, games: int, *, on_cpu: bool = False) -> None:
        """limit: of players without one. games: side by side. on_cpu: whatever --device."""
        flags = values_of_flags(SearchConfig, vars(args))
        if other := sorted(flags.keys() & OF_SELF_PLAY):
            raise ConfigError(
                f"{flag_of(other[0])}: only for games of self-play; players of a match search without noise"
            )
        if args.rules == ENGINE and (other := sorted(flags.keys() - {"simulations"})):
            raise ConfigError(
                f"{flag_of(other[0])}: a setting of self-play's rules; expected --rules {SELF_PLAY} with it"
            )
        if limit.nodes is not None and "simulations" in flags:
            raise ConfigError(
                f"--nodes {limit.nodes} and --simulations {flags['simulations']}: expected one of the two"
            )
        named = {"game": args.game_file} if "game_file" in args else {}  # --game: of players without weights
        self._config: Config = load_config(args.config, {**flags, **named, "noise_epsilon": "0"})
        self._args = args
        self._limit = limit
        # Half of the games unless it is given, as they are searched in two groups by turns.
        self._batch_size = args.batch_size or max(1, min(MOST_BATCH, -(-games // 2)))
        self._on_cpu = on_cpu
        self.meter = Meter()  # of all evaluations
        self._networks: dict[str, AlphaZeroNet] = {}
        self._evaluators: dict[str, MeteredEvaluator] = {}
        self._checksums: dict[str, dict[str, int]] = {}

    def game_of(self, players: Sequence[PlayerWords]) -> str:
        """The game of all players. Raises ConfigError where they play different ones."""
        found: dict[str, PlayerWords] = {}
        for player in players:
            game = SOLVED_GAME if player.kind == SOLVER else ""
            if self.is_program(player):
                game = CHESS
            elif player.kind == "weights":
                game = self._network(player).spec.name
            if game:
                found.setdefault(game, player)
        if len(found) > 1:
            (game, player), (other, second), *_ = found.items()
            raise ConfigError(f"{second.place}: plays {other}, {player.name} plays {game}")
        return next(iter(found), self._config.network.game)

    def contestant(self, player: PlayerWords) -> Contestant:
        """The player, ready to play. Raises ConfigError."""
        limit = self.limit(player)
        if self.is_program(player):
            command = player.command or self._uci_command(player)
            return EnginePlayer(
                player.name, command, limit, player.directory, player.options, player.random_share
            )
        if player.kind == RANDOM:
            # The match draws all its moves, a function of seed, game and ply.
            return InProcess(player.name, without_values(random_player(self._args.seed)), random_share=1.0)
        if player.kind == SOLVER:
            think = solver_thinker(make_solver(SOLVER_TABLE_MIB))
            return InProcess(player.name, think, random_share=player.random_share)
        assert limit.nodes is not None
        if player.kind == MCTS:
            think = without_values(mcts_player(limit.nodes, self._args.seed))
            return InProcess(player.name, think, limit, player.random_share)
        if (player.rules or self._args.rules) == SELF_PLAY:
            think = self._search(player, limit.nodes)
            return InProcess(player.name, think, limit, player.random_share)
        trees = self._trees(player)
        return InProcess(
            player.name, engine_thinker(trees, limit.nodes), limit, player.random_share, trees.leave
        )

    def limit(self, player: PlayerWords) -> Limit:
        """Of the player's moves, as results and PGN show it. Raises ConfigError."""
        given = player.limit or self._limit
        if player.kind == "engine" and not given.is_any:
            raise ConfigError(
                f"{player.place}: expected a limit: nodes=, depth=, tc= or st=, "
                "or --nodes, --tc or --movetime for all"
            )
        if self.is_program(player):
            return given
        return Limit(
            nodes=given.nodes or self._config.search.simulations if player.kind in ("weights", MCTS) else None
        )

    @property
    def search_text(self) -> str:
        """The settings of the searches of this match."""
        return str(self._config.search)

    def checksums(self, weights: str) -> dict[str, int]:
        """Of every tensor of a network, in whatever file."""
        from alphazero.network.weights.open_network import open_weights
        from alphazero.training.ranks.exchange import checksums

        if weights not in self._checksums:
            self._checksums[weights] = checksums(open_weights(weights).state_dict.items())
        return self._checksums[weights]

    def digest(self, player: PlayerWords) -> str:
        """Of the network or program that plays; "" for players of this program."""
        if player.kind == "weights":
            return hashlib.sha256(repr(self.checksums(player.given)).encode()).hexdigest()
        if player.kind == "engine":
            program = shutil.which(player.command[0]) or str(Path(player.directory) / player.command[0])
            return sha256_of(Path(program)) if Path(program).is_file() else ""
        return ""

    def is_program(self, player: PlayerWords) -> bool:
        """Whether processes play: an engine, or `alphazero uci` for a network by a clock or to a depth."""
        limit = player.limit or self._limit
        by_clock = limit.is_timed or limit.depth is not None
        return player.kind == "engine" or (player.kind == "weights" and by_clock)

    def _uci_command(self, player: PlayerWords) -> tuple[str, ...]:
        network = ("--device", self._args.device, "--precision", self._args.precision)
        return (sys.executable, START, "uci", "--weights", player.given, *network)

    def _search(self, player: PlayerWords, simulations: int) -> Thinker:
        import torch

        from alphazero.play.matches.players import search_thinker
        from alphazero.play.search_settings import search_settings

        settings = search_settings(replace(self._config.search, simulations=simulations))
        return search_thinker(self._evaluator(player), settings, num_threads=torch.get_num_threads())

    def _trees(self, player: PlayerWords) -> GameTrees:
        args = self._args
        return engine_trees(
            self._network(player), self._device, args.precision, self.meter, args.batch_size or 0
        )

    def _evaluator(self, player: PlayerWords) -> MeteredEvaluator:
        from alphazero.network.inference.evaluator import NetworkEvaluator

        if player.given not in self._evaluators:
            evaluator = NetworkEvaluator(
                self._network(player), self._device, self._args.precision, self._batch_size
            )
            self._evaluators[player.given] = MeteredEvaluator(evaluator, self.meter)
        return self._evaluators[player.given]

    def _network(self, player: PlayerWords) -> AlphaZeroNet:
        if player.given not in self._networks:
            from alphazero.network.weights.open_network import open_network

            flag = player.place.partition(" ")[0]
            self._networks[player.given], _ = open_network(player.given, self._device, flag)
        return self._networks[player.given]

    @cached_property
    def _device(self) -> torch.device:
        return device_of("cpu" if self._on_cpu else self._args.device)
