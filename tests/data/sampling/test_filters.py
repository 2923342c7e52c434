"""Filters against stores made by hand, whose counts are known, and against python-chess on TCEC's games."""

import dataclasses
import gzip
import itertools
import random
from pathlib import Path
from typing import Any

import chess.pgn
import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.data.formats.importer import import_games
from alphazero.data.sampling import filters as window_filters
from alphazero.data.sampling.filters import for_training, with_filters
from alphazero.data.sampling.loader import Loader, WindowEncoder
from alphazero.data.sampling.window import MOST_AVERAGED, SampleGroups, Window
from alphazero.data.store.store import GameStore, ShardView
from alphazero.games.registry import get_spec
from alphazero.settings.data import SampleFilters
from alphazero.training.ranks.batch import BatchPlan
from tests.support.data.chess_games import random_games, searched_chess_row, window_of_rows
from tests.support.data.stores import game, moves_of, write_games

CHESS = get_spec("chess")
LINE = "e4 e5 Nf3 Nc6"


def headers(
    white: int | None, black: int | None, control: str | None, event: str | None, end: str | None
) -> dict[str, Any]:
    names = ("white_elo", "black_elo", "time_control", "event", "termination")
    return dict(zip(names, (white, black, control, event, end), strict=True))


GAMES = [
    game(LINE, 1, **headers(1500, 1550, "300+0", "Rated Blitz game", "Normal")),
    game(LINE, 0, **headers(1600, 1400, "600+5", "Rated Rapid game", "Time forfeit")),
    game(LINE, 1, **headers(None, 1500, "60+0", "Rated Bullet game", "Normal")),
    game(LINE, -1, **headers(1599, 1500, "180+2", "Rated Blitz tournament", "Abandoned")),
    game(LINE, -1, **headers(2400, 1500, None, None, None)),
    game(LINE, 1, **headers(1550, 1560, "-", "Rated Correspondence game", "Normal")),
    game(LINE, None, **headers(1550, 1560, "300+0", "Rated Blitz game", "Unterminated")),
    game(LINE, 1, **headers(1510, 1520, "?", "Casual Blitz game", "Rules infraction")),
]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Window:
    """Seven games that count, in three shards."""
    return Window.of_stores([write_games(tmp_path_factory.mktemp("filters") / "store", GAMES, 3)])


def numbers(window: Window) -> list[int]:
    """The places in GAMES of the games that are left."""
    return [3 * int(shard) + int(row) for shard, row in zip(window.shard, window.game, strict=True)]


@pytest.mark.parametrize(
    ("settings", "left", "told"),
    [
        (
            {"min_elo": 1500},
            [0, 3, 4, 5, 7],
            ["min_elo 1500: removed 2 of 7 games"],
        ),
        (
            {"max_elo": 1599},
            [0, 3, 5, 7],
            ["max_elo 1599: removed 3 of 7 games"],
        ),
        (
            {"min_elo": 1500, "max_elo": 1599},
            [0, 3, 5, 7],
            [
                "min_elo 1500: removed 2 of 7 games",
                "max_elo 1599: removed 1 of 5 games",
            ],
        ),
        (
            {"max_elo_difference": 99},
            [0, 3, 5, 7],
            ["max_elo_difference 99: removed 3 of 7 games"],
        ),
        ({"max_elo_difference": 98}, [0, 5, 7], None),
        (
            {"time_classes": ("blitz", "rapid")},
            [0, 1, 3],
            ["time_classes blitz, rapid: removed 4 of 7 games"],
        ),
        ({"time_classes": ("correspondence", "bullet")}, [2, 5], None),
        (
            {"events": ("BLITZ", "rapid")},
            [0, 1, 3, 7],
            ["events BLITZ, rapid: removed 3 of 7 games"],
        ),
        (
            {"exclude_terminations": ("abandoned", "time forfeit")},
            [0, 2, 4, 5, 7],
            ["exclude_terminations abandoned, time forfeit: removed 2 of 7 games"],
        ),
    ],
)
def test_games_are_removed_and_counted(
    window: Window, settings: dict[str, Any], left: list[int], told: list[str] | None
):
    filtered = with_filters(window, SampleFilters(**settings))
    assert numbers(filtered) == left
    assert filtered.num_samples == 4 * len(left)
    if told is not None:
        assert [str(count) for count in filtered.filtered] == told
    assert filtered.id != window.id


