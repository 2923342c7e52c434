"""What a game store holds, counted over its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from alphazero.data.store.schema import VERSION_2_FIELDS
from alphazero.data.store.store import GameStore, ShardView, SourceEntry


@dataclass(frozen=True)
class StoreSummary:
    """Counts over all games of a store.

    results: games by '1-0', '1/2-1/2', '0-1', '*' (unknown). contradictions: games whose result differs
    from the mate or stalemate they end in. evaluations, clocks: plies of which comments
    gave one. searched_games: made by a search; full_searches: their plies that
    count as samples; targets: games by what their policies are. elo_range: lowest and highest of either
    player, if any is given. filtered: games that filters left out at the import, by filter. rescored: games
    that tablebases (rescored_by) changed there. columns: those of version 2.
    """

    game: str
    games: int
    plies: int
    num_shards: int
    size_bytes: int
    mean_plies: float
    searched_games: int
    full_searches: int
    targets: Mapping[str, int]
    results: Mapping[str, int]
    contradictions: int
    evaluations: int
    clocks: int
    variants: Mapping[str, int]
    from_fen: int
    elo_range: tuple[int, int] | None
    quarantined: Mapping[str, int]
    filtered: Mapping[str, int]
    rescored_by: str
    rescored: Mapping[str, int]
    sources: tuple[SourceEntry, ...]
    manifest_sha256: str
    version: int
    columns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def _known_entries(shard: ShardView, name: str) -> int:
    """Entries of a column of lists that are not null."""
    if name not in shard.table.schema.names:
        return 0
    entries: Any = pc.list_flatten(shard.table.column(name))
    return len(entries) - int(entries.null_count)


def _count_words(counts: Counter[str], shard: ShardView, name: str) -> None:
    """Count the games by the words of a column, where they have one."""
    found: Any = pc.value_counts(shard.table.column(name))  # the stubs know no pairs
    for entry in found.to_pylist():
        if entry["values"] is not None:
            counts[entry["values"]] += entry["counts"]


def summarize(store: GameStore) -> StoreSummary:
    """Read the columns of all shards and count. Raises DataError."""
    results: Counter[str] = Counter({"1-0": 0, "1/2-1/2": 0, "0-1": 0, "*": 0})
    variants: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    from_fen = searched_games = full_searches = evaluations = clocks = 0
    elos: list[int] = []
    for shard in store.shards:
        known = shard.result[shard.result_valid]
        for name, value in (("1-0", 1), ("1/2-1/2", 0), ("0-1", -1)):
            results[name] += int(np.count_nonzero(known == value))
        results["*"] += shard.num_games - len(known)
        from_fen += int(np.count_nonzero(np.diff(shard.fen_offset)))
        _count_words(variants, shard, "variant")
        # A ply has an evaluation in centipawns or as a mate, never both.
        evaluations += _known_entries(shard, "eval_cp") + _known_entries(shard, "eval_mate")
        clocks += _known_entries(shard, "clock_ms")
        if shard.search is not None:
            searched_games += int(np.count_nonzero(np.diff(shard.search.ply_offset)))
            full_searches += int(np.count_nonzero(shard.search.is_trained_on))
            _count_words(targets, shard, "target_kind")
        for name in ("white_elo", "black_elo"):
            column = shard.table.column(name)
            elos += [elo for elo in (pc.min(column).as_py(), pc.max(column).as_py()) if elo is not None]
    manifest = store.manifest
    return StoreSummary(
        game=manifest.game,
        games=manifest.games,
        plies=manifest.plies,
        num_shards=len(manifest.shards),
        size_bytes=sum(shard.size_bytes for shard in manifest.shards),
        mean_plies=manifest.plies / max(manifest.games, 1),
        searched_games=searched_games,
        full_searches=full_searches,
        targets=dict(sorted(targets.items())),
        results=dict(results),
        contradictions=sum(source.contradictions for source in manifest.sources),
        evaluations=evaluations,
        clocks=clocks,
        variants=dict(sorted(variants.items())),
        from_fen=from_fen,
        elo_range=(min(elos), max(elos)) if elos else None,
        quarantined=manifest.quarantined,
        filtered=manifest.filtered,
        rescored_by=manifest.rescored_by,
        rescored=manifest.rescored,
        sources=manifest.sources,
        manifest_sha256=manifest.sha256,
        version=manifest.version,
        columns=tuple(
            field.name
            for field in VERSION_2_FIELDS
            if any(field.name in shard.table.schema.names for shard in store.shards)
        ),
    )
