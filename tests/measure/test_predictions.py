"""What adds up over positions beside the means: calibration bins, phases of the game, the worst positions."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from alphazero.games.core_types import Line
from alphazero.games.registry import get_spec, make_line
from alphazero.measure.known_games import (
    NUM_BINS,
    Predictions,
    bins_of,
    metrics_of,
    phases_in,
    phases_of,
    sum_over_positions,
    tallies_of,
)
from alphazero.measure.truth.connect4 import line_of
from alphazero.measure.truth.positions import ExactPosition, batch_of, successors
from alphazero.training.sources.validation import NUM_WORST, Worst
from tests.measure.test_position_eval import CPU, SPEC, Oracle, make_batch


def seen(wdl: list[list[float]], results: list[int], logits: list[list[float]]) -> Predictions:
    """Positions in which moves 0, 1 and 2 are legal, and 0 is the target's."""
    batch = make_batch([[0, 1, 2]] * len(wdl), [0] * len(wdl), results)
    return Predictions(batch, np.array(logits, float).ravel(), np.array(wdl))


def test_positions_fall_into_the_bins_of_what_was_expected() -> None:
    found = seen(
        [[0.72, 0.02, 0.26], [0.70, 0.06, 0.24], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
        [1, 0, -1, 1],
        [[1, 0, 0]] * 4,
    )
    score, draw = bins_of(tallies_of(found, SPEC))
    assert len(score.count) == NUM_BINS
    assert {place: count for place, count in enumerate(score.count) if count} == {0: 1, 14: 2, 19: 1}
    assert score.predicted[14] == pytest.approx(0.73)
    assert score.actual[14] == pytest.approx(0.75)  # a win and a draw
    assert (score.predicted[19], score.actual[19]) == (1.0, 1.0)
    assert {place: count for place, count in enumerate(draw.count) if count} == {0: 3, 1: 1}
    assert draw.actual[:2] == pytest.approx((0.0, 1.0))


def test_tallies_of_parts_add_up_and_agree_with_the_figures() -> None:
    rng = np.random.default_rng(5)
    legal = [sorted(rng.choice(9, rng.integers(1, 10), replace=False).tolist()) for _ in range(40)]
    target = [int(rng.choice(moves)) for moves in legal]
    batch = make_batch(legal, target, rng.integers(-1, 2, 40).tolist())
    batch = dataclasses.replace(
        batch, packed=np.packbits(rng.random((40, SPEC.packed_bytes, 8)) < 0.03, axis=2)[..., 0]
    )
    output = rng.normal(0, 2, (40, 9)).astype(np.float32), rng.normal(0, 1, (40, 3)).astype(np.float32)
    watched: list[Predictions] = []
    figures = metrics_of(sum_over_positions(Oracle([output]), [batch], CPU, "fp32", watched.append))
    (found,) = watched
    tallies = tallies_of(found, SPEC)
    phases = phases_in(tallies, SPEC)
    assert sum(phase.positions for phase in phases) == 40
    for name, mean in (
        ("right_moves", figures.policy_top1),
        ("policy_loss", figures.policy_loss),
        ("value_mse", figures.value_mse),
    ):
        total = sum(getattr(phase, name) * phase.positions for phase in phases)
        assert total / 40 == pytest.approx(mean, abs=1e-5)
    score, _ = bins_of(tallies)
    assert sum(score.count) == 40


def test_a_tie_for_the_first_move_is_no_right_move() -> None:
    found = seen([[1.0, 0.0, 0.0]] * 4, [1] * 4, [[2, 1, 0], [1, 1, 0], [0, 1, 0], [np.nan] * 3])
    assert found.is_right.tolist() == [True, False, False, False]


def test_phases_of_chess_go_by_the_pieces_that_are_left() -> None:
    positions = [
        "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",  # 14
        "r1bqkb1r/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 0 1",  # 12
        "r1bqkb1r/pppppppp/8/8/8/8/PPPPPPPP/1NBQKBNR b Kkq - 0 1",  # 11
        "r2qk2r/pppppppp/8/8/8/8/PPPPPPPP/R2QK2R w KQkq - 0 1",  # 6
        "r2qk2r/pppppppp/8/8/8/8/PPPPPPPP/R2QKB1R w KQkq - 0 1",  # 7
        "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 w - - 0 1",
    ]
    packed = np.stack([make_line("chess", position).packed() for position in positions])
    assert phases_of(packed, get_spec("chess")).tolist() == [0, 0, 1, 2, 1, 2]


def test_phases_of_other_games_are_thirds_of_the_board() -> None:
    line, phases = make_line("tictactoe"), []
    for square in (0, 3, 1, 4, 8, 2, 5, 6):
        phases.append(int(phases_of(line.packed()[None], SPEC)[0]))
        line.push(square)
    assert phases == [0, 0, 0, 1, 1, 1, 2, 2]


def reached_by(*moves: int) -> Line:
    line = make_line("tictactoe")
    for move in moves:
        line.push(move)
    return line


def test_the_worst_positions_of_each_kind_are_kept_in_order() -> None:
    worst = Worst()
    places = list(itertools.permutations(range(3, 9), 2))
    rng = np.random.default_rng(2)
    errors = rng.permutation(20)
    for part in (slice(0, 9), slice(9, 20)):
        sure = [[error / 20, 0.0, 1 - error / 20] for error in errors[part]]  # of lost positions
        logits = [[-float(error), 0, 0] for error in errors[part]]
        lines = [reached_by(*moves) for moves in places[part]]
        games = [(str(part.start + at), line) for at, line in enumerate(lines)]
        worst.look(seen(sure, [-1] * len(sure), logits), games.__getitem__)
    for by in ("policy", "value"):
        found = [round(10 * (one.value + 1)) for *_, one in worst.ranked[by]]
        assert found == list(range(19, 19 - NUM_WORST, -1))
    *_, told = worst.ranked["value"][0]
    assert (told.move, told.value, told.result) == ("a1", pytest.approx(0.9), -1.0)


def test_the_worst_positions_are_of_different_games_and_differ() -> None:
    worst = Worst()
    # Errors fall; games 0, 0, 1, 2, 3 and then 0 again in another batch: position (3, 4) is of games 1 and 2.
    batches = [[(0, (3, 5)), (0, (3, 6)), (1, (3, 4)), (2, (3, 4)), (3, (4, 5))], [(0, (5, 6)), (4, (6, 7))]]
    for number, rows in enumerate(batches):
        errors = [0.9 - 0.1 * number - 0.05 * at for at in range(len(rows))]
        wdl = [[error, 0.0, 1 - error] for error in errors]
        games = [(str(game), reached_by(*moves)) for game, moves in rows]
        worst.look(seen(wdl, [-1] * len(rows), [[-9 * error, 0, 0] for error in errors]), games.__getitem__)
    for by in ("policy", "value"):
        found = [(game, wrong.position) for _, game, wrong in worst.ranked[by]]
        expected = [("0", (3, 5)), ("1", (3, 4)), ("3", (4, 5)), ("4", (6, 7))]
        assert sorted(found) == sorted((game, str(reached_by(*moves))) for game, moves in expected)


def test_positions_after_solved_ones_have_the_outcome_of_the_other_side() -> None:
    # Red has three in column 4, and wins there; anything else and it goes on.
    scores = dict(enumerate((-2, 0, 1, 18, 1, 0)))
    asked = ExactPosition(line_of("414141"), 18, scores)
    assert (asked.outcome, asked.keeping) == (1, frozenset({2, 3, 4}))
    batch = batch_of([asked])
    assert batch.policy.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3, 0, 0])
    assert batch.wdl.tolist() == [[1, 0, 0]]
    after = [successors([asked] * count)[-1].outcome for count in range(1, 6)]
    # In turn after columns 1, 2, 3, 5 and 6: column 4 ends the game.
    assert after == [1, 0, -1, -1, 0]
    assert torch.tensor(batch_of(successors([asked])).wdl).argmax().item() == 0
