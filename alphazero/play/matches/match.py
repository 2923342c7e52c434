"""A match: its games side by side, in this process or dealt by pairs to workers.

Players of this process move in batches while engines search.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

from alphazero.base.errors import PlayerError
from alphazero.base.log import Say
from alphazero.base.records import from_json, to_json
from alphazero.base.text import counted
from alphazero.games.tablebases import Tablebases
from alphazero.play.matches.engines import EngineRoom, ForfeitError
from alphazero.play.matches.game import (
    Adjudication,
    Decision,
    Ending,
    FinishedGame,
    LiveGame,
    Pairing,
)
from alphazero.play.matches.players import Player
from alphazero.play.workers import Worker, Workers

FAULTS_IN_A_ROW = 3  # of an engine, which end the match
SYZYGY = "--syzygy"  # what messages about tablebases name
ENGINE_TIMEOUT_S = 120.0

# Takes each finished game; False ends play.
OnGame = Callable[[FinishedGame], bool]


@dataclass(frozen=True)
class MatchPlan:
    """Games to play. lanes: at a time; concurrency: those of them with an engine.

    engine_timeout_s: after which an engine without a clock forfeits. seed: of random moves.
    """

    game: str
    players: tuple[Player, ...]
    pairings: tuple[Pairing, ...]
    rules: Adjudication = field(default_factory=Adjudication)
    lanes: int = 64
    concurrency: int = 1
    engine_timeout_s: float = ENGINE_TIMEOUT_S
    seed: int = 0


GAME, SAID = "game", "said"  # kinds of replies of workers


class Arena(contextlib.ExitStack):
    """Where games are played, in this process or by workers; a context manager: no engine outlives it."""

    def __init__(
        self,
        prepare: Callable[[Player], Player] = lambda player: player,
        workers: Workers | None = None,
    ) -> None:
        """prepare: makes players ready to play. workers: where they play."""
        super().__init__()
        self._prepare = prepare
        self._workers = workers
        self._engines: EngineRoom | None = None
        self._ready: dict[str, Player] = {}

    def play(self, plan: MatchPlan, on_game: OnGame, say: Say) -> None:
        """Play the games. Players that were ready for another plan stay as they are.

        say: takes lines about forfeits. Raises PlayerError for an engine that keeps failing, and ConfigError
        for one that cannot be started. After on_game has returned False workers can play no more.
        """
        if self._workers:
            self._deal(self._workers, plan, on_game, say)
            return
        chess960 = any(pairing.opening.chess960 for pairing in plan.pairings)
        players = [self._made_ready(player, chess960) for player in plan.players] if plan.pairings else []
        _GamesInProgress(plan, players, self._engines, on_game, say).play()

    def work(self, worker: Worker) -> None:
        """A worker's side of play()."""

        def on_game(game: FinishedGame) -> bool:
            worker.reply(GAME, to_json(game))
            return True

        for task in worker.tasks():
            self.play(from_json(MatchPlan, task), on_game, lambda line: worker.reply(SAID, line))

    def _made_ready(self, player: Player, chess960: bool) -> Player:
        key = repr(player)
        if key not in self._ready:
            if player.command:
                self._engines = self._engines or self.enter_context(EngineRoom())
                self._engines.check(player, chess960=chess960)
            self._ready[key] = self._prepare(player)
        return self._ready[key]

    def _deal(self, workers: Workers, plan: MatchPlan, on_game: OnGame, say: Say) -> None:
        number = len(workers)
        tasks = [
            # Games with engines side by side are those of all workers.
            replace(plan, concurrency=max(1, len(range(own, plan.concurrency, number))), pairings=part)
            for own, part in enumerate(dealt(plan.pairings, number))
        ]
        for reply in workers.replies([to_json(task) for task in tasks]):
            if reply.kind == SAID:
                say(reply.content.decode())
            elif not on_game(from_json(FinishedGame, reply.content)):
                return


def dealt(pairings: Sequence[Pairing], number: int) -> list[tuple[Pairing, ...]]:
    """The pairings in `number` parts; the games of a pair are in one of them, in their order."""
    pairs: dict[tuple[int, int, int], list[Pairing]] = {}
    for pairing in pairings:
        low, high = sorted((pairing.first, pairing.second))
        pairs.setdefault((pairing.pair, low, high), []).append(pairing)
    each = list(pairs.values())
    return [tuple(pairing for pair in each[own::number] for pairing in pair) for own in range(number)]


