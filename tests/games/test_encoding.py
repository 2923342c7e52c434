import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import chess
import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import ConfigError, GameInputError
from alphazero.games.registry import game_names, get_spec, history_fill, make_line
from tests.support.games.chess_reference import (
    core_move,
    identity,
    policy_text,
    positions_of,
    random_game,
    slow_planes,
    unpack,
    without_double_step,
)

POLICY_SHA256 = "89f7e8b772633e70c06fae4caac5a2858eeeee5c357b19cd355553f79b51b231"  # lc0's table


@dataclass
class Moment:
    """Our line and python-chess's positions with their identity() after some moves of a game."""

    line: _core.ChessLine
    positions: list[chess.Board]
    names: list[str]

    @property
    def board(self) -> chess.Board:
        return self.positions[-1]


def moments_of(game: chess.Board) -> Iterator[Moment]:
    """The start of a game, then the same Moment again after each move."""
    positions = positions_of(game)
    moment = Moment(_core.ChessLine(positions[0].fen()), positions[:1], [identity(positions[0])])
    yield moment
    for move in game.move_stack:
        moment.line.push(core_move(moment.board, move))
        moment.positions.append(positions[len(moment.positions)])
        moment.names.append(identity(moment.board))
        yield moment


@pytest.mark.parametrize("fill", ["no", "fen_only"])
def test_planes_equal_a_slow_encoder_on_random_games(fill: str):
    rng = random.Random(f"planes {fill}")
    seen: Counter[str] = Counter()
    while seen["positions"] < 3000:
        for moment in moments_of(random_game(rng, max_plies=60)):
            known, first, board = len(moment.positions), moment.positions[0], moment.board
            if known > 12 and rng.random() < 0.5:
                continue  # keep the share of short histories up
            expected = slow_planes(moment.positions, moment.names, fill)
            planes = unpack(moment.line.packed(history_fill(fill)))
            np.testing.assert_array_equal(planes, expected, f"{first.fen()} after {known - 1}")
            seen["positions"] += 1
            seen["black"] += not board.turn
            seen["repeated"] += bool(expected[12].all())
            seen["repeated before"] += bool(expected[25].all())
            seen["castling rights"] += bool(board.castling_rights)
            seen["chess960"] += board.chess960
            seen["filled"] += known < 8 and bool(expected[13 * known : 13 * known + 13].any())
            seen["en passant undone"] += known < 8 and first.has_legal_en_passant()
    assert min(seen.values()) >= 30, seen


def test_the_standard_start_is_not_repeated_but_the_same_board_from_a_middle_game_fen_is():
    start = unpack(make_line("chess").packed(history_fill("fen_only")))
    assert start[13:104].sum() == 0
    # Rights differ, so this is no standard start any more.
    other = unpack(
        make_line("chess", chess.STARTING_BOARD_FEN + " w - - 0 1").packed(history_fill("fen_only"))
    )
    np.testing.assert_array_equal(
        other[13:104].reshape(7, 13, 8, 8), np.broadcast_to(other[:13], (7, 13, 8, 8))
    )
    counters = unpack(make_line("chess", chess.STARTING_FEN.replace("0 1", "5 9")).packed())
    assert counters[13:104].sum() == 0, "counters do not make another board (lc0 compares boards)"


def test_an_en_passant_square_shows_the_position_before_the_double_step():
    board = chess.Board("rnbqkbnr/ppp1pppp/8/8/3pP3/5N2/PPPP1PPP/RNBQKB1R b KQkq e3 0 3")
    filled = unpack(make_line("chess", board.fen()).packed(history_fill("no")))
    assert filled[13 + 6, 6, 4] == 1, "their e-pawn is back on its second rank, seen by black: rank 7"
    assert filled[13 + 6, 4, 4] == 0
    assert filled[26:104].sum() == 0, "only one position before is known"
    assert without_double_step(board).piece_at(chess.E2) == chess.Piece.from_symbol("P")


def test_the_halfmove_clock_saturates_at_255():
    for clock, expected in ((99, 99), (255, 255), (256, 255), (300, 255)):
        packed = make_line("chess", f"4k3/8/8/8/8/8/8/4K2R w - - {clock} 200").packed()
        assert packed[-8:].tolist() == [0, 0, 0, 0, 0, expected, 0, 1]


