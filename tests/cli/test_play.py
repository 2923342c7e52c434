"""Games in the terminal: what is typed, what is shown, what is kept."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import chess.pgn
import pytest

import alphazero as az
from alphazero.base.errors import AlphaZeroError
from alphazero.cli.command_table import run_command
from alphazero.play.session import PlaySession
from alphazero.search.tree_search import SearchLimits
from tests.support.paths import REPOSITORY

Play = Callable[..., str]
PLAIN = az.Style(unicode=False)
BACK_RANK = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"


@pytest.fixture(scope="module")
def nets(tmp_path_factory) -> dict[str, Path]:
    """A small network of each game, as a file."""
    directory = tmp_path_factory.mktemp("nets")
    paths = {game: directory / f"{game}.pt" for game in az.game_names()}
    for game, path in paths.items():
        az.new_net(game, blocks=1, filters=8, value_hidden=8).save(path)
    return paths


@pytest.fixture(scope="module")
def play(nets) -> Play:
    """Plays what is typed; all that was shown."""
    opened = {game: az.load(path, device="cpu") for game, path in nets.items()}

    def run(
        *typed: str, game: str = "chess", side: str = "first", simulations: int = 8, **more: object
    ) -> str:
        shown: list[str] = []
        lines = iter(typed)

        def read(prompt: str) -> str | None:
            shown.append(prompt)
            return next(lines, None)

        limits = SearchLimits(nodes=simulations)
        PlaySession(opened[game], PLAIN, read, shown.append, side, limits, **more).run()
        return "\n".join(shown)

    return run


def test_moves_are_answered(play):
    told = play("e4", "nf3")
    assert told.count("the network plays ") == 2
    assert "4 . . . . P . . ." in told
    assert told.count("white> ") == 3


def test_the_network_begins_where_the_person_is_second(play):
    told = play(side="second").splitlines()
    assert told[1].startswith("1 R N B K Q B N R")  # seen from the person's side
    assert any(line.startswith("the network plays ") for line in told)
    assert "black> " in told


def test_a_bad_move_is_one_line_and_changes_nothing(play):
    told = play("Nf6", "e5", "hlp", "\x00", "moves now", "new purple", "undo").splitlines()
    start = told.index("white> ") + 1
    said = [line for line in told[start:] if line and line != "white> "]
    assert said == [
        "'Nf6': no legal move here; did you mean Nf3?",
        "'e5': no legal move here; did you mean e4?",
        "'hlp': did you mean help?",
        "'\\x00': no legal move here; expected a legal move, such as a3",
        "'moves now': expected moves alone",
        "new 'purple': expected first, white, second, black, random",
        "undo: no move of yours to take back",
    ]


def test_undo_takes_the_answer_back_as_well(play):
    told = play("e4", "undo", "moves")
    assert told.splitlines()[-3].startswith("played: none")
    assert play("e5", "undo", "moves", side="second", moves=("d4",)).count("played: d4\n") == 1


def test_a_game_to_mate_can_be_looked_at_and_begun_again(play, tmp_path):
    file = tmp_path / "games.pgn"
    told = play("Ra8", "e4", "undo", "new black", start=BACK_RANK, pgn=file)
    assert "over: 1-0 (win); new, undo" in told
    assert "'e4': the game is over" in told
    assert told.count("game over> ") == 3
    assert "the network plays Ra8#  (wins in 1 for it, 1 visit: Ra8#)" in told
    games = read_games(file)
    assert games[0].headers["Result"] == "1-0"
    assert games[0].board().fen() == BACK_RANK
    assert [move.uci() for move in games[0].mainline_moves()] == ["a1a8"]
    assert games[0].headers["White"] == "human"
    assert games[0].headers["Black"] == "alphazero chess.pt"


def read_games(path: Path) -> list[chess.pgn.Game]:
    games, text = [], io.StringIO(path.read_text())
    while game := chess.pgn.read_game(text):
        assert not game.errors
        games.append(game)
    return games


def test_a_game_that_is_left_is_written(play, tmp_path):
    play("e4", pgn=tmp_path / "one.pgn")
    (game,) = read_games(tmp_path / "one.pgn")
    assert game.headers["Result"] == "*" and len(list(game.mainline_moves())) == 2
    assert "cannot be written" in play("e4", "new", "quit", pgn=Path("/nowhere/two.pgn"))


@pytest.mark.parametrize("game", ["connect4", "othello", "tictactoe"])
def test_the_other_games(play, game):
    moves = {"connect4": "4", "othello": "d3", "tictactoe": "b2"}
    told = play(moves[game], "zz", "moves", game=game)
    assert "x> " in told
    assert "the network plays " in told
    assert "'zz': no legal" in told


def test_the_network_wins_what_is_won(play):
    told = play("7", game="connect4", side="first", simulations=200, moves=("1", "4", "1", "4", "2", "4"))
    assert "plays 4  (wins in 1" in told
    assert "over: 0-1 (win)" in told


def test_help_lists_every_command(play):
    told = play("help")
    assert "SAN or UCI" in told
    for word in ("undo", "moves", "new [SIDE]", "quit"):
        assert f"  {word} " in told


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "alphazero", "play", "--ascii", "--simulations", "4", *words]


def test_the_end_of_the_input_ends_it(nets, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("4\n"))
    words = ["play", "--weights", str(nets["connect4"]), "--simulations", "4", "--device", "cpu"]
    assert run_command(words) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "the network plays" in told.out
    assert "\x1b" not in told.out
    assert told.out.endswith("x> \n")


def test_ctrl_c_ends_it_without_a_traceback_and_keeps_the_game(nets, tmp_path):
    pgn = tmp_path / "game.pgn"
    words = command("--weights", str(nets["chess"]), "--side", "black", "--pgn", str(pgn))
    # A shell without job control has its background processes ignore Ctrl-C.
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        words,
        preexec_fn=listening,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "the network plays" not in process.stdout.readline():
            pass
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert len(list(read_games(pgn)[0].mainline_moves())) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--side", "green"], "--side: 'green': expected one of first, white, second"),
        (["--fen", "nonsense"], "nonsense"),
        (["--moves", "e4", "e4"], "'e4': no legal move here"),
        (["--simulations", "0"], "--simulations: '0': expected a whole number from 1"),
        (["--simulations", "5", "--seconds", "1"], "not allowed with"),
        (["--seconds", "-1"], "--seconds: '-1': expected seconds"),
        (["--pgn", ""], "--pgn '': expected the path of a file"),
        (["--pgn", "x.pgn.GZ"], "--pgn x.pgn.GZ: expected a plain file, as games.pgn"),
    ],
)
def test_what_cannot_be_is_one_line(nets, words, told):
    with pytest.raises(AlphaZeroError) as caught:
        run_command(["play", "--weights", str(nets["chess"]), "--device", "cpu", *words])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pgn_is_refused_for_other_games_before_the_first_move(nets):
    with pytest.raises(AlphaZeroError, match=r"--pgn: .*othello"):
        run_command(["play", "--weights", str(nets["othello"]), "--pgn", "x.pgn", "--device", "cpu"])


def test_analyse_searches(nets, capsys):
    words = ["analyse", "--weights", str(nets["chess"]), "--moves", "e4", "Nf6", "--simulations", "50"]
    assert run_command([*words, "--json", "--lines", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    board = chess.Board()
    for san in ("e4", "Nf6"):
        board.push_san(san)
    assert told["position"] == board.fen(en_passant="legal")
    search = told["search"]
    assert search["nodes"] == 50
    assert len(search["lines"]) == 2
    for line in search["lines"]:
        assert board.san(chess.Move.from_uci(line["move"])) == line["san"]
        assert board.variation_san([chess.Move.from_uci(move) for move in line["pv"]])
        assert len(line["pv"]) == len(line["pv_san"])
        assert line["pv"][0] == line["move"]
    assert run_command([*words, "--ascii"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "8 r n b q k b . r"
    assert lines[10] == board.fen(en_passant="legal")
    assert "(50 visits in " in lines[11]
    assert lines[12].startswith("the network alone: win ")
    assert len(lines) == 20


def test_analyse_draws_connect_four(nets, capsys):
    words = [
        "analyse",
        "--weights",
        str(nets["connect4"]),
        "--moves",
        "4",
        "4",
        "--ascii",
        "--seconds",
        "0.1",
    ]
    assert run_command(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:7] == ["  . . . o . . .", "  . . . x . . .", "  1 2 3 4 5 6 7"]


def test_moves_of_one_name_are_played_by_their_numbers(tmp_path):
    """Nim whose moves name the number taken alone: from piles of 1, 2 and 3, "take 1" is three moves."""
    rules = tmp_path / "alike.py"
    named = 'return "abcdefgh"[pile] + str(taken + 1)'
    rules.write_text(
        (REPOSITORY / "examples" / "nim.py").read_text().replace(named, 'return f"take {taken + 1}"')
    )
    net = az.new_net(f"{rules}:Nim(piles=3)", blocks=1, filters=8)
    shown: list[str] = []
    lines = iter(["3", "moves"])
    PlaySession(net, PLAIN, lambda _: next(lines, None), shown.append, "first", SearchLimits(nodes=30)).run()
    assert str(az.Board(net.game, moves=["3"])) == "a:1  b:1  c:3"  # action 3 takes one of the second pile
    assert "a:1  b:2  c:2" not in shown  # nor has the network's answer been another of that name
    assert "a:1  b:1  c:2" in shown
