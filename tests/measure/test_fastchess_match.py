"""What fastchess printed of a match that it played, from the same counts.

fastchess (Disservin/fastchess), Stockfish 15.1 at 300 nodes against itself at 200, from the balanced book:

    fastchess -engine cmd=stockfish name=three nodes=300 -engine cmd=stockfish name=two nodes=200
        -each proto=uci tc=inf option.Hash=16 option.Threads=1 -rounds 60 -repeat -games 2 -concurrency 2
        -openings file=alphazero/assets/openings/balanced.epd format=epd order=sequential
        -sprt elo0=0 elo1=20 alpha=0.05 beta=0.05

    Elo: 14.48 +/- 56.36, nElo: 16.14 +/- 62.16
    LOS: 69.45 %, DrawRatio: 48.33 %, PairsRatio: 1.21
    Games: 120, Wins: 58, Losses: 53, Draws: 9, Points: 62.5 (52.08 %)
    Ptnml(0-2): [10, 4, 29, 5, 12], WL/DD Ratio: inf
    LLR: 0.12 (4.1%) (-2.94, 2.94) [0.00, 20.00]
"""

import pytest

from alphazero.cli.playing.match_report import sprt_line
from alphazero.measure.elo import MatchScore, Sprt

SCORE = MatchScore(58, 9, 53, (10, 4, 29, 5, 12))


def test_elo_interval_and_likelihood_of_superiority_are_fastchess_s() -> None:
    estimate = SCORE.elo()
    assert estimate.elo == pytest.approx(14.48, abs=0.005)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(56.36, abs=0.005)
    assert estimate.superiority == pytest.approx(0.6945, abs=0.00005)
    assert SCORE.normalized_elo() == pytest.approx((16.14, 62.16), abs=0.005)
    assert SCORE.share == pytest.approx(0.5208, abs=0.00005)


def test_the_line_of_the_test_is_fastchess_s() -> None:
    assert sprt_line(Sprt(0, 20), SCORE) == "LLR: 0.12 (4.1%) (-2.94, 2.94) [0.00, 20.00]"
