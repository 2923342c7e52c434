"""Small PGN sources with bad games among them, and their import into small shards."""

import json
from pathlib import Path
from typing import Any

from alphazero.data.formats.importer import ImportReport, import_games

LIMITS = (40, 250)  # small shards, cut within files: by plies here
ILLEGAL = '[Event "bad"]\n[White "w"]\n\n1. e4 e5\n2. Ke3 *\n\n'


def game(number: int) -> str:
    result = ("1-0", "0-1", "1/2-1/2")[number % 3]
    return (
        f'[Event "game {number}"]\n[White "p{number % 5}"]\n[Result "{result}"]\n\n'
        f"1. e4 {{ comment {number} }} e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 {result}\n\n"
    )


def run(
    sources: Path, store: Path, *, workers: int = 2, chunk_bytes: int = 4 << 20, **options: Any
) -> ImportReport:
    return import_games(
        [sources],
        store,
        workers=workers,
        chunk_bytes=chunk_bytes,
        shard_limits=LIMITS,
        **options,
    )


def quarantined(store: Path) -> list[dict[str, Any]]:
    """The games that were not imported: source, game, line, ply, kind, reason; not those left out."""
    entries = [json.loads(line) for line in (store / "quarantine.jsonl").read_text().splitlines()]
    return [entry for entry in entries if "source" in entry]


def content(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}
