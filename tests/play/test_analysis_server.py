"""The analysis server: answers as of one position at a time, and what its users do to it."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import chess
import pytest

from alphazero.cli.main import main
from alphazero.games.registry import game_names, make_line
from alphazero.network.inference.purpose import evaluator_for_forest
from alphazero.play import analysis
from alphazero.play.analysis import AnalysisServer, QueryReader
from alphazero.play.net import Net, new_net, search_line
from alphazero.play.search_text import analysis_json
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings

SETTINGS = TreeSettings(minibatch_size=32)
GAME = [
    *("e4", "e5", "Nf3", "Nc6", "Bc4", "Nf6", "Ng5", "d5", "exd5", "Nxd5", "Nxf7", "Kxf7", "Qf3+", "Ke6"),
    *("Nc3", "Nce7", "d4", "c6"),
]
MATE = ["f3", "e5", "g4", "Qh4#"]


@pytest.fixture(scope="module")
def net() -> Net:
    return new_net(blocks=1, filters=8, value_hidden=8)


def new_server(
    net: Net, write: Callable[[str], None], in_flight: int = 16, batch_size: int = 32
) -> AnalysisServer:
    return AnalysisServer(
        net,
        evaluator_for_forest(net.module, net.device, "fp32", batch_size),
        SETTINGS,
        QueryReader(net.game, 0, 3),
        in_flight,
        write,
    )


def ask(net: Net, *queries: dict[str, Any] | bytes, in_flight: int = 16) -> list[dict[str, Any]]:
    """The answers to a whole input, in their order."""
    lines = [query if isinstance(query, bytes) else json.dumps(query).encode() + b"\n" for query in queries]
    answers: list[str] = []
    new_server(net, answers.append, in_flight).run(io.BytesIO(b"".join(lines)))
    return [json.loads(answer) for answer in answers]


class Running:
    """A server in a thread, asked line by line."""

    def __init__(self, net: Net, in_flight: int) -> None:
        self.answers: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self.server = new_server(net, self._take, in_flight)
        read, write = os.pipe()
        self._to_server = os.fdopen(write, "w", encoding="utf-8")
        self._thread = threading.Thread(target=self.server.run, args=(os.fdopen(read, "rb"),), daemon=True)
        self._thread.start()

    def _take(self, text: str) -> None:
        with self._news:
            self.answers.append(json.loads(text))
            self._news.notify_all()

    def send(self, **query: Any) -> None:
        print(json.dumps(query), file=self._to_server, flush=True)

    def until(self, number: int) -> list[dict[str, Any]]:
        """The answers once there are so many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.answers) >= number, 20), self.answers
            return list(self.answers)

    def close(self) -> None:
        self._to_server.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


def without_time(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer["search"].items() if key != "seconds"}


def test_answers_are_those_of_the_same_search_alone(net: Net) -> None:
    queries = [
        {"id": f"{number} {simulations}", "moves": GAME[:number], "simulations": simulations, "lines": 4}
        for number in range(0, len(GAME), 2)
        for simulations in (1, 2, 90)
    ]
    answers = {answer["id"]: answer for answer in ask(net, *queries)}
    assert len(answers) == len(queries)
    tree = TreeSearch("chess", evaluator_for_forest(net.module, net.device, "fp32", 32), SETTINGS)
    for query in queries:
        board = net.board(None, query["moves"])
        tree.forget()
        found = search_line(tree, board.line, SearchLimits(nodes=query["simulations"]), 4)
        (alone,) = net.evaluate_lines([board.line])
        own = json.loads(json.dumps(analysis_json(alone, found, 4)))
        answer = answers[query["id"]]
        assert without_time(answer) == without_time(own) and answer["turn"] == len(query["moves"])
        assert answer["policy"] == pytest.approx(own["policy"], abs=1e-6)
        assert answer["wdl"] == pytest.approx(own["wdl"], abs=1e-6)
        assert list(answer) == ["id", "turn", *own] and answer["position"] == own["position"]
    tree.close()


