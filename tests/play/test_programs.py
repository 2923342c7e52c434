"""The engine as a process: `alphazero uci` with a network of one block, driven by another program."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import chess
import chess.engine
import psutil
import pytest
import torch

from alphazero.cli.main import main
from alphazero.games.registry import get_spec, make_line, read_game
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.play.uci.protocol import read_move
from alphazero.settings.sections import NetworkConfig
from tests.support.evaluation.small_nets import write_small_net
from tests.support.paths import REPOSITORY


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "a net.pt"
    save_weights(path, AlphaZeroNet(NetworkConfig(blocks=1, filters=8), get_spec("chess")), {})
    return path


@pytest.fixture(scope="module")
def command(weights: Path) -> list[str]:
    return [sys.executable, "-m", "alphazero", "uci", "--weights", str(weights), "--device", "cpu"]


def test_python_chess_drives_it_without_an_unexpected_line(
    command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with chess.engine.SimpleEngine.popen_uci(command, timeout=60) as engine:
        assert engine.id["name"].startswith("alphazero ")
        engine.configure({"Hash": 16, "Threads": 1, "Move Overhead": 5})
        clocks = chess.engine.Limit(white_clock=1, black_clock=1, white_inc=0.01, black_inc=0.01)
        for limit in (chess.engine.Limit(nodes=20), clocks, chess.engine.Limit(time=0.02)):
            board = chess.Board()
            while not board.is_game_over() and board.ply() < 16:
                info = chess.engine.INFO_SCORE | chess.engine.INFO_PV
                played = engine.play(board, limit, info=info, game=limit, ponder=board.ply() % 3 == 0)
                assert played.move in board.legal_moves and played.info["pv"][0] == played.move
                board.push(played.move)
        board = chess.Board("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
        lines = engine.analyse(board, chess.engine.Limit(nodes=200), multipv=2)
        assert lines[0]["score"].white() == chess.engine.Mate(1)
        (lone,) = engine.analyse(
            board, chess.engine.Limit(nodes=50), root_moves=[chess.Move.from_uci("g1h1")], multipv=1
        )
        assert lone["pv"][0].uci() == "g1h1" and lone["nodes"] == 50 and not lone["score"].is_mate()
        with engine.analysis(chess.Board()) as analysis:  # without a limit, until it is stopped
            for found in analysis:
                if found.get("nodes", 0) > 0:
                    break
            analysis.stop()
            assert analysis.wait().move in chess.Board().legal_moves
        fischer = chess.Board.from_chess960_pos(5)
        assert engine.play(fischer, chess.engine.Limit(nodes=10)).move in fischer.legal_moves
        engine.ping()
    assert [record.message for record in caplog.records if "Unexpected" in record.message] == []


def test_python_chess_with_node_limit_1_plays_the_moves_of_go_nodes_1_and_of_lc0(shared_data: Path) -> None:
    """Maia in 100 positions, of which lc0 evaluated 60: the likeliest move, whatever the clocks say."""
    boards, likeliest = [], {}
    for entry in json.loads((shared_data / "lc0" / "maia-1500.reference.json").read_text()):
        board = chess.Board(entry["start_fen"])
        for move in entry["moves"]:
            board.push_uci(move)
        first, second = sorted(entry["policy_percent"].items(), key=lambda item: -item[1])[:2]
        if first[1] - second[1] > 0.05:  # lc0 prints two decimals
            likeliest[len(boards)] = board.parse_uci(first[0])
        boards.append(board)
    with (shared_data / "puzzles.csv").open() as puzzles:
        boards += [chess.Board(line.split(",")[0]) for line in itertools.islice(puzzles, 100 - len(boards))]
    limits = [
        chess.engine.Limit(white_clock=60, black_clock=60, white_inc=1, black_inc=1),
        chess.engine.Limit(time=5),
        chess.engine.Limit(depth=8),
        chess.engine.Limit(nodes=800),
    ]
    maia = str(shared_data / "lc0" / "maia-1500.pb.gz")
    command = [sys.executable, "-m", "alphazero", "uci", maia, "--device", "cpu"]
    with chess.engine.SimpleEngine.popen_uci(command, timeout=60) as engine:
        engine.configure({"Threads": 1})
        asked = [engine.play(board, chess.engine.Limit(nodes=1), game=0).move for board in boards]
        engine.configure({"NodeLimit": 1})
        limited = [
            engine.play(board, limit, game=0, info=chess.engine.INFO_ALL)
            for board, limit in zip(boards, itertools.cycle(limits))
        ]
    assert len(boards) == 100 and len(likeliest) > 50
    assert [played.move for played in limited] == asked
    assert {played.info["nodes"] for played in limited} == {1}
    assert {number: asked[number] for number in likeliest} == likeliest


def test_a_script_of_commands_that_come_at_once_is_answered_in_order(command: list[str]) -> None:
    script = [
        *("uci", "setoption name Hash value 8", "setoption name Threads value 1", "isready", "ucinewgame"),
        *("position startpos", "go nodes 40", "isready", "position startpos moves e2e4", "go depth 2"),
        *("position startpos moves e2e4 e7e5", "go movetime 50", "go wtime 300 btime 300 winc 10"),
        *("go nodes -5", "go wtime 1e3", "go mate 0", "xyzzy", "", "position startpos moves e2e5"),
        *(
            "go nodes 10",
            "ponderhit",
            "position fen 6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1",
            "go nodes 50",
            "go mate 1",
        ),
        *("setoption name MultiPV value 2", "go nodes 30", "setoption name MultiPV value 1_0"),
        *("xyzzy", "ucinewgame", "position startpos", "go nodes 60 searchmoves a2a3", "go nodes 60"),
        *("go infinite", "go nodes 20", "debug on", "go nodes 30", "register later"),
        *("position fen 6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "isready", "go infinite"),
    ]
    assert len(script) >= 40
    for last in ("", "quit\n"):
        text = "".join(f"{line}\n" for line in script) + last
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
        told = done.stdout.splitlines()
        assert done.returncode == 0 and done.stderr == ""
        answers = [line.split()[1] for line in told if line.startswith("bestmove")]
        assert len(answers) == sum(line.startswith("go") for line in script)
        assert told.count("readyok") == 3
        assert answers[7] == "0000" and answers[-1] == "a1a8" and answers[8:11] == ["a1a8"] * 3
        assert answers[11] == "a2a3" and any(" nodes 40 " in line for line in told)
        assert all(chess.Move.from_uci(move) in chess.Board().legal_moves for move in answers[12:-1])


def test_readyok_is_told_before_the_end(command: list[str]) -> None:
    script = "uci\nsetoption name Hash value 9\nisready"
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "readyok"


@pytest.mark.slow
@pytest.mark.parametrize(
    "game",
    ["tictactoe", "openspiel:breakthrough(rows=5,columns=5)", f"{REPOSITORY}/examples/nim.py:Nim"],
)
def test_a_script_in_another_game(game: str, tmp_path: Path) -> None:
    if game.startswith("openspiel"):
        pytest.importorskip("pyspiel")
    rules = ["--game", game] if ".py" in game else []
    name = read_game("game", game)
    write_small_net(tmp_path / "other.pt", name)
    command = [
        sys.executable,
        "-m",
        "alphazero",
        "uci",
        str(tmp_path / "other.pt"),
        "--device",
        "cpu",
        *rules,
    ]

    def told(script: str) -> list[str]:
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == ""
        return done.stdout.splitlines()

    lines = told("uci\nisready\nposition startpos\ngo nodes 30\n")
    assert "readyok" in lines
    line, first = make_line(name), lines[-1].split()[1]
    line.push(read_move(line, first))
    after = f"position startpos moves {first}\ngo nodes 30\ngo nodes 20\n"
    lines = told(f"{after}position startpos moves x\ngo\n")
    *_, second, refused = (said.split()[1] for said in lines if said.startswith("bestmove"))
    line.push(read_move(line, second))
    assert refused == "0000"


def test_the_order_in_which_fastchess_asks(command: list[str]) -> None:
    """app/src/engine/uci_engine.cpp: each answer is waited for, then the next command is sent."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    moves: list[str] = []
    steps = [(["uci"], "uciok"), (["setoption name Hash value 16"], ""), (["isready"], "readyok")]
    for _ in range(2):
        steps += [(["ucinewgame"], ""), (["isready"], "readyok")]
        for ply in range(4):
            clocks = "go wtime 1000 btime 1000 winc 10 binc 10" if ply % 2 else "go nodes 30"
            steps += [(["POSITION", clocks], "bestmove"), (["isready"], "readyok")]
    steps += [(["stop", "quit"], "")]
    for sent, awaited in steps:
        for line in sent:
            position = f"position startpos{' moves ' if moves else ''}{' '.join(moves)}"
            process.stdin.write(f"{position if line == 'POSITION' else line}\n")
        process.stdin.flush()
        moves = [] if sent == ["ucinewgame"] else moves
        seen = [process.stdout.readline() if awaited else ""]
        while not seen[-1].startswith(awaited):
            assert seen[-1]
            assert seen[-1].startswith("info " if awaited == "bestmove" else ("id ", "option "))
            seen.append(process.stdout.readline())
        if awaited == "bestmove":
            moves.append(seen[-1].split()[1])
    assert process.wait(20) == 0 and process.stdout.read() == ""
    watchdog.cancel()


