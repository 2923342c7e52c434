"""VerboseMoveStats against the lines of lc0 itself."""

import re

import numpy as np
import pytest

from alphazero.games.registry import make_line
from alphazero.search.move_stats import move_stats
from alphazero.search.snapshot import MoveReport, Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

# lc0 0.32.1 with maia-1500 after 1. e4, `go nodes 60` with MinibatchSize 1; of the moves without visits, one.
OF_LC0 = """\
b8a6  (34  ) N:       0 (+ 0) (P:  0.05%) (WL:  -.-----) (D: -.---) (M:  -.-) (Q: -0.32996) (U: 0.00633) (S: -0.32363) (V:  -.----)
c7c6  (259 ) N:       3 (+ 0) (P:  5.85%) (WL: -0.00185) (D: 0.037) (M:  0.7) (Q: -0.00185) (U: 0.17733) (S:  0.17539) (V: -0.0132)
d7d5  (293 ) N:       4 (+ 0) (P:  9.27%) (WL: -0.04041) (D: 0.039) (M:  1.5) (Q: -0.04041) (U: 0.22462) (S:  0.18218) (V: -0.0112)
e7e6  (317 ) N:       8 (+ 0) (P: 11.75%) (WL: -0.00199) (D: 0.038) (M:  2.0) (Q: -0.00199) (U: 0.15824) (S:  0.15615) (V: -0.0047)
c7c5  (264 ) N:      12 (+ 0) (P: 16.80%) (WL: -0.00886) (D: 0.036) (M:  2.2) (Q: -0.00886) (U: 0.15662) (S:  0.14730) (V: -0.0097)
e7e5  (322 ) N:      21 (+ 0) (P: 36.67%) (WL: -0.06071) (D: 0.038) (M:  2.6) (Q: -0.06071) (U: 0.20204) (S:  0.13835) (V: -0.0552)
node  (  20) N:      49 (+ 0) (P: 80.33%) (WL: -0.03251) (D: 0.037) (M:  3.1) (Q: -0.03251) (V: -0.0335)
"""  # noqa: E501 - a program's output
NUMBER = re.compile(r" *(?:-?\d+\.\d+|-\.-+)")


def value(row: str, name: str) -> float:
    found = re.search(rf"\({name}: *(-?\d[\d.]*)", row)
    return float(found[1]) if found else 0.0


def report(row: str) -> MoveReport:
    line = make_line("chess")
    line.push_text("e2e4")
    visits, wl, draw = int(re.search(r"N: +(\d+)", row)[1]), value(row, "WL"), value(row, "D")
    move = line.text_to_move(row[:4])
    wdl = ((1 + wl - draw) / 2, draw, (1 - wl - draw) / 2)
    prior = value(row, "P") / 100
    return MoveReport(
        move,
        row[:4],
        line.move_to_index(move),
        prior,
        visits,
        0.0,
        wl,
        wdl,
        None,
        None,
        (move,),
        (row[:4],),
        "chess",
        str(line),
    )


def snapshot(moves: list[MoveReport], nodes: int, q: float, draw: float) -> Snapshot:
    wdl = ((1 + q - draw) / 2, draw, (1 - q - draw) / 2)
    whole = (nodes, nodes, nodes, 0, 0.1, 1, 1, q, wdl, None, None, False, False, 0, nodes, 0)
    return Snapshot(*whole, tuple(moves), moves[0].position if moves else "")


def test_every_line_is_that_of_lc0_for_the_same_search() -> None:
    rows = OF_LC0.splitlines()
    line = make_line("chess")
    line.push_text("e2e4")
    moves = [report(row) for row in rows[:-1]][::-1]
    seen = snapshot(moves, 49, value(rows[-1], "Q"), value(rows[-1], "D"))
    settings = TreeSettings(fpu_reduction=0.33)
    texts = {move.move: move.text for move in moves}
    values: dict[int | None, float] = {None: value(rows[-1], "V")}
    values |= {move: value(row, "V") for move, row in zip(texts, rows[-2::-1], strict=True)}
    del values[line.text_to_move("b8a6")]
    own = move_stats(seen, line, settings, texts, values)
    # The root's count of moves is that of all legal ones.
    own[-1] = own[-1].replace("(   6)", "(  20)")
    for row, theirs in zip(own, rows, strict=True):
        # The same text, but for numbers: M, which this search does not know, and the last digits.
        assert len(row) == len(theirs)
        assert NUMBER.sub("#", row) == NUMBER.sub("#", theirs)
        assert row.split(" (P")[0] == theirs.split(" (P")[0]
        assert value(row, "P") == pytest.approx(value(theirs, "P"), abs=0.011)
        for name in ("WL", "D", "Q", "V"):
            # The value of a move without visits differs by 0.0017; the numbers have lost digits.
            digits = 1e-6 if "N:       0 " not in row else 2e-3
            assert value(row, name) == pytest.approx(value(theirs, name), abs=digits), (name, row)
        assert value(row, "U") == pytest.approx(value(theirs, "U"), abs=6e-4)
        # lc0 adds its preference for short games to S where a move was visited.
        assert value(row, "S") == pytest.approx(value(theirs, "S"), abs=6e-3)


def test_a_proven_move_is_marked() -> None:
    line = make_line("chess", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
    mate, quiet = line.text_to_move("a1a8"), line.text_to_move("a1a2")
    won = MoveReport(mate, "a1a8", 0, 0.25, 0, 0.0, 1.0, (1, 0, 0), 1, 1, (), (), "chess", str(line))
    once = MoveReport(quiet, "a1a2", 0, 0.5, 1, 0.0, 0.125, (0.3, 0.525, 0.175), None, None, (), (), "", "")
    texts = {mate: "a1a8", quiet: "a1a2"}
    rows = move_stats(snapshot([won, once], 2, 0.5, 0.1), line, TreeSettings(), texts, {quiet: -0.125})
    assert rows[0].startswith("a1a8 ") and rows[0].endswith("(V:  1.0000) (T)")
    assert "(WL:  1.00000)" in rows[0]
    assert rows[1].endswith("(V: -0.1250)")
    assert rows[2].startswith("node  (   2) N:       2 (+ 0) (P: 50.00%) (WL:  0.50000) (D: 0.100) ")


@pytest.mark.parametrize("game", ["chess", "connect4"])
def test_the_values_of_the_network_are_those_it_gave(game: str) -> None:
    evaluator = MadeUpEvaluator(game, 8)
    line = make_line(game)
    for _ in range(5):  # a history, which the network sees
        line.push(line.legal()[1])
    tree = TreeSearch(game, evaluator, TreeSettings(cache_mb=4))
    try:
        tree.set_line(line)
        seen = tree.search(SearchLimits(nodes=120))
        moves = [move.move for move in seen.moves]
        values = tree.network_values(moves)
        visited = {move.move for move in seen.moves if move.visits and move.proven is None}
        assert visited and visited | {None} <= set(values)
        for move, found in values.items():
            after = line.copy()
            if move is not None:
                after.push(move)
            legal = after.legal_indices()
            packed, offset = np.stack([after.packed()]), np.array([0, len(legal)], np.int32)
            win, _, loss = evaluator.submit(packed, legal, offset).result().wdl[0].tolist()
            assert found == pytest.approx(win - loss if move is None else loss - win, abs=1e-6)
        never = [move.move for move in seen.moves if not move.visits]
        assert not set(never) & set(values)
    finally:
        tree.close()
