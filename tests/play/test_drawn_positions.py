"""Positions that count as drawn and leave a move are analysed whoever asks, and the moves after them."""

import contextlib
import io
import json
from pathlib import Path

import chess.pgn
import pytest

import alphazero as az
from alphazero.cli.main import main
from alphazero.games.registry import make_line
from alphazero.network.inference.purpose import evaluator_for_forest
from alphazero.play.analysis import AnalysisServer, QueryReader
from alphazero.play.net import Net
from alphazero.play.pgn.annotation import assess
from alphazero.search.tree_search import SearchLimits, TreeSettings
from tests.support.evaluation.small_nets import write_small_net

SHUFFLE = ["g1f3", "g8f6", "f3g1", "f6g8"] * 2
SETTINGS = TreeSettings(minibatch_size=1, in_flight=1)
DRAWN = [
    (chess.STARTING_FEN, SHUFFLE),  # the third time
    (chess.STARTING_FEN, [*SHUFFLE, "e2e4", "e7e5"]),
    ("4k3/8/8/8/8/8/8/R3K3 w - - 99 90", ["a1a2"]),
    ("4k3/8/8/8/8/8/8/R3K3 w - - 99 90", ["a1a2", "e8d8"]),
    ("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1", ["e1e2"]),  # bare kings
]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_net(tmp_path_factory.mktemp("weights") / "net.pt", "chess")


@pytest.fixture(scope="module")
def net(weights: str) -> Net:
    return az.load(weights, device="cpu")


def served(net: Net, simulations: int, fen: str, moves: list[str]) -> dict:
    query = {"id": "a", "fen": fen, "moves": moves, "simulations": simulations}
    answers: list[str] = []
    server = AnalysisServer(
        net,
        evaluator_for_forest(net.module, net.device, "fp32", 8),
        SETTINGS,
        QueryReader("chess", 0, 3),
        4,
        answers.append,
    )
    server.run(io.BytesIO(json.dumps(query).encode()))
    return json.loads(answers[0])


@pytest.mark.parametrize(("fen", "moves"), DRAWN)
def test_every_way_to_ask_gives_the_same_answer(net: Net, weights: str, fen: str, moves: list[str]) -> None:
    alone = net.evaluate(fen, moves)
    board = chess.Board(fen)
    for move in moves:
        board.push_uci(move)
    assert [*alone.policy] and {*alone.policy} == {move.uci() for move in board.legal_moves}
    assert net.evaluate(board).wdl == pytest.approx(alone.wdl, abs=1e-5)
    assert net.evaluate(az.Board("chess", fen, moves)).wdl == pytest.approx(alone.wdl, abs=1e-5)
    assert served(net, 0, fen, moves)["wdl"] == pytest.approx(alone.wdl, abs=1e-5)
    found = net.search(fen, moves, simulations=40, settings=SETTINGS)
    assert found.best is not None
    assert served(net, 40, fen, moves)["search"]["wdl"] == pytest.approx(found.wdl, abs=1e-3)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        argv = ["analyse", weights, "--fen", fen, "--moves", *moves, "--simulations", "40", "--json"]
        assert main([*argv, "--device", "cpu"]) == 0
    told = json.loads(text.getvalue())
    assert told["wdl"] == pytest.approx(alone.wdl, abs=1e-5)
    assert told["search"]["lines"][0]["move"] in alone.policy
    tree, line = net.tree(SETTINGS), make_line("chess", fen)
    for move in moves:
        line.push_text(move)
    assessed = assess(tree, line, SearchLimits(nodes=40))
    tree.close()
    assert assessed.chances == pytest.approx(found.best.q, abs=1e-3) and assessed.best_line


def test_games_that_go_on_are_annotated_to_their_end(weights: str, tmp_path: Path) -> None:
    san = "1. Nf3 Nf6 2. Ng1 Ng8 3. Nf3 Nf6 4. Ng1 Ng8 5. e4 e5 6. Bc4 Nc6 7. Qh5 Nf6 8. Qxf7# 1-0"
    (tmp_path / "in.pgn").write_text(san + "\n")
    argv = ["analyse", weights, "--pgn", str(tmp_path / "in.pgn"), "--simulations", "20", "--device", "cpu"]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main(argv) == 0
    game = chess.pgn.read_game(io.StringIO(text.getvalue()))
    evals = [node.eval() for node in game.mainline()]
    assert len(evals) == 15 and None not in evals[:-1]  # the last move mates


def test_where_no_move_is_left_there_is_nothing_to_analyse(net: Net) -> None:
    mated = ["f2f3", "e7e5", "g2g4", "d8h4"]
    for call in (net.evaluate, net.search):
        with pytest.raises(az.AlphaZeroError, match="no legal move"):
            call(None, mated)
    for simulations in (0, 9):
        assert "no legal move" in served(net, simulations, "startpos", mated)["error"]
