"""Evaluations as value targets: numbers worked by hand, curves that are known, batches that stay the same."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.data.formats.importer import import_games
from alphazero.data.sampling.loader import Loader, WindowEncoder
from alphazero.data.sampling.value_curve import (
    MOST_CENTIPAWNS,
    STANDARD_CURVE,
    ValueCurve,
    curve_of,
    fit_curve,
)
from alphazero.data.sampling.window import Window
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import row_schema
from alphazero.games.registry import get_spec
from tests.support.data.stores import searched

CHESS = get_spec("chess")
CURVE = ValueCurve(1.0, 0.5)
NO_DRAW = {"won": [1.0, 0.0, 0.0], "lost": [0.0, 0.0, 1.0]}


def window_of(tmp_path: Path, text: str) -> Window:
    (tmp_path / "games.pgn").write_text(text)
    import_games([tmp_path / "games.pgn"], tmp_path / "store", workers=1)
    return Window.of_stores([GameStore.open(tmp_path / "store")])


def wdl_of(curve: ValueCurve, pawns: np.ndarray) -> np.ndarray:
    """[..., 3] of evaluations for the side to move."""
    won = 1 / (1 + np.exp((curve.a - pawns) / curve.b))
    lost = 1 / (1 + np.exp((curve.a + pawns) / curve.b))
    return np.stack([won, np.maximum(0, 1 - won - lost), lost], -1)


def values_of(window: Window, ratio: float = 1.0, curve: ValueCurve | None = CURVE) -> list[list[float]]:
    encoder = WindowEncoder(window, CHESS, num_threads=1, value_q_ratio=ratio, curve=curve)
    values: list[list[float]] = encoder.encode(np.arange(window.num_samples)).wdl.tolist()
    return values


def by_hand(pawns: float) -> list[float]:
    """The curve with a 1 and b 1/2."""
    won, lost = 1 / (1 + math.exp(2 * (1 - pawns))), 1 / (1 + math.exp(2 * (1 + pawns)))
    return [won, 1 - won - lost, lost]


def test_a_curve_gives_the_numbers_of_a_sheet_of_paper(tmp_path: Path):
    """At a pawn every second game is won; 1 / (1 + e^2) = 0.1192 and 1 / (1 + e^4) = 0.01799."""
    sheet = {0.0: [0.1192, 0.7616, 0.1192], 1.0: [0.5, 0.4820, 0.0180], -1.0: [0.0180, 0.4820, 0.5]}
    for pawns, wdl in sheet.items():
        np.testing.assert_allclose(wdl_of(CURVE, np.array(pawns)), wdl, atol=5e-5)
    window = window_of(tmp_path, "1. e4 {+0.00/9 1s} e5 {+1.00/9 1s} 2. d4 {[%eval -1.0]} d5 1-0\n")
    values = values_of(window)
    np.testing.assert_allclose(values[0], sheet[0.0], atol=5e-5)
    np.testing.assert_allclose(values[3], sheet[1.0], atol=5e-5)  # White's -1 is Black's +1


def test_engines_give_two_opinions_and_annotations_one(tmp_path: Path):
    """Of the position before a move: the mover's own of that move, and that of the move before."""
    text = (
        "1. e4 {+0.40/9 1s} e5 {+0.20/9 1s} 2. d4 {[%eval 0.6]} d5 {[%eval 0.8]} 3. a3 {d=9, wv=-0.1} a6 1-0"
    )
    means = [
        by_hand(0.4),  # nothing before it
        np.mean([by_hand(0.2), by_hand(-0.4)], 0),
        by_hand(-0.2),  # an annotation is of the position after its move
        by_hand(-0.6),
        np.mean([by_hand(-0.1), by_hand(0.8)], 0),
        by_hand(0.1),
    ]
    np.testing.assert_allclose(values_of(window_of(tmp_path, text)), means, atol=1e-6)


def test_the_rest_is_the_result(tmp_path: Path):
    window = window_of(tmp_path, "1. e4 {+0.40/9 1s} e5 2. d4 d5 0-1\n")
    quarter = values_of(window, 0.25)
    np.testing.assert_allclose(
        quarter[0], 0.75 * np.array([0, 0, 1]) + 0.25 * np.array(by_hand(0.4)), atol=1e-6
    )
    np.testing.assert_allclose(
        quarter[1], 0.75 * np.array([1, 0, 0]) + 0.25 * np.array(by_hand(-0.4)), atol=1e-6
    )
    results = [NO_DRAW["lost"], NO_DRAW["won"]] * 2
    assert quarter[2:] == results[2:], "no evaluation: the result alone"
    assert values_of(window, 0.0) == results
    assert values_of(window, 1.0, None) == results, "without a curve evaluations do not count"


