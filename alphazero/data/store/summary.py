"""What a game store holds, counted over its columns: the body of `alphazero data info --json`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow.compute as pc

from alphazero.data.store.schema import VERSION_2_FIELDS
from alphazero.data.store.store import GameStore, ShardView
from alphazero.games.notation import RESULTS


def summarize(store: GameStore) -> dict[str, Any]:
    """Counts over all games of a store, plain values. Raises DataError.

    results: games by '1-0', '1/2-1/2', '0-1', '*' (unknown). contradictions: games whose result differs
    from the mate or stalemate they end in. evaluations, clocks: plies of which comments gave one.
    searched_games: made by a search; full_searches: their plies that count as samples; targets: games by what
    their policies are. elo_range: lowest and highest of either player, if any is given. filtered: games that
    filters left out at the import, by filter. rescored: games that tablebases (rescored_by) changed there.
    columns: those of version 2.
    """
    results: Counter[str] = Counter(dict.fromkeys(RESULTS.values(), 0))
    variants: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    from_fen = searched_games = full_searches = evaluations = clocks = 0
    elos: list[int] = []
    columns: set[str] = set()
    for shard in store.shards:
        table = shard.table
        columns |= set(table.column_names)
        known = shard.result[shard.result_valid]
        for value in (1, 0, -1):
            results[RESULTS[value]] += int(np.count_nonzero(known == value))
        results[RESULTS[None]] += shard.num_games - len(known)
        from_fen += int(np.count_nonzero(np.diff(shard.fen_offset)))
        _count_words(variants, shard, "variant")
        _count_words(targets, shard, "target_kind")
        # A ply has an evaluation in centipawns or as a mate, never both.
        evaluations += _known_entries(shard, "eval_cp") + _known_entries(shard, "eval_mate")
        clocks += _known_entries(shard, "clock_ms")
        if shard.search is not None:
            searched_games += int(np.count_nonzero(np.diff(shard.search.ply_offset)))
            full_searches += int(np.count_nonzero(shard.search.is_trained_on))
        for column in (table.column("white_elo"), table.column("black_elo")):
            elos += [elo for elo in (pc.min(column).as_py(), pc.max(column).as_py()) if elo is not None]
    manifest = store.manifest
    return {
        "game": manifest.game,
        "games": manifest.games,
        "plies": manifest.plies,
        "num_shards": len(manifest.shards),
        "size_bytes": sum(shard.size_bytes for shard in manifest.shards),
        "mean_plies": manifest.plies / max(manifest.games, 1),
        "searched_games": searched_games,
        "full_searches": full_searches,
        "targets": dict(sorted(targets.items())),
        "results": dict(results),
        "contradictions": sum(source.contradictions for source in manifest.sources),
        "evaluations": evaluations,
        "clocks": clocks,
        "variants": dict(sorted(variants.items())),
        "from_fen": from_fen,
        "elo_range": (min(elos), max(elos)) if elos else None,
        "quarantined": manifest.quarantined,
        "filtered": manifest.filtered,
        "rescored_by": manifest.rescored_by,
        "rescored": manifest.rescored,
        "sources": [asdict(source) for source in manifest.sources],
        "manifest_sha256": manifest.sha256,
        "version": manifest.version,
        "columns": [field.name for field in VERSION_2_FIELDS if field.name in columns],
    }


def _known_entries(shard: ShardView, name: str) -> int:
    """Entries of a column of lists that are not null."""
    if name not in shard.table.schema.names:
        return 0
    entries: Any = pc.list_flatten(shard.table.column(name))
    return len(entries) - int(entries.null_count)


def _count_words(counts: Counter[str], shard: ShardView, name: str) -> None:
    """Count the games by the words of a column, where they have one."""
    pairs: Any = pc.value_counts(shard.table.column(name))  # the stubs know no pairs
    for entry in pairs.to_pylist():
        if entry["values"] is not None:
            counts[entry["values"]] += entry["counts"]
