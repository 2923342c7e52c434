"""Games that are ended by their players' scores, as fastchess ends them."""

import pytest

from alphazero.play.matches.game import Adjudication, Adjudicator, DrawRule, ResignRule, Score
from alphazero.play.uci.protocol import centipawns


def verdicts(judge: Adjudicator, scores: list[Score | None], *, move: int = 40) -> list[float | None]:
    """White moves first."""
    return [
        judge.points(score, number % 2 == 0, resets_clock=False, move_number=move)
        for number, score in enumerate(scores)
    ]


def test_a_game_is_drawn_when_both_say_so_for_long_enough() -> None:
    rule = Adjudication(draw=DrawRule(movenumber=30, movecount=2, score=10))
    quiet = [Score(5), Score(-10), Score(0), Score(10)]
    assert verdicts(Adjudicator(rule), quiet) == [None, None, None, 0.5]
    assert verdicts(Adjudicator(rule), quiet, move=29) == [None] * 4
    assert verdicts(Adjudicator(rule), [*quiet[:3], Score(11), Score(0)]) == [None] * 5
    assert verdicts(Adjudicator(rule), [*quiet[:3], None]) == [None] * 4
    assert verdicts(Adjudicator(rule), [*quiet[:3], Score(mate=0)]) == [None] * 4


def test_a_capture_begins_the_count_of_quiet_moves_anew() -> None:
    judge = Adjudicator(Adjudication(draw=DrawRule(0, 1, 10)))
    captures = [False, True, False]
    assert [
        judge.points(Score(0), number % 2 == 0, resets_clock=captured, move_number=50)
        for number, captured in enumerate(captures)
    ] == [None, None, 0.5]


def test_a_player_far_behind_resigns() -> None:
    rule = Adjudication(resign=ResignRule(movecount=2, score=500))
    # Black, who moves second, is behind twice in a row, whatever White thinks.
    assert verdicts(Adjudicator(rule), [Score(0), Score(-500), None, Score(-600)]) == [None, None, None, 1.0]
    assert verdicts(Adjudicator(rule), [Score(-900), Score(0), Score(mate=-3)]) == [None, None, 0.0]
    assert (
        verdicts(Adjudicator(rule), [Score(-900), Score(0), Score(-499), Score(0), Score(-900)]) == [None] * 5
    )


@pytest.mark.parametrize(
    ("score", "written"),
    [(Score(35), "+0.35"), (Score(-120), "-1.20"), (Score(mate=5), "+M5"), (Score(mate=-2), "-M2")],
)
def test_scores_are_written_as_in_fastchess_s_pgn(score, written) -> None:
    assert str(score) == written


def test_a_value_becomes_centipawns_by_lc0_s_formula() -> None:
    # 90 tan(1.5637541897 q): q = 0.5 is 90 * tan(0.78188) = 89.4.
    assert [centipawns(value) for value in (0.0, 0.5, -0.5)] == [0, 89, -89]
    assert 12_000 < centipawns(1.0) < 13_000
