"""Players of a match from the words about them: networks loaded, engines resolved."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from alphazero.cli.flags.players import RANDOM, SOLVER, PlayerWords
from alphazero.config import Config, SearchConfig, load_config
from alphazero.errors import ConfigError
from alphazero.evaluation.matches.contestants import Contestant, Engine, InProcess
from alphazero.evaluation.matches.game import CHESS
from alphazero.evaluation.matches.limits import Limit
from alphazero.evaluation.players import SOLVED_GAME, Thinker, random_player, solver_thinker, without_values

if TYPE_CHECKING:
    from alphazero.network.inference.evaluator import NetworkEvaluator

SOLVER_TABLE_MIB = 256


class Lineup:
    """Makes the contestants of one match; a network that plays twice is loaded once."""

    def __init__(self, args: argparse.Namespace, limit: Limit, batch_size: int) -> None:
        """limit: of players without one of their own. batch_size: positions per evaluation of a network."""
        search = {entry.name for entry in fields(SearchConfig)}
        flags = {name: value for name, value in vars(args).items() if name in search}
        self._config: Config = load_config(args.config, {**flags, "noise_epsilon": "0"})
        self._args = args
        self._limit = limit
        self._batch_size = batch_size
        self._evaluators: dict[str, NetworkEvaluator] = {}

    def game_of(self, players: Sequence[PlayerWords]) -> str:
        """The game that they all play. Raises ConfigError where they do not."""
        found: dict[str, PlayerWords] = {}
        for player in players:
            game = {SOLVER: SOLVED_GAME, "engine": CHESS}.get(player.kind, "")
            if player.kind == "weights":
                game = CHESS if self._is_engine(player) else self._evaluator(player).spec.name
            if game:
                found.setdefault(game, player)
        if len(found) > 1:
            (game, player), (other, second), *_ = found.items()
            raise ConfigError(f"{second.place}: plays {other}, {player.name} plays {game}")
        return next(iter(found), self._config.network.game)

    def contestant(self, player: PlayerWords) -> Contestant:
        """The player, ready to play. Raises ConfigError."""
        limit = player.limit or self._limit
        if player.kind == "engine":
            if not limit.is_any:
                raise ConfigError(
                    f"{player.place}: expected a limit: nodes=, depth=, tc= or st=, "
                    "or --nodes, --tc or --movetime for all"
                )
            return Engine(
                player.name, player.command, limit, player.directory, player.options, player.random_share
            )
        if player.kind == RANDOM:
            # All its moves are drawn by the match, the same ones whatever goes on beside a game.
            return InProcess(player.name, without_values(random_player(self._args.seed)), random_share=1.0)
        if player.kind == SOLVER:
            from alphazero.cli.commands.games.solve import make_solver

            think = solver_thinker(make_solver(SOLVER_TABLE_MIB))
            return InProcess(player.name, think, random_share=player.random_share)
        if self._is_engine(player):
            return Engine(player.name, self._engine_command(player), limit, random_share=player.random_share)
        simulations = limit.nodes or self._config.search.simulations
        return InProcess(
            player.name,
            self._search(player, simulations),
            Limit(nodes=simulations),
            player.random_share,
        )

    def _is_engine(self, player: PlayerWords) -> bool:
        """Whether a network plays by a clock or to a depth: our own UCI engine knows how."""
        limit = player.limit or self._limit
        return limit.is_timed or limit.depth is not None

    def _engine_command(self, player: PlayerWords) -> tuple[str, ...]:
        """That of `alphazero uci` with the network."""
        flags = (
            "--weights",
            player.given,
            "--device",
            self._args.device,
            "--precision",
            self._args.precision,
        )
        return (sys.executable, "-m", "alphazero", "uci", *flags)

    def _search(self, player: PlayerWords, simulations: int) -> Thinker:
        import torch

        from alphazero.evaluation.players import search_thinker
        from alphazero.search.settings import search_settings

        settings = search_settings(replace(self._config.search, simulations=simulations))
        return search_thinker(self._evaluator(player), settings, num_threads=torch.get_num_threads())

    def _evaluator(self, player: PlayerWords) -> NetworkEvaluator:
        if player.given not in self._evaluators:
            from alphazero.network.device import choose_device
            from alphazero.network.inference.evaluator import NetworkEvaluator
            from alphazero.training.checkpoint.any_weights import open_network

            args = self._args
            device = choose_device(args.device, 0, os.environ)
            flag = player.place.partition(" ")[0]
            network, _ = open_network(player.given, device, flag)
            self._evaluators[player.given] = NetworkEvaluator(
                network, network.spec, device, args.precision, self._batch_size
            )
        return self._evaluators[player.given]