def test_scalars_name_our_rights_first_and_queen_side_first():
    white, black = "r3k3/8/8/8/8/8/8/R3K2R w KQq - 3 9", "r3k3/8/8/8/8/8/8/R3K2R b KQq - 3 9"
    assert make_line("chess", white).packed()[-8:].tolist() == [1, 1, 1, 0, 0, 3, 0, 1]
    assert make_line("chess", black).packed()[-8:].tolist() == [1, 0, 1, 1, 1, 3, 0, 1]


def test_policy_moves_are_lc0s():
    moves = _core.chess_policy_moves()
    assert len(moves) == 1858
    assert hashlib.sha256(",".join(moves).encode()).hexdigest() == POLICY_SHA256
    known = {"g1f3": 159, "e2e4": 322, "e1a1": 97, "e1h1": 103, "e7e8": 1515, "a7a8q": 1792, "h7h8b": 1857}
    assert {move: moves.index(move) for move in known} == known


def test_policy_indices_equal_python_chess_moves_by_name():
    rng = random.Random("policy")
    index_by_name = {name: index for index, name in enumerate(_core.chess_policy_moves())}
    seen: Counter[str] = Counter()
    for _ in range(90):
        for moment in moments_of(random_game(rng, max_plies=80)):
            line, board = moment.line, moment.board
            expected = []
            for move in board.legal_moves:
                index = index_by_name[policy_text(board, move)]
                expected.append(index)
                bits = core_move(board, move)
                assert line.move_to_index(bits) == index, (board.fen(), move)
                assert line.index_to_move(index) == bits, (board.fen(), move)
                seen[f"promotion {move.promotion}"] += move.promotion is not None
                seen["castling"] += board.is_castling(move)
            assert len(set(expected)) == len(expected)
            assert line.legal_indices().tolist() == sorted(expected)
    assert min(seen[f"promotion {piece}"] for piece in range(2, 6)) >= 20
    assert seen["castling"] >= 20


def test_only_moves_of_some_piece_have_an_index():
    line = make_line("chess")
    with_index = {move for move in range(1 << 16) if line.move_to_index(move) >= 0}
    assert len(with_index) == 1858 + 22  # and the knight promotions, which share the plain moves' indices
    assert {line.move_to_index(move) for move in with_index} == set(range(1858))


def test_policy_map_follows_the_73_planes():
    spec = get_spec("chess")
    assert (spec.policy_planes, len(spec.policy_map), len(set(spec.policy_map))) == (73, 1858, 1858)
    moves = _core.chess_policy_moves()
    at = {move: divmod(spec.policy_map[index], 64) for index, move in enumerate(moves)}
    # By hand from the order N NE E SE S SW W NW x 1..7, eight knight jumps, NW N NE x r b q.
    assert at["a1a2"] == (0, 0)
    assert at["e2e4"] == (1, chess.E2)
    assert at["a1h8"] == (13, chess.A1)
    assert at["e1h1"] == (16, chess.E1)
    assert at["h8g8"] == (42, chess.H8)
    assert at["g1f3"] == (63, chess.G1)
    assert at["g1h3"] == (56, chess.G1)
    assert at["b7a8r"] == (64, chess.B7)
    assert at["b7b8q"] == (69, chess.B7)
    assert at["b7c8b"] == (71, chess.B7)
    assert at["b7b8"] == (0, chess.B7), "a knight promotion is the plain move"


def expected_end(moment: Moment) -> str:
    """How python-chess sees the end of the game."""
    board = moment.board
    if not any(board.legal_moves):
        return "WIN" if board.is_check() else "STALEMATE"
    if moment.names.count(moment.names[-1]) >= 3:
        return "REPETITION"
    if board.halfmove_clock >= 100:
        return "FIFTY_MOVES"
    return "INSUFFICIENT_MATERIAL" if board.is_insufficient_material() else "NONE"


