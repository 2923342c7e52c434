"""Self-play for its games alone: plays until there are enough, and stores them as they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from alphazero import _core
from alphazero.config import SearchConfig, SelfPlayConfig
from alphazero.data.store.growing import GrowingStore
from alphazero.search.batched import PoolEvaluator
from alphazero.search.settings import self_play_settings
from alphazero.selfplay import games
from alphazero.selfplay.worker import new_cache, new_lane, play


@dataclass
class Recording:
    """Plays games into a store, a round of moves at a time; a round's games are stored when it ends.

    history_fill: of DataConfig. on_progress is told the games so far after each batch; where it says False
    play ends, and the games that have ended by then are stored.
    """

    search: SearchConfig
    self_play: SelfPlayConfig
    seed: int
    history_fill: str
    game_name: str
    evaluator: PoolEvaluator
    store: GrowingStore
    on_progress: Callable[[int], bool]
    num_threads: int = 1
    evaluations: int = 0
    finished: list[pa.RecordBatch] = field(default_factory=list)

    def run(self, num_games: int) -> pa.RecordBatch:
        """Play until at least num_games games have ended; all of them (GAME_SCHEMA), by lane and number.

        Raises DataError where the store cannot be written.
        """
        own = self.self_play
        settings = self_play_settings(self.search, own, self.seed)
        lanes = [new_lane(number) for number in range(own.lanes)]
        cache = new_cache(own.evaluation_cache)
        done = 0
        while done < num_games:
            played = play(
                self.game_name,
                settings,
                lanes,
                own.moves_per_round,
                self.evaluator,
                cache=cache,
                fill=self.history_fill,
                num_threads=self.num_threads,
                on_progress=self._progress_from(done),
            )
            lanes = played.under_way
            self.evaluations += played.evaluations
            done += len(played.finished)
            self._keep(played.finished)
            if not played.is_complete:
                break
        return games.concatenated(self.finished)

    def _progress_from(self, done: int) -> Callable[[int, int], bool]:
        return lambda moves, ended: self.on_progress(done + ended)

    def _keep(self, finished: list[_core.SelfPlayGame]) -> None:
        if not finished:
            return
        batch = games.to_batch(finished)
        self.finished.append(batch)
        algorithm = self.search.algorithm
        self.store.append(games.store_rows(batch, self.game_name, algorithm, "self-play"))
