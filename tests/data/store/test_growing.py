"""A store that grows is at any moment what it was before or after an append, whatever fails."""

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from alphazero.base.errors import DataError
from alphazero.cli.main import main
from alphazero.data.store.growing import REFUSED, SET_ASIDE, GrowingStore
from alphazero.data.store.store import MANIFEST_NAME, GameStore
from alphazero.data.store.writer import encode_shard
from tests.data.store.test_store import ROWS, write
from tests.support.data.appending import digest_of, generation
from tests.support.data.stores import batch, row, searched
from tests.support.paths import REPOSITORY

APPENDING = "tests.support.data.appending"


def grow(path: Path, count: int) -> GrowingStore:
    """A store of generations 0 ... count - 1."""
    store = GrowingStore(path, "tictactoe")
    for number in range(len(store.shards), count):
        store.append(generation(number))
    return store


def digests(path: Path) -> list[str]:
    """Of the shards that a reader sees; their files are read and replayed."""
    store = GameStore.open(path)
    store.verify()
    return [entry.sha256 for entry in store.manifest.shards]


def set_aside(path: Path) -> dict[str, str]:
    """Names and digests of the shards set aside."""
    files = sorted((path / SET_ASIDE).glob("*"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_what_was_appended_is_read_as_any_other_store(tmp_path: Path):
    path = tmp_path / "runs" / "games"
    store = GrowingStore(path, "tictactoe")
    assert store.manifest is None and store.shards == () and not path.exists()
    entries = [store.append(generation(number)) for number in range(3)]
    read = GameStore.open(path)
    read.verify()
    assert read.manifest.shards == tuple(entries) == store.shards
    assert read.manifest.sha256 == store.manifest.sha256 == GrowingStore(path, "tictactoe").manifest.sha256
    assert [shard.table.num_rows for shard in read.shards] == [generation(n).num_rows for n in range(3)]
    assert read.shards[1].table.to_pylist() == generation(1).to_pylist()
    assert sorted(file.name for file in path.iterdir()) == [
        "manifest.json",
        "quarantine.jsonl",
        *(f"shard-0000{number}.arrow" for number in range(3)),
    ]


def test_equal_generations_make_equal_bytes(tmp_path: Path):
    for name in ("a", "b"):
        grow(tmp_path / name, 4)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_a_shard_that_is_there_is_not_added_again(tmp_path: Path):
    store = grow(tmp_path / "s", 3)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "s").iterdir()}
    assert store.append(generation(1)) == store.shards[1]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "s").iterdir()} == before


def test_a_shard_travels_as_bytes(tmp_path: Path):
    one = grow(tmp_path / "one", 3)
    other = GrowingStore(tmp_path / "other", "tictactoe")
    for entry in one.shards:
        assert other.append_shard((tmp_path / "one" / entry.name).read_bytes()) == entry
    assert one.manifest == other.manifest


def test_going_back_sets_newer_shards_aside_until_they_are_made_again(tmp_path: Path):
    path = tmp_path / "s"
    grow(path, 4).truncate_to(1)
    assert digests(path) == [digest_of(0)]
    assert sorted(set_aside(path).values()) == sorted(digest_of(number) for number in (1, 2, 3))
    store = GrowingStore(path, "tictactoe")
    store.append(generation(1))
    store.append(generation(7))  # this run goes another way
    assert digests(path) == [digest_of(0), digest_of(1), digest_of(7)]
    assert sorted(set_aside(path).values()) == sorted(digest_of(number) for number in (2, 3))
    store.truncate_to(0)
    assert digests(path) == [] and store.shards == ()
    assert set(set_aside(path).values()) == {digest_of(number) for number in (0, 1, 2, 3, 7)}
    assert GameStore.open(path).num_games == 0


@pytest.mark.parametrize("number", [-1, 3, 9])
def test_one_cannot_go_back_to_shards_that_are_not_there(tmp_path: Path, number: int):
    store = grow(tmp_path / "s", 2)
    with pytest.raises(DataError, match=f"2 shards; .* {number}$"):
        store.truncate_to(number)
    assert len(digests(tmp_path / "s")) == 2


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path):
    path = tmp_path / "s"
    grow(path, 2)
    stray = bytes(encode_shard([generation(5)]))
    (path / "shard-00002.arrow").write_bytes(stray)
    (path / ".shard-00003.arrow.99.tmp").write_bytes(stray[:100])
    store = GrowingStore(path, "tictactoe")
    assert list(set_aside(path)) == [f"{digest_of(5)[:16]}-shard-00002.arrow"]
    assert not list(path.glob(".*"))
    store.append(generation(2))
    assert digests(path) == [digest_of(number) for number in range(3)]


