"""Where the games of a match are played: in this process, or dealt by pairs to workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from alphazero.base.records import from_json, to_json
from alphazero.play.matches.conduct import Conditions, Conductor
from alphazero.play.matches.engines import EngineRoom
from alphazero.play.matches.game import FinishedGame, Pairing
from alphazero.play.matches.players import Contestant, EnginePlayer, PlayerWords
from alphazero.play.workers import Worker, Workers
from alphazero.search.metered import Effort, Meter

# Takes each finished game; False ends play.
OnGame = Callable[[FinishedGame], bool]
Say = Callable[[str], None]


@dataclass(frozen=True)
class MatchShare:
    """Games to play, whose players are named by their place in `players`."""

    players: tuple[PlayerWords, ...]
    conditions: Conditions
    pairings: tuple[Pairing, ...]


class OwnStage(contextlib.ExitStack):
    """This process, as a context manager: no engine outlives it."""

    def __init__(self, make: Callable[[PlayerWords], Contestant], meter: Meter) -> None:
        """make: a player, ready to play. meter: of its evaluations."""
        super().__init__()
        self._make = make
        self._meter = meter
        self._room: EngineRoom | None = None
        self._checked: set[str] = set()
        self._players: tuple[PlayerWords, ...] = ()
        self._contestants: list[Contestant] = []
        self._seconds = 0.0
        self._began_s: float | None = None

    @property
    def efforts(self) -> Sequence[Effort]:
        """Of each process so far."""
        under_way_s = 0.0 if self._began_s is None else time.monotonic() - self._began_s
        return [Effort(self._meter.positions, self._meter.seconds, self._seconds + under_way_s)]

    def play(self, share: MatchShare, on_game: OnGame, say: Say) -> None:
        """Play the games; the players stay as they are made until there are others.

        say: takes lines about forfeits. Raises PlayerError, and ConfigError for an engine that cannot be
        started.
        """
        if not share.pairings:
            return
        if share.players != self._players:
            self._contestants = [self._make(words) for words in share.players]
            self._players = share.players
            self._check_engines()
        self._began_s = time.monotonic()
        try:
            Conductor(self._contestants, share.conditions, engines=self._room, on_game=on_game, say=say).play(
                share.pairings
            )
        finally:
            self._seconds += time.monotonic() - self._began_s
            self._began_s = None

    def _check_engines(self) -> None:
        for player in self._contestants:
            if not isinstance(player, EnginePlayer):
                continue
            if self._room is None:
                self._room = self.enter_context(EngineRoom())
            if player.name not in self._checked:
                self._room.check(player)
                self._checked.add(player.name)


# What workers send.
GAME, SAID, EFFORT = "game", "said", "effort"


class DealtStage:
    """Workers, each of which plays some of the pairs."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._efforts = [Effort()] * len(workers)

    @property
    def efforts(self) -> Sequence[Effort]:
        """Of each process so far."""
        return self._efforts

    def play(self, share: MatchShare, on_game: OnGame, say: Say) -> None:
        """As OwnStage. Games with engines side by side are those of all workers. After on_game has returned
        False the workers can play no more.
        """
        number, together = len(self._workers), share.conditions.concurrency
        tasks = [
            replace(
                share,
                conditions=replace(share.conditions, concurrency=max(1, len(range(own, together, number)))),
                pairings=part,
            )
            for own, part in enumerate(dealt(share.pairings, number))
        ]
        for reply in self._workers.replies([to_json(task) for task in tasks]):
            if reply.kind == EFFORT:
                self._efforts[reply.worker] = from_json(Effort, reply.content)
            elif reply.kind == SAID:
                say(reply.content.decode())
            elif not on_game(from_json(FinishedGame, reply.content)):
                return


Stage: TypeAlias = OwnStage | DealtStage


def dealt(pairings: Sequence[Pairing], number: int) -> list[tuple[Pairing, ...]]:
    """The pairings in `number` parts; the games of a pair are in one of them, in their order."""
    pairs: dict[tuple[int, int, int], list[Pairing]] = {}
    for pairing in pairings:
        low, high = sorted((pairing.first, pairing.second))
        pairs.setdefault((pairing.pair, low, high), []).append(pairing)
    each = list(pairs.values())
    return [tuple(pairing for pair in each[own::number] for pairing in pair) for own in range(number)]


def play_tasks(worker: Worker, stage: OwnStage) -> None:
    """A worker's side of a DealtStage."""

    def on_game(game: FinishedGame) -> bool:
        tell_effort()
        worker.reply(GAME, to_json(game))
        return True

    def tell_effort() -> None:
        (effort,) = stage.efforts
        worker.reply(EFFORT, to_json(effort))

    for task in worker.tasks():
        stage.play(from_json(MatchShare, task), on_game, lambda line: worker.reply(SAID, line))
        tell_effort()