def test_without_filters_a_window_stays_what_it_is(window: Window):
    none = SampleFilters()
    assert with_filters(window, none) is window
    assert for_training(window, none, 3, num_threads=1) is window


def test_a_filter_that_removes_everything_is_one_line_with_the_counts_of_all(window: Window):
    filters = SampleFilters(min_elo=1500, time_classes=("classical",))
    with pytest.raises(DataError) as error:
        with_filters(window, filters)
    assert "1500: removed 2 of 7" in str(error.value)
    assert "classical: removed 5 of 5" in str(error.value)
    with pytest.raises(DataError, match=r"4: removed 28 of 28"):
        for_training(window, SampleFilters(skip_plies=4), 0, num_threads=1)
    with pytest.raises(ConfigError, match=r"^min_elo 1600 .*1500"):
        with_filters(window, SampleFilters(min_elo=1600, max_elo=1500))


def test_games_of_which_nothing_is_told_pass_no_filter_of_headers():
    view = made_up_shard([3, 2])
    window = Window.of_shards("chess", [view], ["x"])
    with pytest.raises(DataError, match="removed 2 of 2 games"):
        with_filters(window, SampleFilters(events=("x",)))
    assert with_filters(window, SampleFilters(exclude_terminations=("x",))).num_games == 2
    kept = with_filters(window, SampleFilters(min_clock=10.0))
    assert "removed 0 of 5" in str(kept.filtered[-1])


CLOCKS = [
    game("e4 e5 Nf3 Nc6 Bb5 a6", 1, clock_ms=[60000, 60000, 29000, 45000, 50000, 20000]),
    game("e4 e5 Nf3 Nc6", 0, clock_ms=[29000, None, 40000, 40000]),
    game("e4 e5 Nf3", -1),
]


def places(window: Window) -> list[tuple[int, int]]:
    """Game and ply of every sample."""
    found = window.locate(np.arange(window.num_samples))
    return list(zip(found.game.tolist(), found.ply.tolist(), strict=True))


def test_positions_with_little_time_are_removed(tmp_path: Path):
    window = Window.of_stores([write_games(tmp_path / "store", CLOCKS)])
    filtered = with_filters(window, SampleFilters(min_clock=30.0))
    # Ply 4 of game 0: White's clock after ply 2 was 29 s. Game 1: ply 0 has its own clock alone, ply 2 that
    # of ply 0; ply 3 has its own, as that of ply 1 is not known. Ply 1 of game 1 and game 2 tell none.
    left = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 5), (1, 1), (1, 3), (2, 0), (2, 1), (2, 2)]
    assert places(filtered) == left
    assert len(filtered.filtered) == 1 and "removed 3 of 13" in str(filtered.filtered[0])
    # Keys are those of the positions that are left.
    keys = WindowEncoder(window, CHESS, num_threads=1).position_keys()
    whole = dict(zip(places(window), keys.tolist(), strict=True))
    found = WindowEncoder(filtered, CHESS, num_threads=1).position_keys().tolist()
    assert found == [whole[place] for place in left]


def test_the_first_plies_are_skipped_and_short_games_go(tmp_path: Path):
    window = Window.of_stores([write_games(tmp_path / "store", CLOCKS)])
    filtered = for_training(window, SampleFilters(skip_plies=3), 0, num_threads=1)
    assert places(filtered) == [(0, 3), (0, 4), (0, 5), (1, 3)]
    assert "removed 9 of 13" in str(filtered.filtered[-1])
    assert len(filtered.listed_ply) == 0
    both = for_training(
        with_filters(window, SampleFilters(min_clock=30.0)), SampleFilters(skip_plies=1), 0, num_threads=1
    )
    assert places(both) == [(0, 1), (0, 2), (0, 3), (0, 5), (1, 1), (1, 3), (2, 1), (2, 2)]


