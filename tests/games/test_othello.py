"""Othello by the core against a slow second program, and what is published of it."""

import random
from collections import Counter

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import GameInputError
from alphazero.cli.main import main
from alphazero.games.registry import get_spec, make_line
from tests.support.games.othello_reference import PASS, SlowOthello

# Leaves by depth from 1, as published (https://www.aartbik.com/strategy.php).
PERFT = (4, 12, 56, 244, 1396, 8200, 55092, 390216, 3005288)
SHORTEST_GAME = "e6 f4 e3 f6 g5 d6 e7 f5 c5"  # x takes every stone with its fifth move


def planes_of(packed: np.ndarray) -> np.ndarray:
    """[4, rank, file] of one packed position."""
    bits = np.unpackbits(packed[:16].reshape(2, 8), axis=1, bitorder="little").reshape(2, 8, 8)
    return np.concatenate([bits, np.broadcast_to(packed[16:, None, None], (2, 8, 8))])


def random_game(rng: random.Random) -> list[int]:
    board, moves = SlowOthello(), []
    while legal := board.moves():
        moves.append(rng.choice(legal))
        board.play(moves[-1])
    return moves


@pytest.mark.parametrize(("depth", "leaves"), list(enumerate(PERFT, start=1)))
def test_the_tree_has_the_published_size(depth: int, leaves: int) -> None:
    assert make_line("othello").perft(depth) == leaves


def test_the_command_counts_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perft", "--game", "othello", "startpos", "6"]) == 0
    shown = capsys.readouterr().out
    assert [line.split(":")[0] for line in shown.splitlines()[:4]] == ["d3", "c4", "f5", "e6"]
    assert "nodes 8200 " in shown


def test_random_games_equal_the_slow_rules() -> None:
    rng, seen = random.Random("othello"), Counter()
    keys: dict[int, str] = {}
    for _ in range(60):
        line, board = make_line("othello"), SlowOthello()
        while True:
            moves, outcome = board.moves(), line.outcome()
            assert line.legal() == moves == line.legal_indices().tolist()
            assert str(line) == board.text() == str(make_line("othello", board.text()))
            assert line.first_player_to_move == (board.turn == "x")
            np.testing.assert_array_equal(planes_of(line.packed()), board.planes())
            assert keys.setdefault(line.key, board.text()) == board.text()
            assert outcome.over == (not moves)
            if not moves:
                lead = board.lead()
                assert outcome.value == (lead > 0) - (lead < 0)
                seen[f"{outcome.termination.name} {outcome.value}"] += 1
                seen["not full"] += len(board.stones) < 64
                break
            assert all(line.index_to_move(line.move_to_index(move)) == move for move in moves)
            move = rng.choice(moves)
            seen["pass"] += move == PASS
            text = line.move_to_text(move)
            assert line.text_to_move(text) == move
            line.push_text(text)
            board.play(move)
    assert len(set(keys.values())) == len(keys)
    assert {"WIN 1", "WIN -1", "BOARD_FULL 0", "pass", "not full"} <= set(seen), seen


def test_a_game_ends_where_one_side_has_no_stone_left() -> None:
    line = make_line("othello")
    for move in SHORTEST_GAME.split():
        line.push_text(move)
    assert " o" in str(line) and "o" not in str(line).split()[0]
    assert line.legal() == [] and line.outcome().value == -1
    assert line.outcome().termination is _core.Termination.WIN


@pytest.mark.parametrize(
    ("board", "termination", "value"),
    [
        ("xxxxxxxx/" * 4 + "oooooooo/" * 3 + "oooooooo x", "BOARD_FULL", 0),
        ("xxxxxxxx/" * 5 + "oooooooo/" * 2 + "oooooooo x", "WIN", 1),
        ("xxxxxxxx/" * 5 + "oooooooo/" * 2 + "oooooooo o", "WIN", -1),
        ("8/8/8/3xx3/3xx3/8/8/8 o", "WIN", -1),
        ("o6o/8/8/3xx3/3xx3/8/8/o6o x", "STALEMATE", 0),
    ],
)
def test_stones_are_counted_where_nobody_can_move(board: str, termination: str, value: int) -> None:
    outcome = make_line("othello", board).outcome()
    assert (outcome.termination.name, outcome.value if value else 0) == (termination, value)


