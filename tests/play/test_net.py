"""Networks from Python: what they say of positions, what a search finds."""

import json
import random
import re

import chess
import chess.variant
import numpy as np
import pytest
import torch

import alphazero as az


@pytest.fixture(scope="module")
def net() -> az.Net:
    return az.new_net("chess", blocks=1, filters=8, value_hidden=8, moves_left=True, seed=1)


@pytest.fixture(scope="module")
def four() -> az.Net:
    return az.new_net("connect4", blocks=1, filters=8, value_hidden=8)


def test_maia_says_what_lc0_says_of_it(shared_data):
    net = az.load(shared_data / "lc0" / "maia-1500.pb.gz", device="cpu")
    entries = json.loads((shared_data / "lc0" / "maia-1500.reference.json").read_text())[:8]
    found = net.evaluate_batch([(entry["start_fen"], entry["moves"]) for entry in entries], fill="no")
    for entry, said in zip(entries, found, strict=True):
        assert said.position.split()[:4] == entry["fen"].split()[:4]
        assert said.value == pytest.approx(entry["value"], abs=2e-3)


def test_one_position_in_every_way_to_name_it(net):
    moves = ["e4", "e5", "Nf3"]
    board = az.Board(moves=moves)
    first = net.evaluate(moves=moves)
    others = net.evaluate_batch([board, (None, moves), (None, ["e2e4", "e7e5", "g1f3"])])
    assert [other.policy.keys() for other in others] == [first.policy.keys()] * 3
    for other in others:
        assert other.wdl == pytest.approx(first.wdl, abs=1e-6)
    assert net.evaluate(board.fen).position == first.position
    assert net.evaluate(board.fen).wdl != first.wdl  # the same position without its history
    assert set(first.policy) == set(board.legal_moves)
    assert sum(first.policy.values()) == pytest.approx(1)
    assert sum(first.wdl) == pytest.approx(1)
    assert first.best == max(first.policy, key=first.policy.__getitem__)
    assert first.value == first.wdl[0] - first.wdl[2]
    assert first.moves_left is not None


def test_boards_of_python_chess_are_taken_with_their_history(net):
    generator = random.Random(5)
    starts = [
        None,
        "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 5 20",
        "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
    ]
    boards, pairs = [], []
    for start in [*starts, *(chess.Board.from_chess960_pos(number).fen() for number in (0, 300, 959))]:
        board = chess.Board(start or chess.STARTING_FEN, chess960=True)
        while len(board.move_stack) < 30 and any(board.legal_moves):
            castling = [move for move in board.legal_moves if board.is_castling(move)]
            board.push(generator.choice(castling or list(board.legal_moves)))
        boards.append(board)
        pairs.append((start, [move.uci() for move in board.move_stack]))
        assert net.evaluate(board).position == board.fen()
    one_by_one = [net.evaluate(*pair) for pair in pairs]
    for found, expected in zip(net.evaluate_batch(boards), one_by_one, strict=True):
        assert found.wdl == pytest.approx(expected.wdl, abs=1e-6)
        assert found.policy == pytest.approx(expected.policy, abs=1e-6)
    last = boards[0]
    assert net.evaluate(last).wdl != net.evaluate(last.fen()).wdl  # the same position without its history
    move = next(iter(last.legal_moves))
    after = last.copy()
    after.push(move)
    assert net.evaluate(last, [move]) == net.evaluate(after)
    found = net.search(last, simulations=20)
    assert last.parse_san(found.best.san) == chess.Move.from_uci(found.best.text)
    assert net.board(after).moves[-1] == move.uci()


def test_a_python_chess_board_past_a_draw_is_evaluated(net):
    board = chess.Board()
    for uci in ["g1f3", "g8f6", "f3g1", "f6g8"] * 3:
        board.push_uci(uci)
    assert board.can_claim_threefold_repetition()
    board.push_uci("e2e4")
    assert net.evaluate(board).position == board.fen()


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (5, "a position of type int: expected a text, an az.Board or a chess.Board"),
        (b"startpos", "a position of type bytes"),
        (["e4"], "a position of type list"),
        (("startpos",), "a position of type tuple"),
        (chess.variant.AtomicBoard(), "a board of atomic: expected chess"),
        (chess.Board(None), "white has 0 kings"),
        ((None, [7]), "a move of type int: expected a text or a chess.Move"),
        ((None, [chess.Move.null()]), "'0000': no legal move here"),
    ],
)
def test_another_position_is_an_error_of_one_line(net, position, message):
    for call in (net.evaluate, net.search, lambda one: net.evaluate_batch([one])):
        with pytest.raises(az.AlphaZeroError, match=re.escape(message)) as refused:
            call(position)
        assert "\n" not in str(refused.value)


