"""Boards of every game: moves as people write them, drawings, how games end."""

import random

import chess
import pytest

import alphazero as az

CASTLING = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
CHESS_960 = "4k3/8/8/8/8/8/8/1R2K1R1 w GB - 0 1"
TWO_KNIGHTS = "4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1"
PAWN_AND_BISHOP = "4k3/8/8/8/1B6/2p5/1P6/4K3 w - - 0 1"
PROMOTION = "8/P3k3/8/8/8/8/8/4K3 w - - 0 1"


@pytest.mark.parametrize(
    ("fen", "text", "uci"),
    [
        (chess.STARTING_FEN, "e4", "e2e4"),
        (chess.STARTING_FEN, "e2e4", "e2e4"),
        (chess.STARTING_FEN, "E2E4", "e2e4"),
        (chess.STARTING_FEN, " nf3 ", "g1f3"),
        (chess.STARTING_FEN, "Nf3+!?", "g1f3"),
        (CASTLING, "O-O", "e1g1"),
        (CASTLING, "0-0-0", "e1c1"),
        (CASTLING, "o-o", "e1g1"),
        (CASTLING, "e1h1", "e1g1"),
        (CHESS_960, "O-O", "e1g1"),
        (TWO_KNIGHTS, "Nbd2", "b1d2"),
        (TWO_KNIGHTS, "nfd2", "f3d2"),
        (PROMOTION, "a8=Q", "a7a8q"),
        (PROMOTION, "a8Q", "a7a8q"),
        (PROMOTION, "a7a8n", "a7a8n"),
    ],
)
def test_chess_moves_as_people_write_them(fen, text, uci):
    board = az.Board("chess", fen, [text])
    expected = chess.Board(fen, chess960=True)
    expected.push(expected.parse_uci(uci))
    assert board.fen == expected.fen(en_passant="legal")


@pytest.mark.parametrize(
    ("fen", "text", "told"),
    [
        (chess.STARTING_FEN, "Nf6", "'Nf6': no legal move here; did you mean Nf3?"),
        (chess.STARTING_FEN, "e2e5", "'e2e5': no legal move here; did you mean e2e4?"),
        (chess.STARTING_FEN, "", "'': no legal move here; expected a legal move, such as "),
        (chess.STARTING_FEN, "0000", "'0000': no legal move here"),
        (chess.STARTING_FEN, "\x00\U0001f600" * 50, "no legal move here"),
        (TWO_KNIGHTS, "Nd2", "'Nd2': is Nbd2 or Nfd2; expected one of them"),
    ],
)
def test_what_is_no_move_is_one_line_with_the_nearest_one(fen, text, told):
    with pytest.raises(az.AlphaZeroError) as caught:
        az.Board("chess", fen, [text])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "uci"), [("bxc3", "b2c3"), ("Bxc3", "b4c3")])
def test_case_decides_where_it_must(text, uci):
    assert az.Board("chess", PAWN_AND_BISHOP, [text]).moves == [uci]


def test_san_of_random_games_is_that_of_python_chess():
    generator = random.Random(3)
    board, other = az.Board(), chess.Board()
    while not board.is_over and len(other.move_stack) < 120:
        move = generator.choice(board.legal_moves)
        assert board.san(move) == other.san(chess.Move.from_uci(move))
        assert board.copy().legal_moves == board.legal_moves
        board.push(board.san(move))
        other.push_uci(move)
    assert board.fen == other.fen(en_passant="legal")


@pytest.mark.parametrize("game", az.game_names())
def test_a_game_to_its_end_and_back(game):
    generator = random.Random(1)
    board = az.Board(game)
    while not board.is_over:
        board.push(generator.choice(board.legal_moves))
    assert board.result in ("1-0", "0-1", "1/2-1/2")
    assert board.termination
    assert board.legal_moves == []
    with pytest.raises(az.AlphaZeroError, match=r"is over|no legal"):
        board.push("e4")
    again = az.Board(game, moves=board.moves)
    assert again.fen == board.fen
    for move in reversed(again.moves):
        assert again.pop() == move
    assert again.fen == az.Board(game).fen
    with pytest.raises(az.AlphaZeroError, match="take back"):
        again.pop()


@pytest.mark.parametrize("game", az.game_names())
def test_startpos_is_the_start_of_every_game(game):
    board = az.Board(game, "startpos")
    assert board.start is None and board.fen == az.Board(game).fen


def test_drawings():
    plain = az.Style(unicode=False)
    assert az.Board().draw(plain).splitlines()[0] == "8 r n b q k b n r"
    assert az.Board().draw(plain).splitlines()[-1] == "  a b c d e f g h"
    flipped = az.Board(moves=["e4"]).draw(az.Style(unicode=False, flipped=True)).splitlines()
    assert flipped[0] == "1 R N B K Q B N R"
    assert flipped[3] == "4 . . . P . . . ."
    four = az.Board("connect4", moves=["4", "4", "1"]).draw(az.Style(unicode=False, flipped=True))
    assert four.splitlines()[-3:] == ["  . . . o . . .", "  x . . x . . .", "  1 2 3 4 5 6 7"]
    othello = az.Board("othello").draw(plain).splitlines()
    assert othello[3:5] == ["5 . . . x o . . .", "4 . . . o x . . ."]
    assert "\N{BLACK CHESS KING}" in str(az.Board())


def test_colours_show_the_last_move():
    before, after = az.Board(), az.Board(moves=["e4"])
    style = az.Style(colours=True)
    assert "\x1b[48;5;108" not in before.draw(style)
    assert after.draw(style).count("\x1b[48;5;108") == 2
    assert all(line.endswith("\x1b[0m") for line in after.draw(style).splitlines()[:-1])


@pytest.mark.parametrize("text", ["Nce7", "Nc6e7", "Ne7", "ne7", "c6e7"])
def test_more_of_a_moves_origin_than_san_needs_is_read(text: str):
    """The knight of d5 is pinned, so SAN is Ne7; programs that do not look at pins write Nce7."""
    board = az.Board("chess", "r1bq1b1r/ppp3pp/2n1k3/3np3/2B5/2N2Q2/PPPP1PPP/R1B1K2R b KQ - 3 8")
    board.push(text)
    assert board.moves == ["c6e7"]