def test_filters_of_positions_keep_to_the_plies_that_a_search_made(tmp_path: Path):
    games = [one for one in random_games(12, "filters", 30) if one.result is not None]
    rng = random.Random("filters")
    rows = [searched_chess_row(one, rng) for one in games]
    window = window_of_rows(tmp_path / "s", rows)
    filtered = for_training(window, SampleFilters(skip_plies=5), 0, num_threads=1)
    assert places(filtered) == [(row, ply) for row, ply in places(window) if ply >= 5]
    joined = Window.joined(filtered, filtered)
    assert places(joined) == 2 * places(filtered)
    head, tail = filtered.split(0.3)
    assert places(head) + places(tail) == places(filtered)


def made_up_shard(lengths: list[int]) -> ShardView:
    """Games of these lengths that nobody replays."""
    num_games, num_plies = len(lengths), sum(lengths)
    return ShardView(
        path=Path("made up"),
        num_games=num_games,
        num_plies=num_plies,
        moves=np.zeros(num_plies, np.uint16),
        moves_offset=np.cumsum([0, *lengths]).astype(np.int32),
        result=np.zeros(num_games, np.int8),
        result_valid=np.ones(num_games, np.bool_),
        fen_bytes=np.zeros(0, np.uint8),
        fen_offset=np.zeros(num_games + 1, np.int32),
    )


def test_as_many_positions_of_each_game_are_drawn_and_all_are_as_likely():
    views = [made_up_shard([40] * 1000), made_up_shard([40] * 1000 + [3, 5, 6])]
    window = Window.of_shards("chess", views, ["a", "b"])
    drawn = for_training(window, SampleFilters(max_positions_per_game=5), 11, num_threads=1)
    assert np.diff(drawn.ply_offset).tolist() == [5] * 2000 + [3, 5, 5]
    assert "removed 70,001 of 80,014" in str(drawn.filtered[-1])
    found = drawn.locate(np.arange(10_000))
    assert all(len(set(game)) == 5 and list(game) == sorted(game) for game in found.ply.reshape(-1, 5))
    # Chi-square over the plies, 39 degrees of freedom: above 72.1 once in a thousand times.
    counts = np.bincount(found.ply, minlength=40)
    assert ((counts - 250) ** 2 / 250).sum() < 72.1
    # Pairs of neighbouring plies too: 5 of 40 hold a given one with 5 * 4 / (40 * 39), 39 of them in a game.
    pairs = (np.diff(found.ply.reshape(-1, 5), axis=1) == 1).sum()
    expected = 2000 * 39 * 20 / (40 * 39)
    assert abs(pairs - expected) < 5 * expected**0.5


def test_a_draw_depends_on_the_seed_and_the_game_alone():
    views = [made_up_shard([40] * 50), made_up_shard([40] * 50)]
    window = Window.of_shards("chess", views, ["a", "b"])
    filters = SampleFilters(max_positions_per_game=4)
    drawn = for_training(window, filters, 7, num_threads=1)
    again = for_training(window, filters, 7, num_threads=1)
    other = for_training(window, filters, 8, num_threads=1)
    assert places(drawn) == places(again) and drawn.id == again.id
    assert places(drawn) != places(other) and drawn.id != other.id
    tail = for_training(window.games_from(60), filters, 7, num_threads=1)
    assert places(tail) == places(drawn)[4 * 60 :]


THREE = [
    game("e4 e5 Nf3", 1),
    game("e4 c5", -1),
    game("d4 d5 c4 e6", 0),
]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Window:
    window = Window.of_stores([write_games(tmp_path_factory.mktemp("merged") / "store", THREE, 2)])
    return for_training(window, SampleFilters(merge_duplicates=True), 0, num_threads=2)