def test_every_turn_of_a_game_has_the_legal_moves_of_python_chess(net: Net) -> None:
    answers = ask(net, {"id": "game", "moves": GAME, "turns": "all"})
    board = chess.Board()
    assert [answer["turn"] for answer in answers] == list(range(len(GAME) + 1))
    for answer, san in zip(answers, [*GAME, None], strict=True):
        assert set(answer["policy"]) == {move.uci() for move in board.legal_moves}
        assert answer["position"] == board.fen(en_passant="legal") and "search" not in answer
        if san:
            board.push_san(san)


@pytest.mark.parametrize("game", game_names())
def test_every_game_is_served(game: str) -> None:
    line = make_line(game)
    moves = []
    for _ in range(3):
        moves.append(line.move_to_text(line.legal()[0]))
        line.push(line.legal()[0])
    network = new_net(game, blocks=1, filters=8, value_hidden=8)
    queries = [
        {"id": "a", "game": game, "moves": moves, "turns": "all", "simulations": 40},
        {"id": "b", "fen": str(line)},
    ]
    answers = ask(network, *queries)
    assert sorted((answer["id"], answer["turn"]) for answer in answers) == [
        ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0)
    ]  # fmt: skip
    last = next(answer for answer in answers if answer["turn"] == 3)
    assert last["search"]["nodes"] == 40 or last["search"]["mate"] is not None
    assert set(last["policy"]) == {line.move_to_text(move) for move in line.legal()}


def test_the_end_of_a_game_is_an_error_of_its_turn_alone(net: Net) -> None:
    answers = {answer["turn"]: answer for answer in ask(net, {"id": "m", "moves": MATE, "turns": "all"})}
    assert sorted(answers) == [0, 1, 2, 3, 4] and "policy" in answers[3]
    assert set(answers[4]) == {"id", "turn", "error"} and "no legal move" in answers[4]["error"]


def test_a_proven_end_is_reported(net: Net) -> None:
    (answer,) = ask(net, {"id": "mate", "moves": MATE[:3], "simulations": 300})
    assert answer["search"]["mate"] == 1 and answer["search"]["lines"][0]["san"] == "Qh4#"
    assert answer["search"]["lines"][0]["pv_san"] == ["Qh4#"]
    others = answer["search"]["lines"][1:]  # not proven, and some not looked at
    assert {line["value"] for line in others if not line["visits"]} == {None}


def test_bad_lines_are_answered_and_the_rest_is_served(net: Net) -> None:
    long = b'{"id": "long", "fen": "' + b"x" * (analysis.LONGEST_LINE * 2) + b'"}\n'
    answers = ask(
        net,
        {"id": "first"},
        b"\n  \r\n",
        b"not JSON\n",
        long,
        {"id": "bad", "moves": ["e5"]},
        {"id": "twice", "simulations": 5},
        {"id": "twice", "moves": ["e4"], "simulations": 5},
        {"id": "last", "moves": ["d4"]},
        b'{"id": "cut", "mov',
    )
    errors = [answer for answer in answers if "error" in answer]
    assert [answer.get("id") for answer in errors] == [None, None, "bad", None]
    assert errors[0]["error"].startswith("line 4: no JSON")
    assert errors[1]["error"] == "line 5: more than 1,048,576 bytes"
    assert errors[2]["field"] == "moves" and errors[3]["error"].startswith("line 10: no JSON")
    ids = [answer["id"] for answer in answers if "error" not in answer]
    assert sorted(ids) == ["first", "last", "twice", "twice"]


def test_the_larger_priority_goes_first(net: Net) -> None:
    running = Running(net, in_flight=1)
    running.send(id="long", simulations=3000)
    time.sleep(0.1)
    for name, priority in (("low", -1), ("usual", 0), ("high", 5), ("later", 0)):
        running.send(id=name, simulations=20, priority=priority)
    order = [answer["id"] for answer in running.until(5)]
    assert order == ["long", "high", "usual", "later", "low"]
    running.close()


@pytest.mark.parametrize(("memory", "most"), [pytest.param(0, 1, marks=pytest.mark.slow), (2**40, 3)])
def test_positions_in_progress_are_bounded_by_number_and_memory(net: Net, memory: int, most: int) -> None:
    seen: list[int] = []
    server = new_server(net, lambda text: seen.append(len(server._growing)), in_flight=3)
    server._memory = memory
    query = {"id": "a", "moves": GAME, "turns": "all", "simulations": 20}
    server.run(io.BytesIO(json.dumps(query).encode()))
    assert len(seen) == len(GAME) + 1 and max(seen) == most - 1  # one has just been answered


