"""`python -m tests.support.actors.ledger RUN ARCHIVE [PLACE]`: do games published and those used add up?

By the files alone; nothing of the program is used.
ARCHIVE: copies of all shards that were ever in the run's place (Archive makes them). PLACE: what is there
now, by default in the run's directory `place`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pyarrow as pa

Key = tuple[str, int]


class Archive:
    """Copies every shard of a place as it appears; a context manager."""

    def __init__(self, place: Path, archive: Path) -> None:
        self._place, self._archive = place, archive
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Archive:
        self._archive.mkdir(exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        """Copy what is new."""
        for path in self._place.glob("games/*/[0-9]*.arrow"):
            copy = self._archive / f"{path.parent.name}-{path.name}"
            if not copy.exists():
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(path, copy.with_suffix(".tmp"))
                    copy.with_suffix(".tmp").rename(copy)

    def _run(self) -> None:
        while not self._ends.wait(0.02):
            self.look()


def moves_in(content: bytes) -> list[list[int]]:
    """The moves of the games of an Arrow file."""
    batch = pa.ipc.open_file(pa.py_buffer(content)).get_batch(0)
    return batch.column("moves").to_pylist()


def read_archive(archive: Path) -> dict[Key, bytes]:
    """The shards by actor and number; the name holds the digest."""
    found = {}
    for path in sorted(archive.glob("*.arrow")):
        actor, number, digest = path.stem.split("-")
        content = path.read_bytes()
        assert hashlib.sha256(content).hexdigest()[:16] == digest, path
        assert (actor, int(number)) not in found, f"{path}: published twice"
        found[actor, int(number)] = content
    return found


def add_up(run: Path, archive: Path, place: Path | None = None) -> dict[str, int]:
    """What was published, used, refused and left; raises AssertionError where it does not add up."""
    published = read_archive(archive)
    lines = [json.loads(line) for line in (run / "games-order.jsonl").read_text().splitlines()]
    assert [line["generation"] for line in lines] == list(range(1, len(lines) + 1))
    store = run / "games"
    manifest = json.loads((store / "manifest.json").read_text())
    stored = {}
    for shard in manifest["shards"]:
        content = (store / shard["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shard["sha256"]
        batch = pa.ipc.open_file(pa.py_buffer(content)).get_batch(0)
        (event,) = set(batch.column("event").to_pylist())
        stored[int(event.removeprefix("generation "))] = batch.column("moves").to_pylist()
    used: dict[Key, int] = {}
    refused: set[Key] = set()
    next_number: dict[str, int] = defaultdict(int)
    for line in lines:
        moves: list[list[int]] = []
        for shard in line["shards"]:
            key = (shard["actor"], shard["number"])
            assert key not in used and key not in refused, f"{key} entered twice"
            assert key[1] == next_number[key[0]], f"{key}: out of order"
            next_number[key[0]] += 1
            assert hashlib.sha256(published[key]).hexdigest() == shard["sha256"], key
            if shard["refused"]:
                refused.add(key)
                continue
            of_shard = moves_in(published[key])
            assert len(of_shard) == shard["games"]
            used[key] = len(of_shard)
            moves += of_shard
        assert stored.get(line["generation"], []) == moves, f"generation {line['generation']}: other games"
    newest = max((run / "checkpoints").glob("step-????????"))
    taken = json.loads((newest / "state.json").read_text())["self_play"]["taken"]
    assert {actor: account["shards"] for actor, account in taken.items()} == dict(next_number)
    there = (place or run / "place").glob("games/*/[0-9]*.arrow")
    left = {(path.parent.name, int(path.name[:8])) for path in there}
    waiting = published.keys() - used.keys() - refused
    assert waiting <= left, f"{sorted(waiting - left)}: lost"
    return {
        "published": len(published),
        "used": len(used),
        "refused": len(refused),
        "waiting": len(waiting),
        "games": sum(used.values()),
    }


if __name__ == "__main__":
    print(json.dumps(add_up(*map(Path, sys.argv[1:]))))
