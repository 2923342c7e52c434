"""The gate of self-play: new weights play for the run only when they beat those that played before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import torch

from alphazero.base.text import signed
from alphazero.measure.elo import MatchScore
from alphazero.network.inference.purpose import evaluator_for_self_play
from alphazero.network.weights.checkpoint import Tensors
from alphazero.network.weights.weights import network_of
from alphazero.play.matches.players import ChooseMoves, search_player
from alphazero.play.search_settings import search_settings
from alphazero.run.rank import Phase
from alphazero.training.loop.job import Job, RankServices

GATE_OPENING_PLIES = 4  # random moves, so that the games of a gate differ


class Gate:
    """Holds the weights that play. AlphaGo Zero (Silver et al. 2017, Methods): 55 % of 400 games."""

    def __init__(self, job: Job, services: RankServices) -> None:
        self._job = job
        self._services = services
        self.champion: Tensors | None = None  # on the CPU

    @property
    def player(self) -> Tensors:
        """The weights that play; decide() comes first."""
        assert self.champion is not None
        return self.champion

    def decide(self, candidate: Mapping[str, torch.Tensor], generation: int, step: int) -> str:
        """Let `candidate` take over if it wins its match, or is the first; the line to print. Collective.

        The games are a function of both weights, the seed and the generation; ranks share them out. step:
        for the heartbeat, which every batch that a network has evaluated moves on.
        """
        own = self._job.config.self_play
        if self.champion is None:
            self.champion = _copied(candidate)
            return "gate: the first weights play"
        with self._services.console.working(f"gate of generation {generation}: new weights against old"):
            score = self._match(candidate, self.champion, generation, step)
        takes_over = score.share >= own.gate_score
        if takes_over:
            self.champion = _copied(candidate)
        verdict = "they play now" if takes_over else f"below {own.gate_score:.0%}, the old ones play on"
        elo = score.elo()
        return (
            f"gate: new weights won {score.share:.1%} of {score.games} games "
            f"({signed(elo.elo)} Elo, {signed(elo.low)} to {signed(elo.high)}): {verdict}"
        )

    def _match(
        self, candidate: Mapping[str, torch.Tensor], champion: Tensors, generation: int, step: int
    ) -> MatchScore:
        # Of python-chess, which only these need.
        from alphazero.measure.match import play_match
        from alphazero.play.matches.openings import random_openings

        config, exchange, heartbeat = self._job.config, self._services.exchange, self._services.heartbeat
        own = config.self_play
        openings = random_openings(
            self._job.spec.name, own.gate_games // 2, GATE_OPENING_PLIES, config.training.seed + generation
        )
        mine = openings[exchange.rank :: exchange.world_size]
        score = MatchScore(0, 0, 0)
        if mine:
            batches = itertools.count()

            def beat() -> None:
                heartbeat.beat(Phase.GATE, step, next(batches))

            beat()
            first, second = self._player(candidate, beat), self._player(champion, beat)
            score = play_match(self._job.spec.name, first, second, mine, max_plies=own.max_plies)
        heartbeat.beat(Phase.DATA, step)  # from here on this rank may wait for the others' games
        counts = torch.tensor([score.wins, score.draws, score.losses], dtype=torch.float64)
        return MatchScore(*(round(count) for count in exchange.sum(counts).tolist()))

    def _player(self, tensors: Mapping[str, torch.Tensor], beat: Callable[[], None]) -> ChooseMoves:
        config = self._job.config
        evaluator = evaluator_for_self_play(
            network_of(config.network, tensors),
            self._job.runtime.device,
            config.training.precision,
            config.self_play.evaluation_batch,
        )
        settings = search_settings(config.search)
        return search_player(
            evaluator, settings, num_threads=torch.get_num_threads(), after_batch=lambda simulations: beat()
        )


def _copied(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Copies on the CPU: training changes the originals."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