@pytest.mark.slow
def test_queries_are_read_ahead_to_a_bounded_number_of_positions(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = json.dumps({"id": "a", "simulations": 4}).encode() + b"\n"
    monkeypatch.setattr(analysis, "MOST_WAITING", 10)

    class Counted(io.BytesIO):
        num_read = 0

        def readline(self, size: int | None = -1) -> bytes:  # type: ignore[override]
            self.num_read += 1
            return super().readline(size)

    lines = Counted(query * 80)
    ahead: list[int] = []
    server = new_server(
        net, lambda text: ahead.append(lines.num_read - len(ahead)), in_flight=1, batch_size=4
    )
    server.run(lines)
    assert len(ahead) == 80 and max(ahead) < 10 + 4 + 4 + analysis.LINES_AHEAD


def test_input_that_cannot_be_read_ends_the_server(net: Net) -> None:
    class Broken(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:  # type: ignore[override]
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        new_server(net, print).run(Broken())


@pytest.fixture(scope="module")
def weights(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "small.pt"
    net.save(path)
    return path


class Stdin:
    """Of text, over bytes."""

    def __init__(self, text: str) -> None:
        self.buffer: IO[bytes] = io.BytesIO(text.encode())


def test_the_command_has_the_fields_of_json_and_defaults_by_flags(
    weights: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ["analyse", "--weights", str(weights), "--simulations", "40", "--lines", "2"]
    assert main([*network, "--json", "--moves", "e4"]) == 0
    alone = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(sys, "stdin", Stdin('{"id": "a", "moves": ["e4"]}\n{"id": "b", "simulations": 0}'))
    assert main([*network, "--json-lines", "--positions-in-flight", "2"]) == 0
    captured = capsys.readouterr()
    answers = {answer["id"]: answer for answer in map(json.loads, captured.out.splitlines())}
    assert list(answers["a"]) == ["id", "turn", *alone] and list(answers["a"]["search"]) == list(
        alone["search"]
    )
    assert len(answers["a"]["search"]["lines"]) == 2 and "search" not in answers["b"]
    assert answers["a"]["search"]["lines"][0]["move"] == alone["search"]["lines"][0]["move"]
    assert captured.err.startswith("alphazero: 2 positions in ") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--json-lines", "--moves", "e4"], "--moves: not with --json-lines"),
        (["--json-lines", "--fen", "x"], "--fen: not with --json-lines"),
        (["--json-lines", "--seconds", "1"], "--seconds: not with --json-lines"),
        (["--json-lines", "--json"], "--json: not with --json-lines"),
        (["--positions-in-flight", "4"], "--positions-in-flight: only with --json-lines"),
        (["--json-lines", "--positions-in-flight", "0"], "--positions-in-flight: '0': expected"),
    ],
)
def test_flags_that_do_not_go_together(
    flags: list[str], words: str, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyse", "--weights", str(weights), *flags]) == 2
    assert words in capsys.readouterr().err


def started(weights: Path) -> subprocess.Popen[str]:
    """The command, once it has answered."""
    process = subprocess.Popen(
        [sys.executable, "-m", "alphazero", "analyse", "--weights", str(weights), "--json-lines"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps({"id": "ready"}), file=process.stdin, flush=True)
    assert json.loads(process.stdout.readline())["id"] == "ready"
    print(json.dumps({"id": "long", "simulations": 1_000_000}), file=process.stdin, flush=True)
    return process


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.slow)],
)
def test_a_signal_ends_it_quietly(number: signal.Signals, status: int, weights: Path) -> None:
    process = started(weights)
    time.sleep(0.3)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == status and out == ""
    assert errors in ("", "alphazero: interrupted\n")


def test_a_reader_that_goes_away_ends_it(weights: Path) -> None:
    process = started(weights)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdout.close()
    print(json.dumps({"id": "x"}), file=process.stdin, flush=True)
    assert process.wait(60) == 141 and process.stderr.read() == ""
    process.stdin.close()
    process.stderr.close()