def test_a_store_without_its_first_manifest_begins_anew(tmp_path: Path):
    path = tmp_path / "s"
    path.mkdir()
    (path / "quarantine.jsonl").write_bytes(b"")
    (path / "shard-00000.arrow").write_bytes(bytes(encode_shard([generation(0)])))
    store = GrowingStore(path, "tictactoe")
    assert store.shards == () and list(set_aside(path).values()) == [digest_of(0)]
    store.append(generation(0))
    assert digests(path) == [digest_of(0)] and set_aside(path) == {}


def test_shards_that_were_refused_may_be_there_before_the_first_one_that_enters(tmp_path: Path):
    refused = tmp_path / "games" / REFUSED / "reasons.jsonl"
    refused.parent.mkdir(parents=True)
    refused.write_text("{}\n")
    assert len(grow(tmp_path / "games", 2).shards) == 2 and refused.read_text() == "{}\n"


def damage_manifest(path: Path) -> None:
    grow(path, 1)
    (path / MANIFEST_NAME).write_text("{}")


def shorten_shard(path: Path) -> None:
    grow(path, 1)
    os.truncate(path / "shard-00000.arrow", 1000)


def put_something_else(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("all my work")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (
            lambda path: grow(path, 1) and GrowingStore(path, "tictactoe"),
            "holds games of tictactoe; expected chess",
        ),
        (lambda path: write(path, ROWS), "holds games read from files"),
        (put_something_else, "not a game store"),
        (lambda path: path.write_text("a file"), "not a game store"),
        (damage_manifest, "no manifest of a game store"),
        (shorten_shard, "1000 bytes; the manifest has"),
    ],
)
def test_what_is_no_growing_store_of_this_game_is_left_alone(
    tmp_path: Path, prepare: Callable[[Path], Any], words: str
):
    path = tmp_path / "s"
    prepare(path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(DataError, match=words):
        GrowingStore(path, "chess")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no readable shard"),
        (b"ARROW1 no", "no readable shard"),
        (bytes(encode_shard([generation(0)]))[:-40], "no readable shard"),
        (
            bytes(encode_shard([batch([row("connect4", [3], 1)])])),
            "games of connect4 to add; expected tictactoe",
        ),
    ],
)
def test_bytes_that_are_no_shard_of_this_game_are_refused(tmp_path: Path, content: bytes, words: str):
    store = grow(tmp_path / "s", 1)
    with pytest.raises(DataError, match=words):
        store.append_shard(content)
    assert digests(tmp_path / "s") == [digest_of(0)]
    assert len(list((tmp_path / "s").iterdir())) == 3


def broken(**changes: object) -> dict[str, Any]:
    good = searched(row("tictactoe", [4, 0], 1), [1, 0], [[(4, 9)], [(0, 9)]], [0.0] * 2, [0.0] * 2)
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flags": [1]}, "game 1: 0 entries of root_q|game 1: 1 entries of flags; expected 2"),
        ({"root_q": [0.0, 0.0, 0.0]}, "game 1: 3 entries of root_q; expected 2"),
        ({"visits": None}, "game 1: 0 entries of visits; expected 2"),
        ({"best_q": [0.0, None]}, "1 null entries in the lists of best_q"),
        ({"policy_offsets": [0, 1]}, "game 1: 2 entries of policy_offsets; expected 3"),
        ({"policy_prob": [1]}, "game 1: 1 entries of policy_prob; expected 2"),
        ({"flags": None}, "game 1: 2 entries of root_q; expected 0"),
    ],
)
def test_searches_that_do_not_fit_their_game_never_enter(tmp_path: Path, changes: dict[str, Any], words: str):
    store = grow(tmp_path / "s", 1)
    with pytest.raises(DataError, match=words):
        store.append(batch([broken(), broken(**changes)]))
    store.append(batch([broken()]))
    assert len(digests(tmp_path / "s")) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy_offsets": [0, 2, 1]}, "game 0: policy offsets do not fit"),
        ({"policy_offsets": [0, 1, 3]}, "game 0: policy offsets do not fit"),
        ({"policy_move": [4, 9]}, "row 0, ply 1: move 9 of the policy is not legal"),
        ({"policy_move": [4, 4]}, "row 0, ply 1: move 4 of the policy is not legal"),
        # As the encoder does (test_search_targets.py), by the same rules.
        (
            {"policy_move": [4, 0, 0], "policy_prob": [9, 8, 7], "policy_offsets": [0, 1, 3]},
            "row 0, ply 1: move 0 of the policy is there twice in ",
        ),
        (
            {"policy_move": [4, 0, 0], "policy_prob": [9, 0, 7], "policy_offsets": [0, 1, 3]},
            "row 0, ply 1: move 0 of the policy is there twice in ",
        ),
        ({"moves": [4, 4]}, "row 0, ply 1: move 4 is not legal"),
        ({"root_q": [0.0, 1.5]}, r"game 0, ply 1: root_q 1\.5; expected -1 to 1"),
        ({"best_q": [float("nan"), 0.0]}, "game 0, ply 0: best_q nan; expected -1 to 1"),
        ({"root_d": [0.0, -0.5]}, r"game 0, ply 1: root_d -0\.5; expected 0 to 1"),
    ],
)
def test_verify_finds_what_a_search_cannot_have_said(tmp_path: Path, changes: dict[str, Any], words: str):
    GrowingStore(tmp_path / "s", "tictactoe").append(batch([broken(**changes)]))
    with pytest.raises(DataError, match=rf"shard-00000\.arrow: .*{words}"):
        GameStore.open(tmp_path / "s").verify()


