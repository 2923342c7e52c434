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

import itertools
import json
import random
import re
from collections.abc import Iterable

import pytest

from alphazero.cli.playing.match_report import MatchReport, score_line, sprt_line
from alphazero.measure.elo import MatchScore, Sprt
from alphazero.play.matches.game import Ending, FinishedGame, Pairing
from alphazero.play.matches.openings import Opening

SCORE = MatchScore(58, 9, 53, (10, 4, 29, 5, 12))


def test_elo_interval_and_likelihood_of_superiority_are_fastchess_s() -> None:
    estimate = SCORE.elo()
    assert estimate.elo == pytest.approx(14.48, abs=0.005)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(56.36, abs=0.005)
    assert estimate.superiority == pytest.approx(0.6945, abs=0.00005)
    assert SCORE.normalized_elo() == pytest.approx((16.14, 62.16), abs=0.005)
    assert SCORE.share == pytest.approx(0.5208, abs=0.00005)


def test_the_line_of_the_test_is_fastchess_s() -> None:
    assert sprt_line(Sprt(0, 20), SCORE) == "LLR: 0.12 (4.1%) (-2.94, 2.94) [0.00, 20.00] nElo"


# Another match, with -rounds 30 -concurrency 1 -ratinginterval 5: what `three` won, drew and lost, game by
# game with sides by turns, and fastchess's own figures at 10, 20, 40 and 60 games of the same PGN:
# Elo, nElo, LOS, Ptnml and LLR (fastchess commit 74deac2).
GAMES = "+-+=+---++=+-++-=--+-+---++--++--++--+--++++------=-+---+++-"
PRINTED = {
    10: ("34.86 +/- 235.66", "37.04 +/- 215.34", "63.20", [1, 0, 2, 1, 1], "LLR: 0.04 (1.5%)"),
    20: ("17.39 +/- 116.95", "23.53 +/- 152.27", "61.90", [1, 1, 5, 2, 1], "LLR: 0.04 (1.5%)"),
    40: ("-26.11 +/- 74.90", "-38.26 +/- 107.67", "24.30", [3, 1, 13, 2, 1], "LLR: -0.32 (-10.9%)"),
    60: ("-34.86 +/- 79.84", "-39.34 +/- 87.91", "19.02", [7, 2, 15, 2, 4], "LLR: -0.49 (-16.5%)"),
}
NUMBER = r"([+-]?[\d.]+)"


def finished(number: int, result: str) -> FinishedGame:
    first = (number - 1) % 2
    points = {"+": 1.0, "=": 0.5, "-": 0.0}[result]
    pairing = Pairing(number, (number - 1) // 2, first, 1 - first, Opening())
    return FinishedGame(pairing, 1 - points if first else points, Ending.NORMAL, "White mates", (), 0.0)


def lines_of(games: Iterable[FinishedGame], capsys, interval: int = 5) -> list[str]:
    """What a match prints of these games."""
    report = MatchReport(["three", "two"], 60, Sprt(0, 20), interval, [])
    for game in games:
        report.take(game)
    return capsys.readouterr().err.splitlines()


def test_the_lines_on_the_way_have_fastchess_s_figures_of_the_same_games(capsys) -> None:
    games = [finished(number, result) for number, result in enumerate(GAMES, start=1)]
    lines = lines_of(games, capsys)
    for count, (elo, nelo, superiority, pairs, ratio) in PRINTED.items():
        (place,) = (number for number, line in enumerate(lines) if line.startswith(f"{count} games in "))
        found = re.search(
            rf"Elo {NUMBER} \(95 %: {NUMBER} to {NUMBER}\), nElo {NUMBER} \+/- {NUMBER}, "
            rf"LOS {NUMBER}%, .* (\[.*\])$",
            lines[place],
        )
        assert found is not None
        figures = [float(text) for text in found.groups()[:6]]
        own, error = map(float, elo.split(" +/- "))
        expected = [own, *map(float, nelo.split(" +/- ")), float(superiority)]
        assert [figures[0], *figures[3:]] == pytest.approx(expected, abs=0.051)
        half = (figures[2] - figures[1]) / 2
        # With fewer than 30 pairs fastchess's interval holds the truth in less than 95 of 100 matches.
        assert half == pytest.approx(error, abs=0.051) if count == 60 else figures[1] < own < figures[2]
        assert json.loads(found[7]) == pairs
        assert lines[place + 1] == f"{ratio} (-2.94, 2.94) [0.00, 20.00] nElo"
        assert f"Game {count} of 60 (two vs three)" in lines[place - 1]


def test_games_that_end_in_another_order_leave_one_sample_in_every_line(capsys) -> None:
    games = [finished(number, result) for number, result in enumerate(GAMES, start=1)]
    games.sort(key=lambda game: game.pairing.number + random.Random(game.pairing.number).uniform(0, 12))
    summaries = [line for line in lines_of(games, capsys, 1) if not line.startswith("Game ")]
    assert len(summaries) >= 6
    for line, ratio in itertools.pairwise(summaries):
        if line.startswith("LLR"):
            continue
        found = re.fullmatch(
            r"(\d+) games? in (\d+) pairs?: \+(\d+) =(\d+) -(\d+) \(.*\), Elo .*, Ptnml\(0-2\) (.*)",
            line,
        )
        assert found is not None
        wins, draws, losses = (int(found[place]) for place in (3, 4, 5))
        score = MatchScore(wins, draws, losses, tuple(json.loads(found[6])))
        assert int(found[1]) == score.games == 2 * int(found[2]) == 2 * sum(score.pairs)
        assert score_line(score) == line
        assert sprt_line(Sprt(0, 20), score) == ratio


def test_a_verdict_names_the_unit_of_its_test(capsys) -> None:
    for model, unit in (("normalized", "nElo"), ("logistic", "Elo")):
        report = MatchReport(["three", "two"], 400, Sprt(0, 200, model=model), 5, [])
        for number in range(1, 201):
            if not report.take(finished(number, "+")):
                break
        assert f"SPRT: at least 200 {unit} accepted (H1)" in report.to_text()
        assert f"[0.00, 200.00] {unit}\n" in report.to_text()


def test_a_game_without_its_partner_counts_in_no_figure(capsys) -> None:
    report = MatchReport(["three", "two"], 4, None, 5, [])
    for number, result in ((1, "+"), (2, "-"), (3, "+")):
        assert report.take(finished(number, result))
    first, second, third = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"Game 1 of 4 \(three vs two\): 1-0 \{White mates\}, 0 plies; three \+1 =0 -0 \(100\.0%\); "
        r"[\d,]+ games/h, \d\d:\d\d:\d\d left",
        first,
    )
    assert ": 1-0 {White mates}, 0 plies; three +1 =0 -1 (50.0%); " in second
    assert "; three +2 =0 -1 (66.7%); " in third
    assert "2 games in 1 pair: +1 =0 -1 (50.0%)" in report.to_text()
    assert "(1 game whose pairs" in report.to_text()
    assert json.loads(report.to_json())["not_counted"] == 1
