"""Plays the games of a match: players of this process move in batches while engines search."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

import chess.engine

from alphazero.base.errors import PlayerError
from alphazero.base.text import counted
from alphazero.games.tablebases import Tablebases
from alphazero.play.matches.engines import EngineRoom, ForfeitError, MoveRequest
from alphazero.play.matches.game import (
    Adjudication,
    Decision,
    Ending,
    FinishedGame,
    LiveGame,
    Pairing,
    score_of_value,
)
from alphazero.play.matches.players import Contestant, EnginePlayer, InProcess

FAULTS_IN_A_ROW = 3  # of an engine, which end the match
SYZYGY = "--syzygy"  # what messages about tablebases name
LATE_S = 1.0  # waited beyond the clock and margin of an engine
ENGINE_TIMEOUT_S = 120.0  # without a clock


@dataclass(frozen=True)
class Conditions:
    """The conditions of all games. lanes: games at a time; concurrency: those of them with an engine.

    engine_timeout_s: after which an engine without a clock forfeits. seed: of random moves.
    """

    game: str
    rules: Adjudication
    lanes: int = 256
    concurrency: int = 1
    engine_timeout_s: float = ENGINE_TIMEOUT_S
    seed: int = 0


class Conductor:
    """One match. on_game takes each finished game and returns whether to continue; say prints a line."""

    def __init__(
        self,
        contestants: Sequence[Contestant],
        conditions: Conditions,
        *,
        engines: EngineRoom | None,
        on_game: Callable[[FinishedGame], bool],
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._contestants = contestants
        self._conditions = conditions
        paths = conditions.rules.syzygy
        self._tables = Tablebases(paths, SYZYGY) if paths else None
        self._engines = engines
        self._on_game = on_game
        self._say = say
        self._live: dict[int, LiveGame] = {}
        self._asked: dict[Future[Decision], LiveGame] = {}
        self._faults: Counter[str] = Counter()  # in a row
        self._continues = True

    def play(self, pairings: Iterable[Pairing]) -> None:
        """Play the games in order, many at a time. Raises PlayerError where an engine keeps failing."""
        waiting = iter(pairings)
        upcoming = next(waiting, None)
        while self._continues:
            while upcoming is not None and self._has_room_for(upcoming):
                self._begin(upcoming)
                upcoming = next(waiting, None)
            if not self._live:
                return
            self._ask_engines()
            has_thought = self._think()
            if self._asked and self._continues:
                self._take_answers(None if not has_thought else 0.0)

    def _has_room_for(self, pairing: Pairing) -> bool:
        if len(self._live) >= self._conditions.lanes:
            return False
        with_engines = sum(self._has_engine(game.pairing) for game in self._live.values())
        return not self._has_engine(pairing) or with_engines < self._conditions.concurrency

    def _has_engine(self, pairing: Pairing) -> bool:
        players = (self._contestants[pairing.first], self._contestants[pairing.second])
        return any(isinstance(player, EnginePlayer) for player in players)

    def _begin(self, pairing: Pairing) -> None:
        first, second = self._contestants[pairing.first], self._contestants[pairing.second]
        self._live[pairing.number] = LiveGame(
            self._conditions.game,
            pairing,
            self._conditions.rules,
            first.limit,
            second.limit,
            self._tables,
        )

    def _ask_engines(self) -> None:
        for game in self._live.values():
            player = self._contestants[game.to_move]
            if not isinstance(player, EnginePlayer) or game.is_waiting or self._plays_at_random(game, player):
                continue
            assert self._engines is not None
            future = self._engines.ask(player, self._question(game, player))
            game.is_waiting = True
            self._asked[future] = game

    def _question(self, game: LiveGame, player: EnginePlayer) -> MoveRequest:
        limit, clock = player.limit, game.clock
        clocks: dict[str, Any] = {}
        if limit.control is not None:
            for is_first, colour in ((True, "white"), (False, "black")):
                own = game.clocks[is_first]
                if own.limit.control is not None:
                    clocks[f"{colour}_clock"] = own.left_s
                    clocks[f"{colour}_inc"] = own.limit.control.increment_s
        timeout_s, ending = self._conditions.engine_timeout_s, Ending.ABANDONED
        reason = f"does not answer for {timeout_s:g} s"
        if limit.is_timed:
            timeout_s, ending = clock.deadline_s + LATE_S, Ending.TIME
            reason = "loses on time without an answer"
        return MoveRequest(
            game.pairing.number,
            game.board().copy(),
            chess.engine.Limit(
                nodes=limit.nodes,
                depth=limit.depth,
                time=limit.move_time_s,
                remaining_moves=clock.moves_to_go or None,
                **clocks,
            ),
            timeout_s,
            ending,
            reason,
        )

    def _plays_at_random(self, game: LiveGame, player: Contestant) -> bool:
        """Whether this move is drawn at random: a function of the seed, the game and the ply."""
        if not player.random_share:
            return False
        return self._dice(game, "mistake").random() < player.random_share

    def _dice(self, game: LiveGame, purpose: str) -> random.Random:
        return random.Random(f"{self._conditions.seed}/{game.pairing.number}/{game.line.num_plies}/{purpose}")

    def _think(self) -> bool:
        """Play a move in every game that waits for no engine; returns whether there was any."""
        has_thought = False
        for index, player in enumerate(self._contestants):
            games = [game for game in self._live.values() if game.to_move == index and not game.is_waiting]
            drawn = [game for game in games if self._plays_at_random(game, player)]
            for game in drawn:
                move = self._dice(game, "move").choice(game.line.legal())
                self._play(game, Decision(game.line.move_to_text(move)))
            thinking = [game for game in games if game not in drawn]
            if isinstance(player, InProcess) and thinking and self._continues:
                self._think_of(player, thinking)
            has_thought = has_thought or bool(games)
        return has_thought

    def _think_of(self, player: InProcess, games: list[LiveGame]) -> None:
        started_s = time.monotonic()
        thoughts = player.think({game.pairing.number: game.line for game in games})
        share_s = (time.monotonic() - started_s) / len(games)
        for game, thought in zip(games, thoughts, strict=True):
            score = None if thought.value is None else score_of_value(thought.value, thought.mate)
            text = game.line.move_to_text(thought.move)
            self._play(game, Decision(text, score, 0, thought.nodes, share_s))

    def _take_answers(self, timeout_s: float | None) -> None:
        done, _ = wait(self._asked, timeout_s, FIRST_COMPLETED)
        for future in done:
            game = self._asked.pop(future)
            game.is_waiting = False
            if self._continues:
                self._take(game, future)

    def _take(self, game: LiveGame, future: Future[Decision]) -> None:
        player = self._contestants[game.to_move]
        try:
            decision = future.result()
        except ForfeitError as fault:
            self._finish(game, game.forfeit(fault.ending, fault.reason))
            self._note_fault(player.name, game, fault.reason)
            return
        self._faults[player.name] = 0
        late_s = game.clock.spend(decision.time_s)
        if player.limit.is_timed and late_s:
            reason = f"loses on time ({1000 * late_s:.0f}ms overrun)"
            self._say(f"game {game.pairing.number}: {player.name} {reason}")
            self._finish(game, game.forfeit(Ending.TIME, reason))
            return
        self._play(game, decision)

    def _note_fault(self, name: str, game: LiveGame, reason: str) -> None:
        self._say(f"game {game.pairing.number}: {name} {reason} and loses the game")
        self._faults[name] += 1
        if self._faults[name] == FAULTS_IN_A_ROW:
            games = counted(FAULTS_IN_A_ROW, "game")
            raise PlayerError(f"player {name!r} failed in {games} in a row; in the last one it {reason}")

    def _play(self, game: LiveGame, decision: Decision) -> None:
        over = game.play(decision)
        if over is not None:
            self._finish(game, over)

    def _finish(self, game: LiveGame, over: FinishedGame) -> None:
        del self._live[game.pairing.number]
        if self._engines is not None:
            self._engines.leave(game.pairing.number)
        for player in self._contestants:
            if isinstance(player, InProcess):
                player.leave(game.pairing.number)
        if self._continues:
            self._continues = self._on_game(over)
