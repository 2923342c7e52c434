"""Damaged data ends a job before its first step, or before its first checkpoint, on all ranks alike."""

import dataclasses
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alphazero.base.errors import DataError
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.data.store.verification import Verification
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import Config
from alphazero.training.start.agreement import DataCheck, compare_data
from tests.support.data.stores import write_random_store
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables


class Ranks:
    """An exchange between threads."""

    def __init__(self, size: int) -> None:
        self._values: list[Any] = [None] * size
        self._barrier = threading.Barrier(size)

    def of(self, rank: int) -> Any:
        ranks = self

        class One:
            def gather(self, value: object) -> list[Any]:
                ranks._values[rank] = value
                ranks._barrier.wait(60)
                values = list(ranks._values)
                ranks._barrier.wait(60)
                return values

            numbers = gather

            def on_each(self, action: Callable[[], object]) -> object:
                result, fault = None, ""
                try:
                    result = action()
                except DataError as error:
                    fault = str(error)
                if faults := [text for text in self.gather(fault) if text]:
                    raise DataError(faults[0], found_by_all_ranks=True)
                return result

        return One()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> GameStore:
    write_random_store(tmp_path / "s", 60)
    return GameStore.open(tmp_path / "s")


def flip_a_result(store: GameStore) -> None:
    """White's wins become losses: nothing but the checksum can tell."""
    shard = store.shards[0]
    buffer = shard.table.column("result").chunk(0).buffers()[1]
    content = bytearray(shard.path.read_bytes())
    at = content.index(buffer.to_pybytes()[: shard.num_games])
    content[at] = 0xFF if content[at] == 1 else 1
    with shard.path.open("r+b") as file:
        file.write(content)


def on_both(action: Callable[[int, Any], None]) -> list[BaseException | None]:
    """What `action` raises on each of two ranks."""
    ranks, raised = Ranks(2), [None, None]

    def run(rank: int) -> None:
        try:
            action(rank, ranks.of(rank))
        except DataError as error:
            raised[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return list(raised)


def check_on(rank: int, exchange: Any, store: GameStore, *, enabled: bool = True) -> DataCheck:
    window = Window.of_stores([store])
    run = RunDirectory(store.path.parent / "run")
    return DataCheck(window.split(0.2), run, exchange, reads=enabled and rank == 0)


def test_good_data_passes_and_later_saves_ask_nobody(store: GameStore):
    beats = []

    def action(rank: int, exchange: Any) -> None:
        check = check_on(rank, exchange, store)
        check.finish(lambda: beats.append(rank))
        exchange.gather = exchange.on_each = exchange.numbers = None
        check.finish(lambda: beats.append(rank))
        check.close()

    assert on_both(action) == [None, None]


def test_a_fault_of_the_first_seconds_is_raised_on_all_ranks(store: GameStore):
    flip_a_result(store)
    raised = on_both(lambda rank, exchange: check_on(rank, exchange, store) and None)
    for error in raised:
        assert isinstance(error, DataError) and error.found_by_all_ranks
        assert "00000.arrow: its checksum" in str(error)


def test_a_later_fault_is_raised_on_all_ranks_before_anything_is_published(
    store: GameStore, monkeypatch: pytest.MonkeyPatch
):
    go_on = threading.Event()
    real = Verification._verify

    def slow(self: Verification, *arguments: Any) -> None:
        assert go_on.wait(60)
        real(self, *arguments)

    monkeypatch.setattr(Verification, "_verify", slow)
    monkeypatch.setattr(Verification.__init__, "__kwdefaults__", {"cache": None, "first_s": 0.1})
    flip_a_result(store)
    waited = []

    def action(rank: int, exchange: Any) -> None:
        check = check_on(rank, exchange, store)

        def beat() -> None:
            waited.append(rank)
            go_on.set()

        check.finish(beat)

    raised = on_both(action)
    assert all("checksum" in str(error) for error in raised)
    assert set(waited) == {0, 1}


def test_no_verify_data_reads_nothing(store: GameStore):
    flip_a_result(store)

    def action(rank: int, exchange: Any) -> None:
        check = check_on(rank, exchange, store, enabled=False)
        check.finish(lambda: None)

    assert on_both(action) == [None, None]


def test_games_that_the_run_played_before_are_read_as_well(store: GameStore):
    flip_a_result(store)
    run = RunDirectory(store.path.parent / "run")
    run.path.mkdir()
    store.path.rename(run.games)
    raised = on_both(lambda rank, exchange: DataCheck((None, None), run, exchange, reads=rank == 0) and None)
    assert all("games/shard-00000.arrow" in str(error) for error in raised)


def test_a_flipped_result_ends_a_job_before_its_first_step(zygote, store: GameStore, tmp_path: Path):
    """It was trained on without a word."""
    flip_a_result(store)
    output = zygote.run_job(tmp_path / "job", store.path, 1, "--steps", "1", status=2)
    assert "00000.arrow: its checksum" in output
    assert "Traceback" not in output
    zygote.run_job(tmp_path / "job", store.path, 1, "--steps", "1", "--no-verify-data")


@pytest.mark.skipif(not has_tables(), reason=WHY_NOT)
def test_ranks_with_other_tablebases_are_refused_alike(tmp_path: Path):
    shutil.copy(SYZYGY / "KRvK.rtbw", tmp_path)
    warnings: dict[int, list[str]] = {}

    def compare(paths: list[Path], check: bool = True, mode: str = "selfplay"):
        def action(rank: int, exchange: Any) -> None:
            own = dataclasses.replace(Config().self_play, mode=mode, syzygy=str(paths[rank]))
            host = SimpleNamespace(host=f"gpu{rank}")
            config = dataclasses.replace(Config(), self_play=own)
            warnings[rank] = compare_data(None, None, config, host, exchange, check=check)

        return on_both(action)

    assert compare([SYZYGY, SYZYGY]) == [None, None] and warnings == {0: [], 1: []}
    for error in compare([SYZYGY, tmp_path]):
        assert isinstance(error, DataError) and error.found_by_all_ranks
        assert "--syzygy: 35 WDL and 35 DTZ" in str(error)
        assert " on gpu0 (rank 0), 1 WDL and 0 DTZ" in str(error)
    assert compare([SYZYGY, tmp_path], check=False) == [None, None]
    assert warnings[0] == warnings[1] and warnings[0][0].startswith("warning: nodes differ: --syzygy")
    assert compare([SYZYGY, tmp_path / "absent"], mode="supervised") == [None, None]