def test_equal_positions_are_one_sample_with_averaged_targets(merged: Window):
    assert "removed 3 of 9" in str(merged.filtered[-1])
    assert merged.num_samples == 6
    batch = WindowEncoder(merged, CHESS, num_threads=2).encode(np.arange(6))
    line = _core.ChessLine()

    def policy(row: int) -> dict[int, float]:
        begin, end = batch.legal_offset[row : row + 2]
        shares = zip(batch.legal_index[begin:end].tolist(), batch.policy[begin:end].tolist(), strict=True)
        return {index: share for index, share in shares if share}

    def index(san: str) -> int:
        return line.move_to_index(moves_of(" ".join([*played, san]))[-1])

    played: list[str] = []
    assert batch.legal_offset[1] == 20
    third = float(np.float32(1 / 3))
    assert policy(0) == {index("e4"): float(np.float32(2 / 3)), index("d4"): third}
    assert batch.wdl[0].tolist() == [third] * 3  # won, lost and drawn by White, who is to move
    assert batch.moves_left[0] == 3  # (3 + 2 + 4) / 3
    line.push(moves_of("e4")[0])
    played = ["e4"]
    assert policy(1) == {index("e5"): 0.5, index("c5"): 0.5}
    assert batch.wdl[1].tolist() == [0.5, 0, 0.5]  # Black's view of 1-0 and 0-1
    assert batch.moves_left[1] == 1.5
    # What occurs once is as it was, byte for byte.
    single = WindowEncoder(Window.of_shards("chess", merged.shards, ["a", "b"]), CHESS, num_threads=1)
    alone, same = single.encode(np.array([2, 6, 7, 8])), WindowEncoder(merged, CHESS, num_threads=1)
    for field in dataclasses.fields(alone):
        if field.name != "sample_id":
            ours = getattr(same.encode(np.arange(2, 6)), field.name)
            assert ours.tobytes() == getattr(alone, field.name).tobytes()


def test_the_planes_are_those_of_the_first(tmp_path: Path):
    rows = [game("Nf3 Nf6 g3 g6", 1), game("g3 g6 Nf3 Nf6 c4", 1)]
    window = Window.of_stores([write_games(tmp_path / "store", rows)])
    one = for_training(window, SampleFilters(merge_duplicates=True), 0, num_threads=1)
    encoder = WindowEncoder(window, CHESS, num_threads=1)
    merged = WindowEncoder(one, CHESS, num_threads=1)
    assert one.num_samples == 9 - 1  # the start; after g3 and after Nf3 Nf6 g3 others are to move
    for sample in range(one.num_samples):
        first = one.locate(np.array([sample]))
        at = window.ply_offset[first.game[0]] + first.ply[0]
        assert (
            merged.encode(np.array([sample])).packed.tobytes()
            == encoder.encode(np.array([at])).packed.tobytes()
        )


