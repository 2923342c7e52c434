"""The order of the training data as a function: windows of games, and the samples of each step.

A sample is a position with a known move and a known result. Its id is its place among all samples of
a window: games in the order of the shards, plies in the order of the game.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alphazero import _core
from alphazero.data.store import GameStore, ShardView
from alphazero.errors import ConfigError, DataError

# Shapes: B samples, N games that count.


@dataclass(frozen=True)
class Places:
    """Where B samples lie: the position before move `ply` of row `game` of shard `shard`, i32 [B] each."""

    shard: npt.NDArray[np.int32]
    game: npt.NDArray[np.int32]
    ply: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Window:
    """An ordered, immutable set of games to draw samples from.

    Games count that have a result and at least one move: row game[i] of shards[shard[i]] owns the
    samples ply_offset[i] ... ply_offset[i + 1] - 1. Windows with equal `id` hold equal samples in equal
    order.
    """

    game_name: str
    shards: tuple[ShardView, ...]
    content_ids: tuple[str, ...]  # sha256 of each shard
    first_game: int  # of the counted games of the shards, where this window begins
    shard: npt.NDArray[np.int32]  # [N]
    game: npt.NDArray[np.int32]  # [N]
    ply_offset: npt.NDArray[np.int64]  # [N + 1]

    @classmethod
    def of_shards(cls, game_name: str, shards: Sequence[ShardView], content_ids: Sequence[str]) -> Window:
        """All games that count. content_ids names the content of each shard (its sha256)."""
        if len(shards) != len(content_ids):
            raise ValueError(f"{len(shards)} shards, {len(content_ids)} content ids")
        shard_parts, game_parts, length_parts = [], [], []
        for index, view in enumerate(shards):
            lengths = np.diff(view.moves_offset)
            counted = np.flatnonzero(view.result_valid & (lengths > 0)).astype(np.int32)
            shard_parts.append(np.full(len(counted), index, np.int32))
            game_parts.append(counted)
            length_parts.append(lengths[counted].astype(np.int64))
        empty = np.zeros(0, np.int32)
        return cls(
            game_name=game_name,
            shards=tuple(shards),
            content_ids=tuple(content_ids),
            first_game=0,
            shard=np.concatenate([empty, *shard_parts]),
            game=np.concatenate([empty, *game_parts]),
            ply_offset=np.concatenate(
                [[0], np.cumsum(np.concatenate([empty, *length_parts]), dtype=np.int64)]
            ),
        )

    @classmethod
    def of_stores(cls, stores: Sequence[GameStore]) -> Window:
        """All games that count of these stores, in this order; raises DataError if their games differ."""
        if not stores:
            raise DataError("no game stores given")
        first = stores[0]
        for store in stores:
            if store.manifest.game != first.manifest.game:
                raise DataError(
                    f"{store.path}: holds {store.manifest.game}, but {first.path} holds {first.manifest.game}"
                )
        shards = [shard for store in stores for shard in store.shards]
        content_ids = [entry.sha256 for store in stores for entry in store.manifest.shards]
        return cls.of_shards(first.manifest.game, shards, content_ids)

    @property
    def num_games(self) -> int:
        """Games that count."""
        return len(self.game)

    @property
    def num_samples(self) -> int:
        """Positions that count."""
        return int(self.ply_offset[-1])

    @property
    def id(self) -> str:
        """Hex digest of what the window holds, in which order; the same on every host."""
        content = {
            "game": self.game_name,
            "shards": self.content_ids,
            "first_game": self.first_game,
            "num_games": self.num_games,
            "num_samples": self.num_samples,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def locate(self, sample_ids: npt.NDArray[np.int64]) -> Places:
        """Where samples lie; raises IndexError for ids outside [0, num_samples)."""
        if len(sample_ids) and not (sample_ids.min() >= 0 and sample_ids.max() < self.num_samples):
            raise IndexError(f"sample id outside [0, {self.num_samples})")
        row = np.searchsorted(self.ply_offset, sample_ids, side="right") - 1
        ply = (sample_ids - self.ply_offset[row]).astype(np.int32)
        return Places(shard=self.shard[row], game=self.game[row], ply=ply)

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
                    "wanted at least 2 to split"
                )
            num_validation = min(max(num_validation, 1), self.num_games - 1)
        boundary = self.num_games - num_validation
        return self._slice(0, boundary), self._slice(boundary, self.num_games)

    def _slice(self, begin: int, end: int) -> Window:
        return Window(
            game_name=self.game_name,
            shards=self.shards,
            content_ids=self.content_ids,
            first_game=self.first_game + begin,
            shard=self.shard[begin:end],
            game=self.game[begin:end],
            ply_offset=self.ply_offset[begin : end + 1] - self.ply_offset[begin],
        )


def sample_ids(seed: int, step: int, batch_size: int, num_samples: int) -> npt.NDArray[np.int64]:
    """The samples of global batch `step`, i64 [batch_size], each in [0, num_samples).

    Places step * batch_size ... of an endless order in which every epoch of num_samples places holds each
    sample once, permuted anew; batches run across the ends of epochs. Depends on the arguments alone.
    """
    return _core.sample_ids(seed, step * batch_size, batch_size, num_samples)