def test_who_cannot_move_passes_and_only_then() -> None:
    with pytest.raises(_core.GameError, match="'pass': "):
        make_line("othello").push_text("pass")
    stuck = make_line("othello", "xxxoooo1/xxxoooox/1oxxxoox/ooxxxxox/1ooxxxxx/ooooxxxx/1ooooxox/ooooooo1 o")
    assert stuck.legal() == [PASS] and stuck.move_to_text(PASS) == "pass" and not stuck.outcome().over
    before = str(stuck)
    stuck.push_text("pass")
    assert str(stuck)[:-1] == before[:-1] and str(stuck)[-1] != before[-1]
    stuck.pop()
    assert str(stuck) == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("8/8/8/3xo3/3ox3/8/8/8", "x or o, who is to move"),
        ("8/8/8/3xo3/3ox3/8/8/8 w", "x or o, who is to move"),
        ("8/8/8/3xo3/3ox3/8/8 x", "expected 8 rows of 8"),
        ("8/8/8/3xo3/3ox3/8/8/9 x", "longer than 8"),
        ("8/8/8/3x4/3ox3/8/8/8 x", "expected stones on d4, e4, d5 and e5"),
        ("", "x or o"),
    ],
)
def test_texts_that_are_no_board_are_refused(text: str, reason: str) -> None:
    with pytest.raises(GameInputError, match=reason):
        make_line("othello", text)


@pytest.mark.parametrize("text", ["i1", "a9", "PASS", "", "a"])
def test_texts_that_are_no_move_are_refused(text: str) -> None:
    with pytest.raises(_core.GameError, match="a1 to h8"):
        make_line("othello").push_text(text)


def test_the_network_has_a_place_for_every_square_and_one_for_the_pass() -> None:
    spec = get_spec("othello")
    assert spec.policy_map == tuple(range(65)) and spec.policy_planes == 2
    assert spec.num_planes == 4 and spec.packed_bytes == 18 and spec.num_symmetries == 8


def encoder_of(games: list[list[int]]) -> _core.OthelloBatchEncoder:
    encoder = _core.OthelloBatchEncoder(1)
    lengths = np.cumsum([0, *map(len, games)]).astype(np.int32)
    results, valid = np.ones(len(games), np.int8), np.ones(len(games), np.bool_)
    no_text, no_start = np.zeros(0, np.uint8), np.zeros(len(games) + 1, np.int32)
    moves = np.concatenate(games).astype(np.uint16)
    encoder.add_shard("made", moves, lengths, results, valid, no_text, no_start)
    return encoder


def places(games: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = [(0, game, ply) for game, moves in enumerate(games) for ply in range(len(moves))]
    return tuple(np.array(column, np.int32) for column in zip(*rows, strict=True))


@pytest.mark.parametrize("symmetry", range(8))
def test_samples_are_turned_with_their_moves_and_passes_stay(symmetry: int) -> None:
    rng = random.Random(symmetry)
    games = [random_game(rng) for _ in range(10)]
    where = places(games)
    encoder, fill = encoder_of(games), _core.HistoryFill.NO
    plain = encoder.encode(*where, fill)
    turned = encoder.encode(*where, fill, 0.0, np.full(len(where[0]), symmetry, np.uint8))
    passes = 0
    for row in range(len(where[0])):
        policies = []
        for packed, offset, index, policy, _, _ in (plain, turned):
            dense = np.full(65, -1.0)
            dense[index[offset[row] : offset[row + 1]]] = policy[offset[row] : offset[row + 1]]
            policies.append((planes_of(packed[row]), dense))
        (planes, shares), (shown, shown_shares) = policies
        expected = np.concatenate([planes, shares[None, :64].reshape(1, 8, 8)])
        expected = np.rot90(expected, -(symmetry & 3), axes=(1, 2))
        expected = expected[:, :, ::-1] if symmetry & 4 else expected
        np.testing.assert_array_equal(
            np.concatenate([shown, shown_shares[None, :64].reshape(1, 8, 8)]), expected
        )
        assert shares[PASS] == shown_shares[PASS]
        passes += shares[PASS] == 1
    assert passes > 0


@pytest.mark.parametrize(
    "moves", [[65], [0xFFFF], [27], [0], [PASS], [20, 20, 21], [PASS, PASS, 19], [44, 29, 29], [0, 63, 7, 56]]
)
def test_stored_moves_that_break_the_rules_do_no_harm(moves: list[int]) -> None:
    with pytest.raises(_core.GameError, match="is not legal"):
        encoder_of([moves]).encode(*places([moves]), _core.HistoryFill.NO)
    offsets, no_start = np.array([0, len(moves)], np.int32), np.zeros(2, np.int32)
    found = _core.find_illegal_othello_game(
        np.array(moves, np.uint16), offsets, np.zeros(0, np.uint8), no_start
    )
    assert found is not None and "is not legal" in found.reason