def test_repetitions_and_game_end_equal_python_chess_on_random_games():
    rng = random.Random("endings")
    ends: Counter[str] = Counter()
    for _ in range(200):
        keys: dict[str, int] = {}
        for moment in moments_of(random_game(rng, max_plies=70)):
            name = moment.names[-1]
            assert moment.line.repetitions == min(moment.names[:-1].count(name), 2)
            assert str(moment.line) == moment.board.fen(en_passant="legal")
            assert keys.setdefault(name, moment.line.key) == moment.line.key
            outcome, expected = moment.line.outcome(), expected_end(moment)
            assert outcome.termination.name == expected, moment.board.fen()
            assert outcome.value == (-1 if expected == "WIN" else 0)
            assert outcome.over == (expected != "NONE")
            ends[expected] += 1
        assert len(set(keys.values())) == len(keys)
    assert ends["REPETITION"] >= 50 and ends["WIN"] >= 1 and ends["NONE"] >= 5000, ends


@pytest.mark.parametrize(
    ("fen", "moves", "termination"),
    [
        ("7k/5Q2/6K1/8/8/8/8/8 w - - 99 100", "f7g7", "WIN"),  # mate comes before fifty moves
        ("7k/8/6K1/8/8/8/8/5Q2 w - - 99 100", "f1f7", "STALEMATE"),
        ("7k/8/8/8/8/8/8/KQ6 w - - 99 100", "b1b2", "FIFTY_MOVES"),
        ("7k/8/8/8/8/8/8/KQ6 w - - 98 100", "b1b2", "NONE"),
        ("7k/8/8/8/8/8/7n/K7 w - - 99 100", "a1a2", "FIFTY_MOVES"),  # and those before material
        ("7k/8/8/8/8/8/7n/K7 w - - 5 100", "a1a2", "INSUFFICIENT_MATERIAL"),
        (chess.STARTING_FEN, "g1f3 g8f6 f3g1 f6g8 g1f3 g8f6 f3g1 f6g8", "REPETITION"),
        (chess.STARTING_FEN, "g1f3 g8f6 f3g1 f6g8 g1f3 g8f6 f3g1", "NONE"),
        # The king's step costs the rights: the same board, yet another position.
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", "e1f1 e8f8 f1e1 f8e8 e1f1 e8f8 f1e1 f8e8", "NONE"),
        ("4k3/8/8/8/8/8/8/4K2R w - - 0 1", "e1f1 e8f8 f1e1 f8e8 e1f1 e8f8 f1e1 f8e8", "REPETITION"),
    ],
)
def test_games_end_in_this_order(fen: str, moves: str, termination: str):
    line = make_line("chess", fen)
    for move in moves.split():
        line.push_text(move)
    assert line.outcome().termination.name == termination


def test_taking_back_restores_the_line():
    rng = random.Random("pop")
    line = make_line("chess")
    trail = []
    for _ in range(40):
        trail.append((str(line), line.key, line.repetitions, line.packed().tobytes()))
        line.push(rng.choice(line.legal()))
    copy = line.copy()
    for expected in reversed(trail):
        line.pop()
        assert (str(line), line.key, line.repetitions, line.packed().tobytes()) == expected
    assert line.num_plies == 0 and copy.num_plies == 40
    with pytest.raises(IndexError):
        line.pop()


def test_moves_that_are_not_legal_are_refused_by_name():
    line = make_line("chess")
    with pytest.raises(_core.GameError, match="not legal"):
        line.push(0)
    with pytest.raises(_core.GameError, match="'e2e5'"):
        line.push_text("e2e5")
    with pytest.raises(IndexError):
        line.index_to_move(1858)


def test_unknown_names_and_unreadable_starts_are_errors_of_one_line():
    with pytest.raises(ConfigError, match=r"game 'go': .*tictactoe"):
        get_spec("go")
    with pytest.raises(ConfigError, match="history fill 'always'"):
        history_fill("always")
    with pytest.raises(GameInputError) as error:
        make_line("chess", "8/8/8/8/8/8/8/8 w - - 0 1")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", game_names())
def test_specs_are_coherent(name: str):
    spec = get_spec(name)
    line = make_line(name)
    squares = spec.board_height * spec.board_width
    assert len(line.packed()) == spec.packed_bytes
    assert len(spec.scalar_scale) == spec.num_scalar_planes
    assert len(spec.policy_map) == spec.policy_size == len(set(spec.policy_map))
    assert all(0 <= flat < spec.policy_planes * squares for flat in spec.policy_map)
    assert spec.name == name
    assert get_spec(name) is spec