def test_it_answers_before_the_network_is_read_and_ends_with_its_input(command: list[str]) -> None:
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("uci\n")
    process.stdin.flush()
    while process.stdout.readline() != "uciok\n":
        pass
    answered = time.monotonic() - began
    process.stdin.write("isready\ngo infinite\n")
    process.stdin.flush()
    while process.stdout.readline() != "readyok\n":
        pass
    assert answered < time.monotonic() - began
    process.stdin.close()
    process.wait(10)
    assert process.returncode == 0


def test_every_go_is_answered(command: list[str]) -> None:
    """Where memory is short, counters of a FEN are at their end and a game is longer than any is."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()

    def ask(*lines: str, until: str) -> list[str]:
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        answers = [process.stdout.readline()]
        while not answers[-1].startswith(until):
            assert answers[-1], f"no {until}"  # the watchdog killed it
            answers.append(process.stdout.readline())
        return answers

    ask("uci", until="uciok")
    ask("isready", "go nodes 5", until="bestmove")
    ask("setoption name Hash value 1048576", "isready", until="readyok")
    lowered, *_ = ask("go nodes 10", until="bestmove")
    assert re.fullmatch(r"info string option Hash: 1048576 MB are not free; \d+ MB used\n", lowered)
    assert (
        chess.Move.from_uci(ask("go nodes 10", until="bestmove")[-1].split()[1]) in chess.Board().legal_moves
    )
    ask("setoption name Hash value 2048", "isready", until="readyok")
    ask("go nodes 1", until="bestmove")
    before = sum(psutil.Process(process.pid).cpu_times()[:2])
    ask("ucinewgame", "go movetime 100", until="bestmove")
    used = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
    assert used < 1.0  # memory of the hash is not filled with zeros first
    fen = "4k3/8/8/8/8/8/8/R3K3 w - - 32767 32767"
    ask(f"position fen {fen} moves a1a2 e8e7 a2a3", "go nodes 50", until="bestmove")
    there_and_back = " ".join(["g1f3 g8f6 f3g1 f6g8"] * 20_000)
    ask(f"position startpos moves {there_and_back}", "go nodes 10", until="bestmove")
    process.stdin.close()
    assert process.wait(20) == 0
    watchdog.cancel()


def test_no_network_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALPHAZERO_WEIGHTS", raising=False)
    assert main(["uci"]) == 2
    assert "runs/ holds no run" in capsys.readouterr().err


def test_a_network_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "alphazero", "uci", "--weights", str(tmp_path / "none.pt")]
    read, write = os.pipe()  # an input that stays open
    try:
        done = subprocess.run(command, stdin=read, capture_output=True, text=True, timeout=60)
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 2
    assert "none.pt: no such" in done.stderr and done.stderr.count("\n") == 1


DEFAULT_OF_LICHESS_BOT = """token: "xxxxxxxxxxxxxxxx"    # Lichess OAuth2 Token.
url: "https://lichess.org/"