@pytest.mark.parametrize(
    ("game", "moves", "words"),
    [
        ("connect4", [0] * 7, "row 1, ply 6: move 0 is not legal"),
        ("connect4", [0, 1, 0, 1, 0, 1, 0, 1], "row 1, ply 7: move 1 is not legal"),  # four in a column
        ("tictactoe", [0, 4, 0], "row 1, ply 2: move 0 is not legal"),
        ("tictactoe", [0, 3, 1, 4, 2, 5], "row 1, ply 5: move 5 is not legal"),  # three in a row
        ("chess", [0xFFFF], "row 1, ply 0: move 65535 is not legal"),
    ],
)
def test_every_game_is_replayed_by_its_rules(tmp_path: Path, game: str, moves: list[int], words: str):
    store = GrowingStore(tmp_path / "s", game)
    store.append(batch([row(game, [], 1), row(game, [], 0)]))
    assert main(["data", "verify", str(tmp_path / "s")]) == 0
    store.append(batch([row(game, [], 1), row(game, moves, 0)]))
    with pytest.raises(DataError, match=words):
        GameStore.open(tmp_path / "s").verify()


def test_info_tells_of_the_searches(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fast = searched(row("tictactoe", [1], 0), [0], [[]], [0.0], [1.0])
    GrowingStore(tmp_path / "s", "tictactoe").append(batch([broken(), fast, row("tictactoe", [4], None)]))
    assert main(["data", "info", str(tmp_path / "s")]) == 0
    text = capsys.readouterr().out
    assert "tictactoe, 3 games, 4 plies" in text
    assert "by a search, 1 full" in text


def test_no_failing_file_operation_makes_half_a_store_or_loses_a_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every open, fsync, rename, mkdir and removal of appending and going back fails in turn."""
    states = [[0, 1, 2], [0, 1, 2, 3], [0, 1], [0, 1, 2], [0, 1, 2, 6]]
    allowed = [[digest_of(number) for number in state] for state in states]

    def work(path: Path) -> None:
        store = GrowingStore(path, "tictactoe")
        store.append(generation(3))
        store.truncate_to(2)
        store.append(generation(2))
        store.append(generation(6))

    failed = 0
    grow(tmp_path / "before", 3)
    for number in range(200):
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "before", path)
        fault = (errno.ENOSPC, errno.EROFS, errno.EIO)[number % 3]
        with monkeypatch.context() as patch:
            operations = FailingOperations(patch, number, fault)
            try:
                work(path)
            except DataError as error:
                assert os.strerror(fault) in str(error) and "\n" not in str(error)
        held = digests(path)
        assert held in allowed
        known = {*held, *set_aside(path).values()}
        known |= {hashlib.sha256(file.read_bytes()).hexdigest() for file in path.glob("shard-*")}
        assert known >= {digest_of(number) for number in range(3)}
        store = GrowingStore(path, "tictactoe")
        assert [entry.sha256 for entry in store.shards] == held
        assert sorted(p.name for p in path.glob("*.arrow")) == [entry.name for entry in store.shards]
        assert not list(path.glob(".*"))
        if not operations.failed:
            break
        failed += 1
    assert failed >= 30 and not operations.failed
    assert held == allowed[-1]


class FailingOperations:
    """Counts file operations and makes number `number` fail."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, fault: int) -> None:
        self.left = number
        self.fault = fault
        self.failed = False
        for owner, name in (
            (os, "fsync"),
            (os, "open"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "mkdir"),
            (Path, "open"),
            (Path, "unlink"),
        ):
            patch.setattr(owner, name, self.guarded(getattr(owner, name)))

    def guarded(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.left -= 1
            if self.left < 0 and not self.failed:
                self.failed = True
                raise OSError(self.fault, os.strerror(self.fault))
            return operation(*arguments, **keywords)

        return call


def test_a_write_that_failed_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Wherever the append failed, the same call again ends as if nothing had happened."""
    wanted = grow(tmp_path / "whole", 3).manifest
    for number in range(100):
        store = grow(tmp_path / str(number), 2)
        with monkeypatch.context() as patch:
            operations = FailingOperations(patch, number, errno.EIO)
            try:
                store.append(generation(2))
            except DataError:
                store.append(generation(2))
        assert store.manifest == wanted
        assert digests(tmp_path / str(number)) == [entry.sha256 for entry in wanted.shards]
        if not operations.failed:
            break
    assert number >= 8


def run_and_kill(path: Path, after_s: float) -> int:
    """Grow a store until the kill; how many shards it last said it held, 0 if it said nothing."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", APPENDING, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPOSITORY)
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    lines = [first, *process.communicate()[0].splitlines()]
    assert process.returncode == -signal.SIGKILL
    whole = [line.split() for line in lines if len(line.split()) == 2]
    return int(whole[-1][1])


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_a_writer_killed_at_any_moment_leaves_a_sound_store(tmp_path: Path, seed: int):
    """Generations 0, 1, 2 ... in order whatever happened; none that was on disk is lost."""
    rng = random.Random(seed)
    path = tmp_path / "s"
    kept: set[str] = set()
    for _ in range(2):
        said = run_and_kill(path, rng.uniform(0, 0.3))
        held = digests(path)
        assert held == [digest_of(number) for number in range(len(held))]
        assert abs(len(held) - said) <= 3, "an append or a step back may have been done and not yet told"
        files = [*path.glob("shard-*"), *(path / SET_ASIDE).glob("*")]
        found = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.name[0] != "."}
        assert found >= kept
        kept = found
    store = GrowingStore(path, "tictactoe")
    assert [entry.sha256 for entry in store.shards] == held
    assert sorted(p.name for p in path.glob("*.arrow")) == [entry.name for entry in store.shards]
    assert not list(path.glob(".*"))


