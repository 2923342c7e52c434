"""Annotated games: marks and evaluations worked out by hand, and read back by python-chess."""

import gzip
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import chess
import chess.engine
import chess.pgn
import pytest

from alphazero.base.errors import GameInputError
from alphazero.cli.main import main
from alphazero.games.core_types import Line
from alphazero.play.pgn.annotation import Assessment, MoveMark, annotate, judge, pgn_of
from alphazero.play.pgn.reading import games_of_text
from tests.support.evaluation.small_nets import write_small_net

OPERA = """[Event "Paris \\"Opera\\""]
[White "Paul Morphy"]
[Black "Duke Karl / Count Isouard"]
[Result "1-0"]
[Annotator "Fischer"]

1. e4 e5 2. Nf3 d6 3. d4 Bg4 {This is a weak move already. [%clk 0:01:05]} 4. dxe5 Bxf3 5. Qxf3 dxe5 6. Bc4
Nf6 7. Qb3 Qe7 8. Nc3 (8. Qxb7 Qb4+ {and the queens go}) 8... c6 9. Bg5 b5 10. Nxb5! cxb5 11. Bxb5+ Nbd7
12. O-O-O Rd8 13. Rxd7 Rxd7 14. Rd1 Qe6 15. Bxd7+ Nxd7 16. Qb8+!! Nxb8 17. Rd8# 1-0
"""
MATED = '[White "A"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n'


def read(text: str) -> chess.pgn.Game:
    """The game by python-chess alone."""
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None and not game.errors
    return game


def annotated(text: str, assess: Callable[[Line], Assessment]) -> chess.pgn.Game:
    """Annotated, written, read again."""
    (found,) = games_of_text(text)
    annotate(found.game, assess, "net")
    return read(pgn_of(found.game))


def by_ply(*assessments: Assessment) -> Callable[[Line], Assessment]:
    """Those of the positions of a game in order."""
    return lambda line: assessments[line.num_plies]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (0.5, -0.5, None),
        (0.2, -0.125, None),  # 0.075
        (0.25, -0.125, MoveMark.INACCURACY),  # 0.125
        (0.0, 0.1875, MoveMark.INACCURACY),
        (0.0, 0.25, MoveMark.MISTAKE),
        (0.25, 0.125, MoveMark.BLUNDER),  # 0.375
        (-0.5, 0.75, MoveMark.MISTAKE),
        (-1.0, 1.0, None),
        (0.25, -0.5, None),  # better than the search thought
    ],
)
def test_a_move_is_judged_by_the_chances_of_its_side_before_and_after(
    before: float, after: float, found: MoveMark | None
):
    assert judge("e2e4", Assessment(before, None, ("d2d4",)), Assessment(after)) is found
    assert judge("e2e4", Assessment(before, None, ("e2e4",)), Assessment(after)) is None


def test_the_marks_are_those_of_the_pgn_standard():
    """NAGs 6, 2 and 4 (PGN standard, section 10): dubious, poor, very poor."""
    assert [(each.mark, each.nag) for each in MoveMark] == [("??", 4), ("?", 2), ("?!", 6)]


def test_evaluations_are_for_white_and_the_better_line_is_a_variation():
    game = annotated(
        MATED,
        by_ply(
            Assessment(0.1, None, ("e2e4", "e7e5")),
            Assessment(0.05, None, ("e7e5",)),  # f3: 0.15 lost
            Assessment(-0.05, None, ("e2e4", "g8f6", "b1c3")),  # e5: the best
            Assessment(1.0, 1, ("d8h4",)),  # g4: 0.95 lost
            Assessment(-1.0, 0),
        ),
    )
    f3, e5, g4, mate = game.mainline()
    # 90 tan(1.5637541897 q) of q = 0.05 for Black is 7 centipawns (lc0), for White -7.
    assert f3.eval() == chess.engine.PovScore(chess.engine.Cp(-7), chess.WHITE)
    assert e5.eval() == chess.engine.PovScore(chess.engine.Cp(-7), chess.WHITE)
    assert g4.eval() == chess.engine.PovScore(chess.engine.Mate(-1), chess.WHITE)
    assert mate.eval() is None  # as Lichess has it
    assert (f3.nags, e5.nags, g4.nags, mate.nags) == ({6}, set(), {4}, set())
    assert [game.board().san(line.move) for line in game.variations] == ["f3", "e4"]
    better = e5.variation(chess.Move.from_uci("e2e4"))
    assert [node.san() for node in better.mainline()] == ["Nf6", "Nc3"]
    assert better.eval() == chess.engine.PovScore(chess.engine.Cp(-7), chess.WHITE)
    assert game.headers["Annotator"] == "alphazero net"


