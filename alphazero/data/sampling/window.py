"""The order of the training data as a function: windows of games, and the samples of each step.

A sample is a position with a known move and a known result; of a game that a search made, one that got a
full search. Its id is its place among all samples of a window: games in the order of the shards, plies in
the order of the game. Filters (filters.py) leave some out, or make equal positions one sample. The window
of self-play has the newest games, more of them the more were played.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.data.store.game_filters import FilterCount
from alphazero.data.store.store import GameStore, ShardView

# Shapes: B samples, N games that count, P plies that are listed one by one, K groups of equal positions.

MOST_AVERAGED = 64  # occurrences of a position whose targets are averaged, spread evenly over all of them


@dataclass(frozen=True)
class Places:
    """Where B samples lie: the position before move `ply` of row `game` of shard `shard`, i32 [B] each."""

    shard: npt.NDArray[np.int32]
    game: npt.NDArray[np.int32]
    ply: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class SampleGroups:
    """Equal positions that are one sample each: group g is member[offset[g]:offset[g + 1]], u32, ascending.

    Members are places among the plies of the window's games. Those behind all members are a sample each.
    """

    member: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.uint32]  # [K + 1]

    @property
    def num_fewer(self) -> int:
        """By how many samples the window became smaller."""
        return len(self.member) - (len(self.offset) - 1)

    def firsts(self, sample_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The first place of each sample."""
        places = sample_ids + self.num_fewer
        is_group = sample_ids < len(self.offset) - 1
        places[is_group] = self.member[self.offset[sample_ids[is_group]]]
        return places

    def averaged(
        self, sample_ids: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The places whose targets are averaged, and where each sample's begin among them, i64 [B + 1].

        At most MOST_AVERAGED of each, spread evenly; the first is among them.
        """
        is_group = sample_ids < len(self.offset) - 1
        begin = np.zeros(len(sample_ids), np.int64)
        size = np.ones(len(sample_ids), np.int64)
        begin[is_group] = self.offset[sample_ids[is_group]]
        size[is_group] = self.offset[sample_ids[is_group] + 1] - begin[is_group]
        taken = np.minimum(size, MOST_AVERAGED)
        offset = np.concatenate([[0], np.cumsum(taken)])
        turn = np.arange(offset[-1]) - np.repeat(offset[:-1], taken)
        at = np.repeat(begin, taken) + turn * np.repeat(size, taken) // np.repeat(taken, taken)
        places = np.repeat(sample_ids + self.num_fewer, taken)
        of_group = np.repeat(is_group, taken)
        places[of_group] = self.member[at[of_group]]
        return places, offset


@dataclass(frozen=True)
class GamePlies:
    """N games of some shards, and which of their plies are samples: `lengths` of each, i64 [N].

    shard (0 ... num_shards - 1), game, listed, listed_ply: as a window has them; listed for all games.
    """

    num_shards: int
    shard: npt.NDArray[np.int32]
    game: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    listed: npt.NDArray[np.int64]
    listed_ply: npt.NDArray[np.int32]


def arrays_of(parts: Sequence[GamePlies]) -> dict[str, Any]:
    """The arrays of a window of these games, part after part."""
    num_shards = num_listed = 0
    kinds: Sequence[Any] = (np.int32, np.int32, np.int64, np.int64, np.int32)
    shard, game, lengths, begin, listed_ply = ([np.zeros(0, kind)] for kind in kinds)
    for part in parts:
        shard.append(part.shard + np.int32(num_shards))
        game.append(part.game)
        lengths.append(part.lengths)
        begin.append(np.where(part.listed >= 0, part.listed + num_listed, part.listed))
        listed_ply.append(part.listed_ply)
        num_shards += part.num_shards
        num_listed += len(part.listed_ply)
    listed = np.concatenate(begin)
    return {
        "shard": np.concatenate(shard),
        "game": np.concatenate(game),
        "ply_offset": np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
        "listed": listed if num_listed or np.any(listed != -1) else listed[:0],
        "listed_ply": np.concatenate(listed_ply),
    }


def counting_plies(view: ShardView) -> GamePlies:
    """Of games with a result: all plies where no search made the game, else those that got a full search."""
    lengths = np.where(view.result_valid, np.diff(view.moves_offset), 0).astype(np.int64)
    begin = np.full(view.num_games, -1, np.int64)
    searched_ply = np.zeros(0, np.int32)
    if view.search is not None:
        offset = view.search.ply_offset
        is_counted = view.search.is_trained_on
        counted_before = np.concatenate([[0], np.cumsum(is_counted)])
        by_search = np.diff(offset) > 0
        begin[by_search] = counted_before[offset[:-1]][by_search]
        counted = np.where(view.result_valid, np.diff(counted_before[offset]), 0)
        lengths[by_search] = counted[by_search]
        ply = np.arange(len(is_counted)) - np.repeat(offset[:-1], np.diff(offset))
        searched_ply = ply[is_counted].astype(np.int32)
    game = np.flatnonzero(lengths).astype(np.int32)
    return GamePlies(1, np.zeros(len(game), np.int32), game, lengths[game], begin[game], searched_ply)


@dataclass(frozen=True, eq=False)
class Window:
    """An ordered, immutable set of games to draw samples from.

    Games count that have a result and a ply to train on: row game[i] of shards[shard[i]] owns the places
    ply_offset[i] ... ply_offset[i + 1] - 1, which are samples where `groups` makes none of them one. They are
    the plies listed_ply[listed[i]:] where listed[i] >= 0, as those that got a full search; else the game's
    plies in order, from ply -1 - listed[i] on. A window of whole games without a search has neither array.
    filtered: what filters removed, one by one. Windows with equal `id` hold equal samples in equal order.
    """

    game_name: str
    shards: tuple[ShardView, ...]
    content_ids: tuple[str, ...]  # sha256 of each shard; ids of the parts of a joined window
    first_game: int  # of the counted games of the shards, where this window begins
    shard: npt.NDArray[np.int32]  # [N]
    game: npt.NDArray[np.int32]  # [N]
    ply_offset: npt.NDArray[np.int64]  # [N + 1]
    listed: npt.NDArray[np.int64]  # [N], or empty
    listed_ply: npt.NDArray[np.int32]  # [P]
    filtered: tuple[FilterCount, ...] = ()
    groups: SampleGroups | None = None

    @classmethod
    def of_shards(cls, game_name: str, shards: Sequence[ShardView], content_ids: Sequence[str]) -> Window:
        """All games that count. content_ids names the content of each shard (its sha256)."""
        if len(shards) != len(content_ids):
            raise ValueError(f"{len(shards)} shards, {len(content_ids)} content ids")
        return cls(
            game_name=game_name,
            shards=tuple(shards),
            content_ids=tuple(content_ids),
            first_game=0,
            **arrays_of([counting_plies(view) for view in shards]),
        )

    @classmethod
    def of_stores(cls, stores: Sequence[GameStore]) -> Window:
        """All games that count of these stores, in this order; raises DataError if their games differ."""
        if not stores:
            raise DataError("no game stores given")
        first = stores[0]
        for store in stores:
            if store.manifest.game_now != first.manifest.game_now:
                own, other = store.manifest.game_now, first.manifest.game_now
                raise DataError(f"{store.path}: holds {own}, but {first.path} holds {other}")
        shards = [shard for store in stores for shard in store.shards]
        content_ids = [entry.sha256 for store in stores for entry in store.manifest.shards]
        return cls.of_shards(first.manifest.game_now, shards, content_ids)

    @classmethod
    def joined(cls, first: Window, second: Window) -> Window:
        """The samples of `first`, then those of `second`, in which no positions are merged.

        Raises DataError if their games differ.
        """
        if first.game_name != second.game_name:
            raise DataError(f"games of {first.game_name} and of {second.game_name} in one window")
        assert second.groups is None
        return cls(
            game_name=first.game_name,
            shards=first.shards + second.shards,
            content_ids=(first.id, second.id),
            first_game=0,
            groups=first.groups,
            **arrays_of([first._plies(), second._plies()]),
        )

    def _plies(self) -> GamePlies:
        listed = self.listed if len(self.listed) else np.full(self.num_games, -1, np.int64)
        lengths = np.diff(self.ply_offset)
        return GamePlies(len(self.shards), self.shard, self.game, lengths, listed, self.listed_ply)

    @property
    def num_games(self) -> int:
        """Games that count."""
        return len(self.game)

    @property
    def num_samples(self) -> int:
        """Positions that count, equal ones once where they are merged."""
        return int(self.ply_offset[-1]) - (self.groups.num_fewer if self.groups is not None else 0)

    @property
    def id(self) -> str:
        """Hex digest of what the window holds, in which order; the same on every host."""
        content: dict[str, object] = {
            "game": self.game_name,
            "shards": self.content_ids,
            "first_game": self.first_game,
            "num_games": self.num_games,
            "num_samples": self.num_samples,
        }
        if self.filtered:
            content["filters"] = [count.identity for count in self.filtered]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def locate(self, sample_ids: npt.NDArray[np.int64]) -> Places:
        """Where samples lie, merged ones where they occur first.

        Raises IndexError for ids outside [0, num_samples).
        """
        self._check_ids(sample_ids)
        return self._places(sample_ids if self.groups is None else self.groups.firsts(sample_ids))

    def averaged(self, sample_ids: npt.NDArray[np.int64]) -> tuple[Places, npt.NDArray[np.int64]]:
        """Where the positions lie whose targets are averaged, and where each sample's begin, i64 [B + 1].

        Raises IndexError for ids outside [0, num_samples).
        """
        self._check_ids(sample_ids)
        if self.groups is None:
            return self._places(sample_ids), np.arange(len(sample_ids) + 1)
        places, offset = self.groups.averaged(sample_ids)
        return self._places(places), offset

    def _check_ids(self, sample_ids: npt.NDArray[np.int64]) -> None:
        if len(sample_ids) and not (sample_ids.min() >= 0 and sample_ids.max() < self.num_samples):
            raise IndexError(f"sample id outside [0, {self.num_samples})")

    def _places(self, ids: npt.NDArray[np.int64]) -> Places:
        """Where places among the plies of all games lie."""
        row = np.searchsorted(self.ply_offset, ids, side="right") - 1
        ply = (ids - self.ply_offset[row]).astype(np.int32)
        if len(self.listed):
            begin = self.listed[row]
            is_listed = begin >= 0
            ply[~is_listed] -= (begin[~is_listed] + 1).astype(np.int32)
            ply[is_listed] = self.listed_ply[begin[is_listed] + ply[is_listed]]
        return Places(shard=self.shard[row], game=self.game[row], ply=ply)

    def plies_at(self, first: int, last: int) -> npt.NDArray[np.int32]:
        """The plies of the places first ... last - 1 among those of all games, merged or not."""
        return self._places(np.arange(first, last)).ply

    def of_games(self, rows: npt.NDArray[np.intp] | slice) -> Window:
        """The window of these of its games, ascending."""
        assert self.groups is None
        lengths = np.diff(self.ply_offset)[rows]
        return dataclasses.replace(
            self,
            shard=self.shard[rows],
            game=self.game[rows],
            ply_offset=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            listed=self.listed[rows] if len(self.listed) else self.listed,
        )

    def rows_of_shard(self, index: int) -> slice:
        """The games of a shard."""
        first, last = np.searchsorted(self.shard, (index, index + 1))
        return slice(int(first), int(last))

    def split(self, validation_share: float) -> tuple[Window, Window]:
        """Training and validation windows: the last share of the games, by number, is held out.

        At least one game is on either side if the share is positive; raises ConfigError if that cannot
        be. No sample is in both, and the sample ids of each begin at 0.
        """
        num_validation = round(validation_share * self.num_games)
        if validation_share > 0:
            if self.num_games < 2:
                raise ConfigError(
                    f"validation_share {validation_share}: {self.num_games} games with a result; "
                    "expected at least 2 to split"
                )
            num_validation = min(max(num_validation, 1), self.num_games - 1)
        boundary = self.num_games - num_validation
        return self.games_from(0, boundary), self.games_from(boundary)

    def games_from(self, begin: int, end: int | None = None) -> Window:
        """The window of its games begin ... end - 1, or of all from `begin` on."""
        part = self.of_games(slice(begin, end))
        return dataclasses.replace(part, first_game=self.first_game + begin)


def sample_ids(seed: int, step: int, batch_size: int, num_samples: int) -> npt.NDArray[np.int64]:
    """The samples of global batch `step`, i64 [batch_size], each in [0, num_samples).

    Places step * batch_size ... of an endless order in which every epoch of num_samples places holds each
    sample once, in a new permutation; batches run across the ends of epochs. Depends on the arguments alone.
    """
    return _core.sample_ids(seed, step * batch_size, batch_size, num_samples)


@dataclass(frozen=True)
class Mixture:
    """A window in two parts, historical games before those of self-play: a fixed share of each batch is
    drawn from the first part.

    num_first: samples of the first part. first_share: of a batch, 0 to 1.
    """

    num_first: int
    first_share: float

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if not 0 <= self.first_share <= 1:
            raise ConfigError(f"historical share {self.first_share}: expected 0 to 1")

    def num_from_first(self, batch_size: int) -> int:
        """Samples of each batch that come from the first part."""
        return round(self.first_share * batch_size)

    def check(self, batch_size: int, num_samples: int) -> None:
        """Raises DataError where a batch takes samples from a part that has none."""
        from_first = self.num_from_first(batch_size)
        for what, wanted, held in (
            ("historical", from_first, self.num_first),
            ("self-play", batch_size - from_first, num_samples - self.num_first),
        ):
            if wanted and held < 1:
                raise DataError(
                    f"{wanted} of {batch_size} positions per batch are {what}, but there are none"
                )

    def sample_ids(self, seed: int, step: int, batch_size: int, num_samples: int) -> npt.NDArray[np.int64]:
        """The samples of global batch `step`, i64 [batch_size]: num_from_first() of them below num_first.

        Each part goes through a separate endless order, as `sample_ids` does, whatever the other holds;
        a permutation keyed by seed and step spreads both over the batch. Depends on the arguments alone.
        """
        from_first = self.num_from_first(batch_size)
        rest = batch_size - from_first
        none = np.zeros(0, np.int64)
        first = sample_ids(seed, step, from_first, self.num_first) if from_first else none
        other_seed = (seed + 1) % (1 << 64)
        second = sample_ids(other_seed, step, rest, num_samples - self.num_first) if rest else none
        places = sample_ids(seed, step, batch_size, batch_size)  # epoch `step` of batch_size places
        mixed: npt.NDArray[np.int64] = np.concatenate([first, second + self.num_first])[places]
        return mixed


def window_size(positions: int, minimum: int, alpha: float, beta: float) -> int:
    """Positions of the window when `positions` have been made.

    KataGo's power law (Wu 2019, arXiv:1902.10565, appendix C): c (1 + beta ((n / c)^alpha - 1) / alpha) with
    c the smallest window: slope beta where it begins, growing ever more slowly. Wu: alpha 0.75, beta 0.4.
    """
    if positions <= minimum:
        return minimum
    growth: float = (positions / minimum) ** alpha - 1
    return round(minimum * (1 + beta * growth / alpha))


def newest_games(store: GameStore, size: int) -> Window:
    """The newest whole games, in the store's order, that together hold at least `size` positions, or all.

    It looks into the newest shards alone, as many as that takes.
    """
    num_shards = num_positions = 0
    while num_positions < size and num_shards < len(store.shards):
        num_shards += 1
        num_positions += int(counting_plies(store.shards[-num_shards]).lengths.sum())
    first_shard = len(store.shards) - num_shards
    window = Window.of_shards(
        store.manifest.game_now,
        store.shards[first_shard:],
        [entry.sha256 for entry in store.manifest.shards[first_shard:]],
    )
    surplus = max(0, window.num_samples - size)
    # The game that holds position `surplus` is the last one that must stay.
    return window.games_from(int(np.searchsorted(window.ply_offset, surplus, side="right")) - 1)
