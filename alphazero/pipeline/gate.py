"""The gate of self-play: new weights play for the run only when they beat those that played before."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alphazero.evaluation.match import MatchScore, play_match, random_openings
from alphazero.evaluation.players import Player, search_player
from alphazero.games.spec import GameSpec
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.search.settings import search_settings
from alphazero.training.exchange import Exchange
from alphazero.training.loop.job import Job

Tensors = dict[str, torch.Tensor]


class Gate:
    """Holds the weights that play. AlphaGo Zero (Silver et al. 2017, Methods): 55 % of 400 games."""

    def __init__(self, job: Job, spec: GameSpec, exchange: Exchange) -> None:
        self._job = job
        self._spec = spec
        self._exchange = exchange
        self.champion: Tensors | None = None  # on the CPU

    @property
    def player(self) -> Tensors:
        """The weights that play; decide() comes first."""
        assert self.champion is not None
        return self.champion

    def decide(self, candidate: Mapping[str, torch.Tensor], generation: int) -> str:
        """Let `candidate` take over if it wins its match, or is the first; what to tell people. Collective.

        The games are a function of both weights, the seed and the generation; ranks share them out.
        """
        own = self._job.config.self_play
        if self.champion is None:
            self.champion = _copied(candidate)
            return "gate: the first weights play"
        score = self._match(candidate, self.champion, generation)
        takes_over = score.share >= own.gate_score
        if takes_over:
            self.champion = _copied(candidate)
        verdict = "they play now" if takes_over else f"below {own.gate_score:.0%}, the old ones play on"
        return f"gate: new weights won {score.share:.1%} of {score.games} games: {verdict}"

    def _match(self, candidate: Mapping[str, torch.Tensor], champion: Tensors, generation: int) -> MatchScore:
        config, exchange = self._job.config, self._exchange
        own = config.self_play
        openings = random_openings(
            self._spec.name, own.gate_games // 2, own.gate_opening_plies, config.training.seed + generation
        )
        mine = openings[exchange.rank :: exchange.world_size]
        score = MatchScore(0, 0, 0)
        if mine:
            score = play_match(self._player(candidate), self._player(champion), mine, max_plies=own.max_plies)
        counts = torch.tensor([score.wins, score.draws, score.losses], dtype=torch.float64)
        return MatchScore(*(round(count) for count in exchange.sum(counts).tolist()))

    def _player(self, tensors: Mapping[str, torch.Tensor]) -> Player:
        config = self._job.config
        with torch.device("meta"):
            network = AlphaZeroNet(config.network, self._spec)
        network.load_state_dict(dict(tensors), assign=True)
        evaluator = NetworkEvaluator(
            network.eval(),
            self._spec,
            self._job.runtime.device,
            config.training.precision,
            config.self_play.evaluation_batch,
        )
        settings = search_settings(config.search)
        return search_player(evaluator, settings, num_threads=torch.get_num_threads())


def _copied(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """On the CPU, in memory of their own: training changes the originals."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