def test_what_the_game_has_is_kept_and_a_second_annotation_replaces_evaluations_alone():
    original, game = read(OPERA), OPERA
    for chances in (0.5, 0.4):
        # Every position looks good for the side to move, so that every move is a blunder: even 8. Nc3.
        game = str(annotated(game, partial(always, chances)))
    again = read(game)
    assert list(again.mainline_moves()) == list(original.mainline_moves())
    expected = {**original.headers, "Annotator": "Fischer; alphazero net"}
    assert dict(again.headers) == expected
    nodes, before = list(again.mainline()), list(original.mainline())
    assert nodes[5].comment.startswith("This is a weak move already. [%clk 0:01:05]")
    assert nodes[5].clock() == before[5].clock() == 65
    assert all(node.comment.count("[%eval") == 1 for node in nodes[:-1])
    # 0.4 for the other side: 90 tan(1.5637541897 * 0.4) = 65.00 centipawns.
    assert nodes[0].eval().white() == chess.engine.Cp(-65)
    assert nodes[18].nags == {chess.pgn.NAG_GOOD_MOVE} and nodes[30].nags == {chess.pgn.NAG_BRILLIANT_MOVE}
    assert sum(4 in node.nags for node in nodes) > 20
    assert nodes[14].parent.variations[1].san() == "Qxb7"
    assert nodes[14].parent.variations[1].variations[0].comment == "and the queens go"
    assert all(len(node.parent.variations) <= 3 for node in nodes)


def always(chances: float, line: Line) -> Assessment:
    """These, with any legal move, until mate."""
    moves = line.legal()
    return Assessment(chances, None, (line.move_to_text(moves[0]),)) if moves else Assessment(-1.0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[Variant "Atomic"]\n\n1. e4 e5 *\n', "a board of atomic: expected chess"),
        ('[FEN "8/8/8/8/8/8/8/K7 w - - 0 1"]\n\n*\n', "king"),
    ],
)
def test_a_game_of_other_rules_is_refused(text: str, message: str):
    with pytest.raises(GameInputError, match=message):
        annotated(text, lambda line: Assessment(0.0))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small chess network."""
    return write_small_net(tmp_path_factory.mktemp("net") / "small.pt", "chess")


BROKEN = '[White "B"]\n\n1. e4 e5 2. Ke3 *\n'


def test_games_are_written_and_broken_ones_are_named_with_file_and_line(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    games = tmp_path / "games.pgn.gz"
    games.write_bytes(gzip.compress(f"{MATED}\n{BROKEN}\n{OPERA}".encode()))
    assert main(["analyse", "--weights", net, "--pgn", str(games), "--simulations", "60"]) == 0
    said = capsys.readouterr()
    assert f"{games}:5: game 2, " in said.err and "san: 'Ke3'" in said.err
    assert "1 game of 3 left" in said.err
    assert "game 1, A - ?: 4 plies, " in said.err
    file = io.StringIO(said.out)
    mated, opera = (chess.pgn.read_game(file) for _ in range(2))
    assert chess.pgn.read_game(file) is None
    *_, g4, mate = mated.mainline()
    assert g4.eval() == chess.engine.PovScore(chess.engine.Mate(-1), chess.WHITE) and 4 in g4.nags
    assert mate.eval() is None
    assert sum(node.eval() is not None for node in opera.mainline()) == 32
    assert opera.headers["Annotator"] == "Fischer; alphazero small.pt (60 simulations)"
    # 16. Qb8+ leaves one move, and then 17. Rd8#.
    assert [node.eval().white() for node in list(opera.mainline())[30:32]] == [chess.engine.Mate(1)] * 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pgn", "none.pgn"], "none.pgn: cannot read: No such file"),
        (["--pgn", "."], "this is a directory; expected a PGN file"),
        (["--pgn", "broken.pgn"], "broken.pgn: no game could be annotated, of 1"),
        (["--pgn", "text.pgn"], "text.pgn: no game could be annotated, of 1"),
        (["--pgn", "mated.pgn", "--json"], "--json: not with --pgn"),
    ],
)
def test_a_wrong_file_or_flag_is_one_line(
    net: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    for name, text in (("mated", MATED), ("broken", BROKEN), ("text", "nothing\n")):
        (tmp_path / f"{name}.pgn").write_text(text)
    assert main(["analyse", "--weights", net, "--simulations", "2", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    last = said.err.splitlines()[-1]
    assert message in last and last.startswith("alphazero: error: ")


def test_annotating_without_a_search_is_refused(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["analyse", "--weights", net, "--pgn", "x.pgn"]) == 2
    assert "--pgn: expected a search" in capsys.readouterr().err


def test_chess960_games_keep_their_moves(net: str, shared_data: Path, capsys: pytest.CaptureFixture[str]):
    games = shared_data / "pgn_small" / "cutechess-fischerrandom.pgn"
    assert main(["analyse", "--weights", net, "--pgn", str(games), "--simulations", "1"]) == 0
    ours = io.StringIO(capsys.readouterr().out)
    with games.open() as theirs:
        for _ in range(4):
            one, other = chess.pgn.read_game(theirs), chess.pgn.read_game(ours)
            assert not other.errors and list(one.mainline_moves()) == list(other.mainline_moves())
            assert [node.clock() for node in one.mainline()] == [node.clock() for node in other.mainline()]