class _GamesInProgress:
    """The games of a plan that this process plays, with players that are ready."""

    def __init__(
        self,
        plan: MatchPlan,
        players: Sequence[Player],
        engines: EngineRoom | None,
        on_game: OnGame,
        say: Say,
    ) -> None:
        self._plan, self._players, self._engines = plan, players, engines
        self._on_game, self._say = on_game, say
        self._tables = Tablebases(plan.rules.syzygy, SYZYGY) if plan.rules.syzygy else None
        self._live: dict[int, LiveGame] = {}
        self._asked: dict[Future[Decision], LiveGame] = {}
        self._faults: Counter[str] = Counter()  # games that each player lost by one, in a row
        self._continues = True

    def play(self) -> None:
        """Play the games in order, many at a time. Raises PlayerError where an engine keeps failing."""
        waiting = list(self._plan.pairings[::-1])
        while self._continues:
            while waiting and self._has_room_for(waiting[-1]):
                self._begin(waiting.pop())
            if not self._live:
                return
            self._ask_engines()
            has_moved = self._move()
            if self._asked and self._continues:
                done, _ = wait(self._asked, 0.0 if has_moved else None, FIRST_COMPLETED)
                for future in done:
                    self._take_answer(future)

    def _has_room_for(self, pairing: Pairing) -> bool:
        if len(self._live) >= self._plan.lanes:
            return False
        with_engines = sum(self._has_engine(game.pairing) for game in self._live.values())
        return not self._has_engine(pairing) or with_engines < self._plan.concurrency

    def _has_engine(self, pairing: Pairing) -> bool:
        return bool(self._players[pairing.first].command or self._players[pairing.second].command)

    def _begin(self, pairing: Pairing) -> None:
        limits = self._players[pairing.first].limit, self._players[pairing.second].limit
        game = LiveGame(self._plan.game, pairing, self._plan.rules, *limits, self._tables)
        self._live[pairing.number] = game

    def _ask_engines(self) -> None:
        for game in self._live.values():
            player = self._players[game.to_move]
            if player.command and not game.is_waiting and not self._plays_at_random(game, player):
                assert self._engines is not None
                game.is_waiting = True
                self._asked[self._engines.ask(player, game, self._plan.engine_timeout_s)] = game

    def _plays_at_random(self, game: LiveGame, player: Player) -> bool:
        """Whether this move is drawn at random: a function of the seed, the game and the ply."""
        return player.random_share > 0 and self._dice(game, "mistake").random() < player.random_share

    def _dice(self, game: LiveGame, purpose: str) -> random.Random:
        return random.Random(f"{self._plan.seed}/{game.pairing.number}/{game.line.num_plies}/{purpose}")

    def _move(self) -> bool:
        """Play a move in every game that waits for no engine; returns whether there was any."""
        has_moved = False
        for index, player in enumerate(self._players):
            games = [game for game in self._live.values() if game.to_move == index and not game.is_waiting]
            has_moved = has_moved or bool(games)
            thinking = []
            for game in games:
                if self._plays_at_random(game, player):
                    move = self._dice(game, "move").choice(game.line.legal())
                    self._play(game, Decision(game.line.move_to_text(move)))
                else:
                    thinking.append(game)
            if player.decide is None or not thinking or not self._continues:
                continue
            started_s = time.monotonic()
            decisions = player.decide({game.pairing.number: game.line for game in thinking})
            share_s = (time.monotonic() - started_s) / len(thinking)
            for game, decision in zip(thinking, decisions, strict=True):
                self._play(game, replace(decision, time_s=share_s))
        return has_moved

    def _take_answer(self, future: Future[Decision]) -> None:
        game = self._asked.pop(future)
        game.is_waiting = False
        if not self._continues:
            return
        player, number = self._players[game.to_move], game.pairing.number
        try:
            decision = future.result()
        except ForfeitError as fault:
            faults = self._faults[player.name] + 1
            self._finish(game, game.forfeit(fault.ending, fault.reason))
            self._say(f"game {number}: {player.name} {fault.reason} and loses the game")
            self._faults[player.name] = faults
            if faults == FAULTS_IN_A_ROW:
                games = counted(FAULTS_IN_A_ROW, "game")
                raise PlayerError(
                    f"player {player.name!r} failed in {games} in a row; in the last one it {fault.reason}"
                ) from fault
            return
        late_s = game.clock.spend(decision.time_s)
        if player.limit.is_timed and late_s:
            reason = f"loses on time ({1000 * late_s:.0f}ms overrun)"
            self._say(f"game {number}: {player.name} {reason}")
            self._finish(game, game.forfeit(Ending.TIME, reason))
        else:
            self._play(game, decision)

    def _play(self, game: LiveGame, decision: Decision) -> None:
        over = game.play(decision)
        if over is not None:
            self._finish(game, over)

    def _finish(self, game: LiveGame, over: FinishedGame) -> None:
        number = game.pairing.number
        del self._live[number]
        self._faults.clear()
        if self._engines is not None:
            self._engines.leave(number)
        for player in self._players:
            if player.leave is not None:
                player.leave(number)
        self._continues = self._continues and self._on_game(over)