def test_of_a_frequent_position_64_are_averaged_spread_evenly():
    keys = np.zeros(5001, np.uint64)
    keys[7] = 1
    groups = SampleGroups(*_core.group_samples(keys))
    assert groups.offset.tolist() == [0, 5000, 5001] and groups.num_fewer == 4999
    taken, offset = groups.averaged(np.array([1, 0, 2]))
    assert offset.tolist() == [0, 1, 65, 66] and MOST_AVERAGED == 64
    others = [place for place in range(5001) if place != 7]
    assert taken.tolist() == [7, *(others[turn * 5000 // 64] for turn in range(64)), 5001]
    assert groups.firsts(np.array([0, 1, 2])).tolist() == [0, 7, 5001]


def test_groups_are_those_of_a_dictionary():
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 300, 1000).astype(np.uint64)
    member, offset = _core.group_samples(keys)
    by_key: dict[int, list[int]] = {}
    for place, key in enumerate(keys.tolist()):
        by_key.setdefault(key, []).append(place)
    found = [member[a:b].tolist() for a, b in itertools.pairwise(offset.tolist())]
    assert found == list(by_key.values())


def test_too_many_positions_to_merge_are_refused(window: Window, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(window_filters, "MOST_MERGED", 27)
    with pytest.raises(DataError, match=r"^merge_duplicates: 28 .*27"):
        for_training(window, SampleFilters(merge_duplicates=True), 0, num_threads=1)


def test_merged_games_go_before_those_of_self_play(merged: Window, window: Window):
    joined = Window.joined(merged, window)
    assert joined.num_samples == 6 + 28
    assert places(joined) == places(merged) + places(window)
    encoder = WindowEncoder(joined, CHESS, num_threads=1)
    ids = np.array([30, 0, 6, 5])
    batch = encoder.encode(ids)
    assert batch.wdl[1].tolist() == [float(np.float32(1 / 3))] * 3
    own = WindowEncoder(window, CHESS, num_threads=1).encode(np.array([24, 0]))
    assert batch.packed[[0, 2]].tobytes() == own.packed.tobytes()
    assert len(encoder.position_keys()) == 34


def test_ranks_and_resumes_see_the_same_samples(tmp_path: Path):
    rows = [game("e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O", result) for result in (1, 0, -1, 1)]
    rows += [game("d4 d5 c4 e6 Nc3 Nf6", 0), game("d4 Nf6 c4 e6 Nc3 d5", 1)]
    store = write_games(tmp_path / "store", rows)
    filters = SampleFilters(skip_plies=1, max_positions_per_game=4, merge_duplicates=True)

    def loader(passes: tuple[int | None, ...] | None = None) -> Loader:
        window = for_training(Window.of_stores([store]), filters, 5, num_threads=1)
        return Loader(window, CHESS, seed=5, batch_size=12, micro_batch_size=2, passes=passes)

    whole = [[one.batch for one in step] for step in loader().iterate(0, 6)]
    resumed = [[one.batch for one in step] for step in loader().iterate(3, 6)]
    assert [[one.policy.tobytes() for one in step] for step in resumed] == [
        [one.policy.tobytes() for one in step] for step in whole[3:]
    ]
    for ranks in (2, 3):
        plan = BatchPlan(12, 2, (1.0,) * ranks)
        for rank in range(ranks):
            passes = plan.passes_of(rank)
            for step, own in enumerate(loader(passes).iterate(0, 6)):
                for index, micro in zip(passes, own, strict=True):
                    assert index is not None
                    for name in ("packed", "policy", "wdl", "moves_left", "sample_id"):
                        ours = getattr(micro.batch, name).tobytes()
                        assert ours == getattr(whole[step][index], name).tobytes()


def test_elo_and_events_of_tcec_are_those_that_python_chess_reads(shared_data: Path, tmp_path: Path):
    source = shared_data / "pgn_val" / "TCEC_Season_12_-_Division_1.pgn.gz"
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    import_games([source], tmp_path / "store", workers=1)
    expected: dict[str, list[bool]] = {"min_elo": [], "max_elo_difference": [], "exclude_terminations": []}
    with gzip.open(source, "rt", encoding="utf-8", errors="replace") as text:
        while (read := chess.pgn.read_headers(text)) is not None:
            white, black = (int(read.get(name, 0)) for name in ("WhiteElo", "BlackElo"))
            expected["min_elo"].append(min(white, black) >= 3250)
            expected["max_elo_difference"].append(min(white, black) > 0 and abs(white - black) <= 60)
            expected["exclude_terminations"].append("adjudic" not in read.get("Termination", "").lower())
    window = Window.of_stores([GameStore.open(tmp_path / "store")])
    assert window.num_games == len(expected["min_elo"])
    settings = {"min_elo": 3250, "max_elo_difference": 60, "exclude_terminations": ("ADJUDIC",)}
    for name, value in settings.items():
        filtered = with_filters(window, SampleFilters(**{name: value}))
        assert filtered.game.tolist() == np.flatnonzero(expected[name]).tolist()
        assert 0 < filtered.num_games < window.num_games
