"""Random games and damaged FENs on which the core and python-chess must say the same."""

import contextlib
import multiprocessing
import os
import random
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero._core import ChessPosition, GameError, chess_random_playout

# Starts whose random games end in all ways the rules know, and promote, castle and capture en passant.
ENDGAMES = (
    "8/4P1k1/8/8/8/8/1p2K3/8 w - - 0 1",
    "8/2k5/8/8/8/8/5Q2/4K3 w - - 0 1",
    "4k3/8/8/8/8/8/3R4/4K3 w - - 40 60",
    "8/5k2/8/3n4/8/2B5/8/4K3 w - - 0 1",
    "8/5k2/8/3b4/8/2B5/4K3/6b1 w - - 90 100",
    "8/5k2/3n4/8/8/2B5/4K1N1/8 w - - 95 100",
    "4k3/2p1p1p1/8/1P1P1P1P/p1p1p1p1/8/1P1P1P1P/4K3 w - - 0 1",
    "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
    "k7/2K5/8/8/8/8/7P/8 w - - 0 1",
    "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 w - - 0 1",
    "4k3/p1p1p1p1/8/1P1P1P1P/p1p1p1p1/8/1P1P1P1P/4K3 b - - 0 1",
    "r3k2r/pPpp2pP/8/8/8/8/PpPP2Pp/R3K2R w KQkq - 0 1",
    "1rk3r1/pppppppp/8/8/8/8/PPPPPPPP/R1K4R b HAgb - 0 1",
    "2k5/P1P4P/8/8/8/8/p1p4p/2K5 b - - 0 1",
    "1r2k1r1/8/8/8/8/8/8/R2K3R w HAgb - 0 1",
    "7k/5K2/6R1/8/8/8/8/8 w - - 97 120",
    "k7/P7/2K5/8/8/8/8/8 w - - 0 1",
    "5k2/5P2/4K3/8/8/8/8/8 w - - 0 1",
    "7k/8/5K2/6Q1/8/8/8/8 w - - 0 1",
)
MAX_PLIES = 150
# Positions compared after a game has ended by repetition, fifty moves or material (programs play on).
MAX_POSITIONS_AFTER_END = 8


def start_fen(rng: random.Random) -> str:
    """The standard start, a Chess960 start or an endgame, a third each."""
    kind = rng.randrange(3)
    if kind == 0:
        return chess.STARTING_FEN
    if kind == 1:
        return chess.Board.from_chess960_pos(rng.randrange(960)).fen()
    return rng.choice(ENDGAMES)


def end_by_python_chess(board: chess.Board, has_move: bool) -> str:
    """How the game has ended, in this program's order, as python-chess sees it; 'none' if it goes on."""
    if not has_move:
        return "checkmate" if board.is_check() else "stalemate"
    if board.is_repetition(3):
        return "threefold"
    if board.halfmove_clock >= 100:
        return "fifty moves"
    return "insufficient material" if board.is_insufficient_material() else "none"


def end_by_core(position: ChessPosition, has_move: bool, times_seen: int) -> str:
    """The same as the core sees it; `times_seen` counts this position's key in the game, now included."""
    if not has_move:
        return "checkmate" if position.in_check() else "stalemate"
    if times_seen >= 3:
        return "threefold"
    if position.halfmove_clock >= 100:
        return "fifty moves"
    return "insufficient material" if position.insufficient_material() else "none"


def kind_of(board: chess.Board, move: chess.Move) -> str:
    """What is special about a move."""
    if move.promotion:
        return "promotion"
    if board.is_en_passant(move):
        return "en passant"
    return "castling" if board.is_castling(move) else "other move"


def compare_position(board: chess.Board, position: ChessPosition) -> None:
    """Legal moves, check and FEN."""
    ours = position.legal_uci(chess960=True)
    assert sorted(ours) == sorted(move.uci() for move in board.legal_moves), board.fen()
    assert position.in_check() == board.is_check(), board.fen()
    assert position.fen() == board.fen()


def compare_move(board: chess.Board, position: ChessPosition, move: int) -> chess.Move:
    """SAN both ways and UCI of one legal move, which is returned as python-chess's."""
    theirs = chess.Move.from_uci(position.uci(move, chess960=True))
    san = board.san(theirs)
    assert position.san(move) == san, board.fen()
    assert position.parse_san(san) == move, (san, board.fen())
    assert position.parse_uci(position.uci(move)) == move, board.fen()
    return theirs


