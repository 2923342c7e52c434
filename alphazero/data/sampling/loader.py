"""Micro-batches for training and batches for evaluation, encoded ahead of time by C++ threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.base.text import printable
from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Mixture, Window, sample_ids
from alphazero.games.batch import Batch, MicroBatch
from alphazero.games.outside.names import is_outside
from alphazero.games.outside.symmetry import use_symmetries
from alphazero.games.registry import GameSpec, get_game, history_fill

AHEAD = 2  # steps, or batches, that are encoded before they are asked for

T = TypeVar("T")


def prefetched(items: Iterator[T], depth: int = AHEAD) -> Iterator[T]:
    """The same items, up to `depth` of them prepared ahead by a thread.

    The thread starts with the first item requested and ends with the iterator: at its end, at an error
    (raised here), or when the iterator is closed or dropped.
    """
    end = object()
    thread = ThreadPoolExecutor(1, "alphazero-loader")
    try:
        ahead = deque(thread.submit(next, items, end) for _ in range(depth))
        while (item := ahead.popleft().result()) is not end:
            ahead.append(thread.submit(next, items, end))
            yield cast(T, item)
    finally:
        thread.shutdown(cancel_futures=True)


class WindowEncoder:
    """Encodes samples of one window; the number of threads does not change a byte."""

    def __init__(
        self,
        window: Window,
        spec: GameSpec,
        *,
        num_threads: int,
        fill: str = "fen_only",
        value_q_ratio: float = 0.0,
        curve: ValueCurve | None = None,
    ) -> None:
        """fill: 'no' or 'fen_only', what stands for positions before a game's first.
        value_q_ratio: share of the search's value in the value target, where there was a search, and where
        there was none of that of evaluations, by `curve`; without a curve they do not count.

        Raises DataError for shards whose columns do not fit together, ConfigError for settings.
        """
        if window.game_name != spec.name:
            raise ConfigError(f"the data is {window.game_name}, the network plays {spec.name}")
        if num_threads < 1:
            raise ConfigError(f"{num_threads} loader threads: expected at least 1")
        if not 0 <= value_q_ratio <= 1:
            raise ConfigError(f"value_q_ratio {value_q_ratio}: expected 0 to 1")
        self._window = window
        self._fill = history_fill(fill)
        self._value_q_ratio = value_q_ratio
        self._curve = None if curve is None else (curve.a, curve.b)
        core = get_game(spec.name).core
        self._line = core.line
        self._core = core.batch_encoder(num_threads)
        try:
            for view in window.shards:
                view.check_size()
                self._core.add_shard(
                    printable(view.path),
                    view.moves,
                    view.moves_offset,
                    view.result,
                    view.result_valid,
                    view.fen_bytes,
                    view.fen_offset,
                    None if view.search is None else view.search.core_arrays(),
                    view.evaluations,
                )
        except _core.GameError as error:
            raise DataError(str(error)) from error

    def encode(self, ids: npt.NDArray[np.int64], symmetry: npt.NDArray[np.uint8] | None = None) -> Batch:
        """The batch of these samples, in this order; of merged positions the means of their targets.

        Raises DataError for games that cannot be replayed, and for files that changed since the window was
        made.
        """
        places, group_offset = self._window.averaged(ids)
        if symmetry is not None and np.any(symmetry >= self._line.NUM_SYMMETRIES):
            raise IndexError(f"symmetry out of range [0, {self._line.NUM_SYMMETRIES})")
        for index in np.unique(places.shard):
            self._window.shards[index].check_size()
        try:
            is_merged = len(places.ply) > len(ids)
            if is_merged and symmetry is not None:
                symmetry = np.repeat(symmetry, np.diff(group_offset))
            arrays = self._core.encode(
                places.shard,
                places.game,
                places.ply,
                self._fill,
                self._value_q_ratio,
                symmetry,
                self._curve,
            )
            if is_merged:
                arrays = _core.merge_groups(*arrays, group_offset)
        except _core.GameError as error:
            raise DataError(str(error)) from error
        except IndexError as error:  # the window's own places are those of the games as they were
            raise DataError(f"{error}: a shard was written to while in use") from error
        return Batch(*arrays, sample_id=ids)

    def position_keys(self) -> npt.NDArray[np.uint64]:
        """u64 [num_samples]: the key of each sample's position; equal positions have equal keys.

        Placement, side to move, castling rights and possible en passant count, history and counters do not.
        """
        window = self._window
        keys = np.empty(int(window.ply_offset[-1]), np.uint64)
        try:
            for index, view in enumerate(window.shards):
                view.check_size()
                rows = window.rows_of_shard(index)
                games = window.game[rows]
                shard_keys = self._core.position_keys(index, games)
                first, last = (int(window.ply_offset[row]) for row in (rows.start, rows.stop))
                if len(window.listed):  # the core gives every ply of the games
                    begin = np.concatenate([[0], np.cumsum(np.diff(view.moves_offset)[games])])
                    counts = np.diff(window.ply_offset[rows.start : rows.stop + 1])
                    shard_keys = shard_keys[np.repeat(begin[:-1], counts) + window.plies_at(first, last)]
                keys[first:last] = shard_keys
        except _core.GameError as error:
            raise DataError(str(error)) from error
        if window.groups is None:
            return keys
        chosen: npt.NDArray[np.uint64] = keys[window.groups.firsts(np.arange(window.num_samples))]
        return chosen


class Loader:
    """The micro-batches of one rank, step by step, prepared ahead by a background thread.

    Step s is K = batch_size / micro_batch_size micro-batches cut from sample_ids(seed, s, ...); `passes`
    lists which of them this rank makes (all K if None). A None in it is a pass that must weigh nothing:
    micro-batch 0 again, marked as padding.
    """

    def __init__(
        self,
        window: Window,
        spec: GameSpec,
        *,
        seed: int,
        batch_size: int,
        micro_batch_size: int,
        passes: Sequence[int | None] | None = None,
        num_threads: int = 1,
        value_q_ratio: float = 0.0,
        curve: ValueCurve | None = None,
        mixture: Mixture | None = None,
        symmetries: bool = False,
    ) -> None:
        """mixture: how the parts of a joined window share the batches; without it all samples count alike.
        symmetries: show each sample in one of the game's, by chance. value_q_ratio, curve: as WindowEncoder
        has them.

        Raises ConfigError for sizes that do not fit together, DataError for a window without samples.
        """
        if micro_batch_size < 1 or batch_size % micro_batch_size != 0:
            raise ConfigError(
                f"micro-batch size {micro_batch_size}: expected a divisor of the batch size {batch_size}"
            )
        if window.num_samples == 0:
            raise DataError("the data holds no positions: no game with a result and a move")
        if mixture is not None:
            mixture.check(batch_size, window.num_samples)
        self._window = window
        self._encoder = WindowEncoder(
            window,
            spec,
            num_threads=num_threads,
            value_q_ratio=value_q_ratio,
            curve=curve,
        )
        self._sample_ids = mixture.sample_ids if mixture else sample_ids
        self._seed = seed
        self._batch_size = batch_size
        self._micro_batch_size = micro_batch_size
        self._passes = tuple(range(batch_size // micro_batch_size)) if passes is None else tuple(passes)
        self._num_symmetries = 1
        if symmetries:  # those of rules outside the core are looked for now, which may take a second
            self._num_symmetries = use_symmetries(spec.name) if is_outside(spec.name) else spec.num_symmetries

    def step(self, step: int) -> list[MicroBatch]:
        """This rank's micro-batches of one step, encoded now."""
        ids = self._sample_ids(self._seed, step, self._batch_size, self._window.num_samples)
        return [self._micro_batch(step, ids, index) for index in self._passes]

    def iterate(self, first_step: int, last_step: int) -> Iterator[list[MicroBatch]]:
        """This rank's micro-batches of steps first_step ... last_step - 1, encoded ahead of time.

        Resuming is starting at another step. Errors of the background thread are raised here; closing
        the iterator ends the thread.
        """
        return prefetched(self.step(step) for step in range(first_step, last_step))

    def _micro_batch(self, step: int, ids: npt.NDArray[np.int64], index: int | None) -> MicroBatch:
        begin = (index or 0) * self._micro_batch_size
        ids = ids[begin : begin + self._micro_batch_size]
        symmetry = None
        if self._num_symmetries > 1:
            first = step * self._batch_size + begin
            symmetry = _core.symmetries(self._seed, first, len(ids), self._num_symmetries)
        batch = self._encoder.encode(ids, symmetry)
        return MicroBatch(step=step, index=index or 0, batch=batch, is_padding=index is None)


def batches_of(encoder: WindowEncoder, ids: npt.NDArray[np.int64], batch_size: int) -> Iterator[Batch]:
    """These samples in this order, batch_size at a time, the last batch shorter; encoded ahead of time."""
    starts = range(0, len(ids), batch_size)
    return prefetched(encoder.encode(ids[start : start + batch_size]) for start in starts)


def spread_sample_ids(window: Window, count: int) -> npt.NDArray[np.int64]:
    """i64 [min(count, num_samples)]: ids spread evenly over a window, ascending: a fixed validation set."""
    count = min(count, window.num_samples)
    return np.arange(count, dtype=np.int64) * window.num_samples // max(count, 1)