def test_mates_are_certain(tmp_path: Path):
    text = "1. e4 {+M5/9 1s} e5 {[%eval #-3]} 2. d4 {wv=M9, d=9} d5 {[%eval #2]} 3. a3 1/2-1/2\n"
    won, lost = np.array(NO_DRAW["won"]), np.array(NO_DRAW["lost"])
    expected = [won, lost, (won + lost) / 2, lost, won]
    np.testing.assert_array_equal(values_of(window_of(tmp_path, text)), expected)


def test_black_may_move_first(tmp_path: Path):
    fen = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 0 1"
    text = f'[FEN "{fen}"]\n\n1... e5 {{[%eval -0.5]}} 2. e4 {{d=9, wv=0.3}} d5 {{+0.7/9 1s}} 1-0\n'
    expected = [
        NO_DRAW["lost"],
        np.mean([by_hand(0.3), by_hand(-0.5)], 0),
        np.mean([by_hand(0.7), by_hand(-0.3)], 0),
    ]
    np.testing.assert_allclose(values_of(window_of(tmp_path, text)), expected, atol=1e-6)


def noted_row(**columns: Any) -> dict[str, Any]:
    moves = _core.chess_random_playout(3, 3)
    row = {"game": "chess", "variant": "standard", "source": "x", "moves": moves, "result": 1}
    return {**row, "eval_cp": [40, None, 20], "eval_source": [2, None, 2], **columns}


def window_of_noted(path: Path, *rows: dict[str, Any]) -> Window:
    schema = row_schema(["eval_cp", "eval_source"])
    GrowingStore(path, "chess").append(pa.RecordBatch.from_pylist(list(rows), schema=schema))
    return Window.of_stores([GameStore.open(path)])


def test_a_search_of_ones_own_comes_first(tmp_path: Path):
    move = noted_row()["moves"][0]
    row = searched(noted_row(), [1, 1, 1], [[(move, 9)], [], []], [0.5, 0.0, 0.0], [0.25, 0.0, 0.0])
    values = values_of(window_of_noted(tmp_path / "s", row))
    expected = [[0.625, 0.25, 0.125], by_hand(-0.4), by_hand(0.2)]
    np.testing.assert_allclose(values, expected, atol=1e-6)


def commented_games(count: int, seed: int = 0) -> str:
    """Games whose results come from CURVE at the evaluation that they have; some say nothing."""
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        pawns = float(rng.normal(0, 1.5))
        result = rng.choice(["1-0", "1/2-1/2", "0-1"], p=wdl_of(CURVE, np.array(round(pawns, 2))))
        notes = [f"{{d=9, wv={pawns:.2f}}}" if number % 5 else ""] * 3
        moves = ("a3", "a4", "b3", "b4", "c3", "c4", "d3", "d4")[number % 8]
        texts.append(f'[Event "{number}"]\n\n1. {moves} {notes[0]} a6 {notes[1]} 2. h3 {notes[2]} {result}\n')
    return "\n".join(texts)


def log_likelihood(curve: ValueCurve, counts: np.ndarray) -> float:
    chances = wdl_of(curve, np.arange(-MOST_CENTIPAWNS, MOST_CENTIPAWNS + 1) / 100)
    return float((counts * np.log(np.maximum(chances, 1e-300))).sum() / counts.sum())


def test_a_fit_finds_the_curve_of_made_up_results():
    rng = np.random.default_rng(1)
    for true in (ValueCurve(1.1, 0.4), ValueCurve(2.5, 1.5), ValueCurve(0.3, 0.6)):
        centipawns = np.clip(rng.normal(0, 200, 400_000).round(), -2000, 2000).astype(int)
        shares = np.cumsum(wdl_of(true, centipawns / 100), 1)
        outcome = (rng.random((len(centipawns), 1)) > shares).sum(1)
        counts = np.zeros((2 * MOST_CENTIPAWNS + 1, 3), np.int64)
        np.add.at(counts, (centipawns + MOST_CENTIPAWNS, outcome), 1)
        found = fit_curve(counts)
        assert found == fit_curve(counts.copy())
        assert found is not None
        assert (found.a, found.b) == pytest.approx((true.a, true.b), rel=0.02)
        best = log_likelihood(found, counts)
        for a, b in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
            assert log_likelihood(ValueCurve(found.a + a, found.b + b), counts) < best