def choose_move(
    rng: random.Random, board: chess.Board, position: ChessPosition, earlier: list[int]
) -> int | None:
    """A random move, more often than by chance a special one or the way back; None if there is none."""
    moves = position.legal_moves()
    if not moves:
        return None
    favourite = rng.randrange(4)
    preferred: list[int] = []
    if favourite == 0:
        rare = [*board.generate_legal_ep(), *board.generate_castling_moves()]
        preferred = [position.parse_uci(move.uci()) for move in rare] or [m for m in moves if m >> 12]
    elif favourite == 1 and len(earlier) >= 2:
        back = earlier[-2] >> 6 | (earlier[-2] & 63) << 6
        preferred = [move for move in moves if move == back]
    return rng.choice(preferred or moves)


def compare_game(rng: random.Random, fen: str, tally: Counter[str]) -> None:
    """One random game from `fen`, position by position; what happened is counted in `tally`."""
    board = chess.Board(fen, chess960=True)
    position = ChessPosition(fen)
    seen: Counter[int] = Counter()
    key_of: dict[object, int] = {}
    moves: list[int] = []
    num_after_end = 0
    while len(moves) < MAX_PLIES and num_after_end < MAX_POSITIONS_AFTER_END:
        compare_position(board, position)
        seen[position.key] += 1
        key_of.setdefault(board._transposition_key(), position.key)
        move = choose_move(rng, board, position, moves)
        end = end_by_python_chess(board, move is not None)
        assert end_by_core(position, move is not None, seen[position.key]) == end, board.fen()
        num_after_end += end != "none"
        tally.update({"positions": 1, end: 1, "check": board.is_check()})
        tally["en passant possible"] += board.has_legal_en_passant()
        if move is None:
            break
        theirs = compare_move(board, position, move)
        tally[kind_of(board, theirs)] += 1
        board.push(theirs)
        position.push(move)
        moves.append(move)
    # Equal keys exactly where python-chess sees equal positions.
    assert len(key_of) == len(set(key_of.values())) == len(seen)


def compare_games(seed: int, num_positions: int) -> Counter[str]:
    """Random games until `num_positions` are compared."""
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    while tally["positions"] < num_positions:
        compare_game(rng, start_fen(rng), tally)
    return tally


def require_everything_happened(tally: Counter[str]) -> None:
    """A comparison that met no promotion says nothing about promotions."""
    ends = ("checkmate", "stalemate", "threefold", "fifty moves", "insufficient material")
    for event in ("check", "promotion", "en passant", "castling", *ends):
        assert tally[event] > 0, event


