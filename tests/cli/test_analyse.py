"""`alphazero analyse` and `alphazero import-weights` as typed."""

import json
from pathlib import Path

import chess
import pytest
import torch

from alphazero.cli.main import main
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small chess network with random weights."""
    path = tmp_path_factory.mktemp("weights") / "small.pt"
    config = NetworkConfig(blocks=1, filters=8, value_hidden=8)
    save_weights(path, AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(0)), {})
    return path


def analyse_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    assert main(["analyse", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "fen",
    [
        "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/R3K2R w KQkq - 0 1",
        "r3k2r/8/8/8/8/8/6p1/R3K2R b KQkq - 0 1",
        "8/2p5/3p4/KP5r/1R3pPk/8/4P3/8 b - g3 0 1",
    ],
)
def test_the_policy_covers_the_legal_moves_of_python_chess_and_sums_to_one(
    fen: str, weights: Path, capsys: pytest.CaptureFixture[str]
):
    result = analyse_json(capsys, "--weights", weights, "--fen", fen)
    assert set(result["policy"]) == {move.uci() for move in chess.Board(fen).legal_moves}
    assert sum(result["policy"].values()) == pytest.approx(1, abs=1e-5)
    assert list(result["policy"].values()) == sorted(result["policy"].values(), reverse=True)
    assert sum(result["wdl"]) == pytest.approx(1, abs=1e-5)
    assert result["value"] == pytest.approx(result["wdl"][0] - result["wdl"][2], abs=1e-6)


def test_chess960_castling_is_king_takes_rook(weights: Path, capsys: pytest.CaptureFixture[str]):
    fen = "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9"
    result = analyse_json(capsys, "--weights", weights, "--fen", fen)
    assert set(result["policy"]) == {move.uci() for move in chess.Board(fen, chess960=True).legal_moves}


def test_moves_lead_to_the_position_and_make_its_history(weights: Path, capsys: pytest.CaptureFixture[str]):
    played = analyse_json(capsys, "--weights", weights, "--moves", "e2e4", "e7e5", "g1f3")
    board = chess.Board()
    for move in ("e2e4", "e7e5", "g1f3"):
        board.push_uci(move)
    assert played["position"] == board.fen(en_passant="legal")
    bare = analyse_json(capsys, "--weights", weights, "--fen", board.fen())
    assert set(bare["policy"]) == set(played["policy"])
    assert bare["value"] != played["value"]


def test_maia_as_lc0_file_prefers_what_people_play(shared_data: Path, capsys: pytest.CaptureFixture[str]):
    result = analyse_json(
        capsys, "--weights", shared_data / "lc0" / "maia-1500.pb.gz", "--moves", "e2e4", "e7e5", "g1f3"
    )
    assert next(iter(result["policy"])) == "b8c6"


BOARD = (
    "8 r n b q k b n r",
    "7 p p p p p p p p",
    *(f"{rank} . . . . . . . ." for rank in (6, 5, 4, 3)),
    "2 P P P P P P P P",
    "1 R N B Q K B N R",
    "a b c d e f g h",
)


def lines_of(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """The board, and what follows it after a blank line."""
    board, _, rest = capsys.readouterr().out.partition("\n\n")
    return [line.strip() for line in board.splitlines()], rest.splitlines()


def test_the_table_shows_a_bar_for_the_likeliest_move(weights: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["analyse", "--weights", str(weights), "--ascii"]) == 0
    board, lines = lines_of(capsys)
    assert board == list(BOARD)
    assert lines[0] == chess.STARTING_FEN
    assert lines[1].startswith("for the side to move: win ")
    moves = lines[3:]
    assert len(moves) == 20
    assert moves[0].endswith("#" * 40)


def test_a_move_that_the_search_did_not_look_at_has_no_chances(
    weights: Path, capsys: pytest.CaptureFixture[str]
):
    fen = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
    assert main(["analyse", "--weights", str(weights), "--ascii", "--fen", fen, "--simulations", "20"]) == 0
    _, lines = lines_of(capsys)
    assert lines[1].endswith("depth 1 to 1)")
    best, *others = (line.split() for line in lines[5:])
    assert best[:2] == ["Ra8#", "0"] and best[3:] == ["100.0%", "0.0%", "0.0%", "wins", "in", "1", "Ra8#"]
    assert others and all(row[1] == "0" and row[3:7] == ["-"] * 4 for row in others)


@pytest.mark.parametrize(
    "moves",
    [["1. e4 e5 2. Nf3 Nc6 3.Bc4 Bc5 4. 0-0"], ["1.", "e4", "e7e5", "2.Nf3!", "Nc6", "3.", "bc4 Bc5", "O-O"]],
)
def test_moves_are_read_as_people_paste_them(
    moves: list[str], weights: Path, capsys: pytest.CaptureFixture[str]
):
    board = chess.Board()
    for san in ["e4", "e5", "Nf3", "Nc6", "Bc4", "Bc5", "O-O"]:
        board.push_san(san)
    result = analyse_json(capsys, weights, "--moves", *moves)
    assert result["position"] == board.fen(en_passant="legal")


@pytest.mark.parametrize("moves", [["4453"], ["4", "45 3"]])
def test_analyse_reads_other_games(moves: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = NetworkConfig(game="connect4", blocks=1, filters=8, value_hidden=8)
    save_weights(tmp_path / "four.pt", AlphaZeroNet(config, get_spec("connect4")), {})
    result = analyse_json(capsys, tmp_path / "four.pt", "--moves", *moves)
    assert len(result["policy"]) == 7
    assert result["position"].startswith("7/7/7/7/3o3/2oxx2 ") or "3o" in result["position"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fen", "nonsense"], "nonsense"),
        (["--moves", "e2e4", "e2e5"], "--moves, number 2: "),
        (["--moves", "1. e4 e5 2. Nf6"], "--moves, number 3: 'Nf6': no legal move here; did you mean Nf3?"),
        (["--device", "cpu", "net.pt"], ": expected one of the two"),
        (["--fen", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"], "no legal move, the game is over"),
        (["--nodes", "100"], "--nodes"),
        (["--lines", "3"], "--lines: only with a search, --simulations N or --seconds S"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, weights: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["analyse", "--weights", str(weights), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("alphazero: error: ")
    assert words in error
    assert error.count("\n") == 1


def test_import_weights_says_what_it_read_and_writes_it(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source, target = shared_data / "lc0" / "maia-1100.pb.gz", tmp_path / "maia.pt"
    assert main(["import-weights", str(source), str(target)]) == 0
    assert "6x64, squeeze-excitation 1/8" in capsys.readouterr().out
    network, metadata = open_network(target, torch.device("cpu"))
    assert (network.config.blocks, network.config.filters, network.config.se_ratio) == (6, 64, 8)
    assert metadata["imported_from"] == "maia-1100.pb.gz"
    direct, _ = open_network(source, torch.device("cpu"))
    wanted, got = direct.state_dict(), network.state_dict()
    assert all(torch.equal(wanted[key], got[key]) for key in wanted)


def test_import_weights_replaces_only_when_forced(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    target = tmp_path / "there.safetensors"
    target.write_text("precious")
    assert main(["import-weights", str(weights), str(target)]) == 2
    assert f"{target}: already exists" in capsys.readouterr().err
    assert target.read_text() == "precious"
    assert main(["import-weights", str(weights), str(target), "--force"]) == 0
    open_network(target, torch.device("cpu"))


def test_import_weights_refuses_what_is_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "game.pgn").write_text("1. e4 e5 *\n")
    assert main(["import-weights", str(tmp_path / "game.pgn"), str(tmp_path / "out.pt")]) == 2
    assert "no weights file" in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()