engine:                      # Engine settings.
  dir: "./engines/"
  name: "engine_name"

  polyglot:
    enabled: false
#     atomic:
# engine_options:
#   cpuct: 3.1
  uci_options:
    Skill Level: 20
#   go_commands:
  silence_stderr: false

# Time to abort
abort_time: 20
challenge:
  variants:
    - standard
"""


def test_what_is_written_for_lichess_bot_is_accepted_by_what_it_uses(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """lichess-bot runs abspath(dir/name) through python-chess (lib/engine_wrapper.py)."""
    yaml = pytest.importorskip("yaml")
    bot = tmp_path / "it's a bot"
    bot.mkdir()
    monkeypatch.chdir(weights.parent)
    command = ["uci", weights.name, "--lichess-bot", str(bot), "--device", "cpu", "--option", "hash=8"]
    assert main(command) == 2
    assert "no config.yml.default" in capsys.readouterr().err
    (bot / "config.yml.default").write_text(DEFAULT_OF_LICHESS_BOT)
    assert main([*command, "--option", "Skill=3"]) == 2 and [*bot.iterdir()] == [bot / "config.yml.default"]
    assert main(command) == 0
    monkeypatch.chdir(bot)
    text = (bot / "config.yml").read_text()
    config, engine = yaml.safe_load(text), yaml.safe_load(text)["engine"]
    assert config == yaml.safe_load(DEFAULT_OF_LICHESS_BOT) | {"engine": engine} and "# Time to abort" in text
    assert engine["protocol"] == "uci" and engine["ponder"] is True
    assert engine["uci_options"]["Hash"] == 8 and engine["uci_options"]["Temperature"] == 0.6
    script = str(Path(engine["dir"], engine["name"]).absolute())
    with chess.engine.SimpleEngine.popen_uci(script, timeout=60) as player:
        player.configure(engine["uci_options"])
        board = chess.Board()
        limit = chess.engine.Limit(white_clock=2, black_clock=2)
        assert player.play(board, limit, ponder=True).move in board.legal_moves


def test_files_of_lichess_bot_are_replaced_only_where_that_is_asked_for(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yaml = pytest.importorskip("yaml")
    config = tmp_path / "config.yml"
    config.write_text(DEFAULT_OF_LICHESS_BOT.replace("x" * 16, "secret"))
    config.chmod(0o600)
    command = ["uci", str(weights), "--lichess-bot", str(tmp_path), "--option", "SyzygyPath=a: 'b' # c"]
    assert main(command) == 2
    assert "config.yml: already" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    written = yaml.safe_load(config.read_text())
    assert written["token"] == "secret" and config.stat().st_mode & 0o777 == 0o600
    assert written["engine"]["uci_options"]["SyzygyPath"] == "a: 'b' # c"
    config.unlink()
    (tmp_path / "config.yml.default").write_text("token: x\n")
    assert main(command) == 2
    assert "engines/alphazero: already" in capsys.readouterr().err
    assert main([*command, "--force"]) == 2
    assert "no section engine" in capsys.readouterr().err
    assert main(["uci", str(weights), "--force"]) == 2
    assert "--force: expected only with --lichess-bot" in capsys.readouterr().err