def test_10_000_random_positions_agree_with_python_chess():
    tally = compare_games(seed=1, num_positions=10_000)
    require_everything_happened(tally)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_random_positions_agree_with_python_chess(capsys: pytest.CaptureFixture[str]):
    num_chunks = 40
    start_s = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        chunks = pool.map(compare_games, range(100, 100 + num_chunks), [1_000_000 // num_chunks] * num_chunks)
        tally = sum(chunks, Counter[str]())
    assert tally["positions"] >= 1_000_000
    require_everything_happened(tally)
    with capsys.disabled():
        print(f"\n{time.perf_counter() - start_s:.0f} s: {dict(tally.most_common())}")


def test_san_of_every_legal_move_agrees_with_python_chess():
    rng = random.Random(2)
    num_moves = 0
    for _ in range(300):
        board = chess.Board(start_fen(rng), chess960=True)
        position = ChessPosition(board.fen())
        for move in chess_random_playout(rng.getrandbits(64), rng.randrange(120), board.fen()):
            board.push(chess.Move.from_uci(position.uci(move, chess960=True)))
            position.push(move)
        for move in position.legal_moves():
            compare_move(board, position, move)
            num_moves += 1
    assert num_moves > 3000


REFUSED = (
    chess.STATUS_EMPTY
    | chess.STATUS_NO_WHITE_KING
    | chess.STATUS_NO_BLACK_KING
    | chess.STATUS_TOO_MANY_KINGS
    | chess.STATUS_TOO_MANY_WHITE_PIECES
    | chess.STATUS_TOO_MANY_BLACK_PIECES
    | chess.STATUS_TOO_MANY_WHITE_PAWNS
    | chess.STATUS_TOO_MANY_BLACK_PAWNS
    | chess.STATUS_PAWNS_ON_BACKRANK
    | chess.STATUS_OPPOSITE_CHECK
)


def readable_by_python_chess(fen: str) -> chess.Board | None:
    """The board if python-chess reads the text and finds a position that can be played."""
    try:
        board = chess.Board(fen, chess960=True)
    except ValueError:
        return None
    return None if board.status() & REFUSED or needs_more_than_8_pawns(board) else board


def needs_more_than_8_pawns(board: chess.Board) -> bool:
    """Whether a side has more than eight pawns could become; python-chess plays such positions."""
    at_start = {chess.KNIGHT: 2, chess.BISHOP: 2, chess.ROOK: 2, chess.QUEEN: 1}
    for color in chess.COLORS:
        promoted = sum(max(0, len(board.pieces(piece, color)) - number) for piece, number in at_start.items())
        if promoted + len(board.pieces(chess.PAWN, color)) > 8:
            return True
    return False


@st.composite
def odd_fens(draw: st.DrawFn) -> str:
    """FENs of random positions with a board letter, the castling rights or the en passant square changed."""
    fen = draw(st.sampled_from((chess.STARTING_FEN, *ENDGAMES)))
    position = ChessPosition(fen)
    for move in chess_random_playout(draw(st.integers(0, 2**32)), draw(st.integers(0, 40)), fen):
        position.push(move)
    board, turn, castling, en_passant, *counters = position.fen().split()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(board) - 1))
        board = board[:at] + draw(st.sampled_from("pnbrqkPNBRQK12345678/x")) + board[at + 1 :]
    if draw(st.booleans()):
        castling = draw(st.text("KQABCDEFGHkqabcdefgh-", min_size=1, max_size=5))
    if draw(st.booleans()):
        en_passant = draw(st.text("abcdefgh-123456789", min_size=1, max_size=2))
    turn = draw(st.sampled_from(("w", "b", turn)))
    return " ".join([board, turn, castling, en_passant, *counters])


@settings(max_examples=1500, deadline=None)
@given(odd_fens())
def test_odd_fens_are_read_and_refused_as_by_python_chess(fen: str):
    board = readable_by_python_chess(fen)
    if board is None:
        with pytest.raises(GameError):
            ChessPosition(fen)
        return
    position = ChessPosition(fen)
    if board.status() & chess.STATUS_INVALID_EP_SQUARE:
        board.ep_square = None  # python-chess keeps it, and would capture a pawn that is not there
    if board.status() & chess.STATUS_IMPOSSIBLE_CHECK:
        return  # no game leads there; the two may differ about en passant out of a double check
    compare_position(board, position)
    assert position.insufficient_material() == board.is_insufficient_material()


@settings(max_examples=1000, deadline=None)
@given(st.text(max_size=100))
def test_arbitrary_text_is_no_position_and_raises_game_error(text: str):
    with pytest.raises(GameError):
        ChessPosition(text)


@settings(max_examples=1000, deadline=None)
@given(st.text("NBRQKPabcdefgh12345678xO0-+#=!?()", max_size=8), st.integers(0, 2**32))
def test_san_that_python_chess_reads_means_the_same_move(text: str, seed: int):
    position = ChessPosition()
    board = chess.Board(chess960=True)
    for move in chess_random_playout(seed, seed % 60):
        board.push(chess.Move.from_uci(position.uci(move, chess960=True)))
        position.push(move)
    texts = [text] + [damage(board.san(move), text) for move in board.legal_moves]
    for candidate in texts:
        try:
            theirs = board.parse_san(candidate)
        except ValueError:
            continue
        if theirs:
            assert position.uci(position.parse_san(candidate), chess960=True) == theirs.uci(), candidate


def damage(san: str, noise: str) -> str:
    """SAN with one letter of `noise` put in where its length says."""
    at = len(noise) % (len(san) + 1)
    return san[:at] + noise[:1] + san[at:]


@settings(max_examples=1000, deadline=None)
@given(st.text(max_size=12))
def test_arbitrary_text_is_a_legal_move_or_raises_game_error(text: str):
    position = ChessPosition()
    legal = set(position.legal_moves())
    for parse in (position.parse_san, position.parse_uci):
        with contextlib.suppress(GameError):
            assert parse(text) in legal