def test_results_that_no_curve_describes_have_none():
    counts = np.zeros((2 * MOST_CENTIPAWNS + 1, 3), np.int64)
    assert fit_curve(counts) is None, "nothing"
    counts[MOST_CENTIPAWNS + 100] = [0, 50, 100]
    counts[MOST_CENTIPAWNS - 100] = [100, 50, 0]
    assert fit_curve(counts) is None, "the better evaluation loses"
    assert fit_curve(counts[::-1]) is not None
    counts[:, [0, 2]] = 0
    assert fit_curve(counts) is None, "nothing but draws"


def test_the_curve_of_a_window_is_fitted_to_its_games(tmp_path: Path):
    window = window_of(tmp_path, commented_games(3000))
    found = curve_of(window)
    assert found is not None
    assert found.fitted
    assert found == curve_of(window)
    assert (found.curve.a, found.curve.b) == pytest.approx((1.0, 0.5), rel=0.12)
    assert (found.games, round(found.share, 6)) == (2400, 0.8)
    assert "in 80.0 %" in str(found) and f"curve a {found.curve.a:.4f}" in str(found)


def test_too_few_games_take_the_standard_curve_and_say_so(tmp_path: Path):
    found = curve_of(window_of(tmp_path, commented_games(100)))
    assert found is not None
    assert (found.curve, found.fitted, found.games) == (STANDARD_CURVE, False, 80)
    assert "a 1.3255, b 0.6800 pawns (80 games" in str(found)


def test_games_without_evaluations_have_no_curve(tmp_path: Path):
    assert curve_of(window_of(tmp_path, "1. e4 {[%clk 0:01:00]} e5 1-0\n")) is None


def test_resume_ranks_and_threads_make_the_same_batches(tmp_path: Path):
    window = window_of(tmp_path, commented_games(60))

    def loader(**changes: Any) -> Loader:
        settings: dict[str, Any] = {"seed": 5, "batch_size": 16, "micro_batch_size": 4, "num_threads": 1}
        settings |= {"value_q_ratio": 0.5, "curve": CURVE, **changes}
        return Loader(window, CHESS, **settings)

    steps = list(loader().iterate(0, 6))
    resumed = list(loader(num_threads=3).iterate(3, 6))
    ranks = [loader(passes=(first, first + 2)) for first in (0, 1)]
    for step, micro_batches in enumerate(steps):
        for index, micro_batch in enumerate(micro_batches):
            by_rank = ranks[index % 2].step(step)[index // 2]
            np.testing.assert_array_equal(by_rank.batch.wdl, micro_batch.batch.wdl)
            if step >= 3:
                np.testing.assert_array_equal(resumed[step - 3][index].batch.wdl, micro_batch.batch.wdl)
    mixed = np.concatenate([m.batch.wdl for micro_batches in steps for m in micro_batches])
    assert 0.1 < np.mean((mixed > 0.01) & (mixed < 0.99)) < 1


def test_columns_that_do_not_fit_are_refused(tmp_path: Path):
    window = window_of_noted(tmp_path / "s", noted_row())
    (view,) = window.shards
    assert view.evaluations is not None
    core = _core.ChessBatchEncoder(1)
    plain = (view.moves, view.moves_offset, view.result, view.result_valid, view.fen_bytes, view.fen_offset)
    good = view.evaluations
    core.add_shard("shard", *plain, None, good)
    offset, values, bits = good[0]
    for damaged in (
        (offset[:1], values, bits),
        (offset, values[:2], bits),
        (np.array([0, 2], np.int32), values, bits),
        (np.array([2, 3], np.int32), values, bits),
    ):
        with pytest.raises(_core.GameError, match=r"shard: .*evaluation"):
            core.add_shard("shard", *plain, None, (damaged, *good[1:]))


def test_a_shard_that_changes_while_in_use_is_an_error(tmp_path: Path):
    """No memory beyond the columns is read."""
    window = window_of_noted(tmp_path / "s", noted_row(), noted_row())
    encoder = WindowEncoder(window, CHESS, num_threads=1, value_q_ratio=1.0, curve=CURVE)
    (view,) = window.shards
    assert view.evaluations is not None
    offset = view.evaluations.cp.offset
    path, content = view.path, bytearray(view.path.read_bytes())
    start = content.rindex(np.array([40, 0, 20, 40, 0, 20], np.int32).tobytes())  # the offsets lie before
    place = content.rindex(offset.tobytes(), 0, start)
    content[place : place + 12] = np.array([0, 3, 1 << 20], np.int32).tobytes()
    with path.open("r+b") as file:
        file.write(content)
    assert offset[-1] == 1 << 20
    with pytest.raises(DataError, match="written to while"):
        encoder.encode(np.arange(window.num_samples))