def test_rows_of_self_play_come_back_as_they_were(tmp_path: Path):
    rows = batch([broken(), row("tictactoe", [4, 0, 8], None)])
    GrowingStore(tmp_path / "s", "tictactoe").append(rows)
    (shard,) = GameStore.open(tmp_path / "s").shards
    assert pa.Table.from_batches([rows]).to_pylist() == shard.table.to_pylist()
    assert shard.search is not None
    for name in ("flags", "root_q", "root_d", "best_q", "visits", "policy_move", "policy_prob"):
        view = getattr(shard.search, name).values
        assert view.tolist() == broken()[name]
        assert not view.flags.writeable and not view.flags.owndata
    assert shard.search.ply_offset.tolist() == [0, 2, 2]
    assert shard.search.policy_offsets.values.tolist() == [0, 1, 2]


def test_two_writers_of_one_store_are_found_out(tmp_path: Path):
    path = tmp_path / "s"
    mine, other = grow(path, 2), GrowingStore(path, "tictactoe")
    other.append(generation(2))
    for write_more in (lambda: mine.append(generation(3)), lambda: mine.truncate_to(1)):
        with pytest.raises(DataError, match="another process"):
            write_more()
    assert digests(path) == [digest_of(number) for number in range(3)] and set_aside(path) == {}
    other.append(generation(3))
    early, late = (GrowingStore(tmp_path / "new", "tictactoe") for _ in range(2))
    early.append(generation(0))
    with pytest.raises(DataError, match="another process"):
        late.append(generation(1))