def test_a_chess_board_is_nothing_for_another_game(four):
    with pytest.raises(az.AlphaZeroError, match=r"type Board: .*connect4"):
        four.evaluate(chess.Board())


def test_a_snapshot_prints_in_a_line_with_san(net, four):
    found = net.search(moves=["f3", "e5", "g4"], simulations=200)
    assert (found.best.san, found.best.pv_san) == ("Qh4#", ["Qh4#"])
    assert repr(found) == f"Snapshot({found.position!r}: 1 node, mate 1, Qh4#)"
    assert repr(found.best) == "MoveReport(Qh4#: 0 visits, mate 1)"
    wide = repr(net.search(simulations=300))
    assert "\n" not in wide and len(wide) < 150
    assert four.search(simulations=20).best.san in "1234567"


def test_more_positions_than_a_batch_holds(four):
    boards = [az.Board("connect4", moves=[str(1 + number % 7)]) for number in range(300)]
    found = four.evaluate_batch(boards)
    assert len(found) == 300
    assert found[7].wdl == pytest.approx(found[0].wdl, abs=1e-6)
    assert found[0].moves_left is None


def test_a_file_of_its_own_gives_the_same_network(net, tmp_path):
    net.save(tmp_path / "net.pt")
    again = az.load(tmp_path / "net.pt")
    assert again.evaluate() == net.evaluate()
    assert "chess 1x8" in repr(again)


def test_a_search_finds_and_proves_a_mate(net):
    found = net.search("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", simulations=200)
    assert (found.best.text, found.best.mate) == ("a1a8", 1)
    found = net.search(moves=["f3", "e5", "g4"], simulations=200, lines=1)
    assert found.best.pv_texts == ("d8h4",)


def test_a_search_is_a_function_of_its_arguments(four):
    first = four.search(moves=["4"], simulations=60)
    four.search(moves=["4", "4"], simulations=30)
    again = four.search(moves=["4"], simulations=60)
    assert [(move.text, move.visits) for move in first.moves] == [
        (move.text, move.visits) for move in again.moves
    ]
    assert first.nodes == 60


def test_time_that_is_over_at_once_leaves_the_networks_first_answer(four):
    found = four.search(seconds=1e-6)
    assert found.best is not None
    assert found.nodes >= 1


def test_a_search_sees_weights_that_were_trained_since(four):
    net = az.new_net("connect4", blocks=1, filters=8, value_hidden=8)
    before = net.search(simulations=20)
    with torch.no_grad():
        for parameter in net.module.value.parameters():
            parameter.add_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    net.refresh()
    assert net.search(simulations=20).wdl != before.wdl


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda net: net.evaluate("nonsense"), "nonsense"),
        (lambda net: net.evaluate(moves=["e5"]), "'e5': no legal move here"),
        (lambda net: net.evaluate("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"), "no legal move, the game is over"),
        (lambda net: net.evaluate(az.Board("othello")), "a board of othello: the network plays chess"),
        (lambda net: net.search(moves=["f3", "e5", "g4", "Qh4"]), "no legal move, the game is over"),
        (lambda net: net.search(simulations=0), "simulations 0: expected at least 1"),
        (lambda net: net.search(seconds=float("nan")), "seconds nan: expected a number above 0"),
        (lambda net: az.load("nowhere.pt"), "az.load nowhere.pt: no such file or directory; expected"),
        (lambda net: az.load("nowhere.pt", device="tpu"), "device 'tpu': expected auto, cpu or cuda"),
        (lambda net: az.new_net("chess", blocs=3), "'blocs': no such setting; did you mean blocks?"),
        (lambda net: az.new_net("chess", blocks=0), "--blocks: 0: expected"),
    ],
)
def test_what_cannot_be_is_one_line(net, call, told):
    with pytest.raises(az.AlphaZeroError) as caught:
        call(net)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_are_the_movers(four):
    for moves in (["1", "2", "1", "2", "1", "2"], ["1", "2", "1", "2", "1", "2", "7"]):
        found = four.search(moves=moves, simulations=100)
        assert found.best.text == ("1" if len(moves) % 2 == 0 else "2")
        assert found.best.proven == 1
        assert found.best.q == 1
    assert np.isclose(sum(found.wdl), 1)
