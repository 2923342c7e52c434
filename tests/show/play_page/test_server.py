"""The server of `alphazero play --browser`: answers its page, names what is wrong, refuses strangers."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import chess.pgn
import pytest

from alphazero.games.registry import read_game
from alphazero.play.net import load, new_net
from alphazero.show.play_page.answers import GameAnswers
from alphazero.show.play_page.server import MOST_BYTES, TOKEN_HEADER, PlayServer
from tests.support.evaluation.small_nets import write_small_net
from tests.support.jobs.jobs import environment
from tests.support.paths import REPOSITORY

MATE_IN_ONE = "r1bqkbnr/pppp1ppp/2n5/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


@contextlib.contextmanager
def served(*nets: Any) -> Iterator[PlayServer]:
    with contextlib.closing(GameAnswers(nets)) as answers, PlayServer(b"the page", answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def chess_server() -> Iterator[PlayServer]:
    with served(new_net("chess", blocks=1, filters=8)) as server:
        yield server


def headers_of(server: PlayServer, **changed: str | None) -> dict[str, str]:
    own = f"127.0.0.1:{server.server_port}"
    usual = {
        "Host": own,
        "Origin": f"http://{own}",
        "Content-Type": "application/json",
        TOKEN_HEADER: server.token,
    }
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def request(
    server: PlayServer, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ask(server: PlayServer, kind: str, **asked: Any) -> tuple[int, dict[str, Any]]:
    status, body = request(server, "POST", f"/{kind}", json.dumps(asked).encode(), headers_of(server))
    return status, json.loads(body)


def test_a_position_has_its_legal_moves_with_squares(chess_server) -> None:
    status, view = ask(chess_server, "position", moves=["e4", "e7e5", "Nf3"])
    assert status == 200
    assert view["shown"] == ["e4", "e5", "Nf3"] and view["turns"] == ["first", "second", "first"]
    assert view["pushed"] == "g1f3" and view["move"] == ["Nf3", 62, 45]
    board = chess.Board()
    for move in view["shown"]:
        board.push_san(move)
    assert {name for name, *_ in view["legal"]} == {move.uci() for move in board.legal_moves}
    for name, san, origin, target in view["legal"]:
        move = board.parse_uci(name)
        assert board.san(move) == san
        assert [chess.square_mirror(move.from_square), chess.square_mirror(move.to_square)] == [
            origin,
            target,
        ]


def test_a_search_answers_for_the_side_that_moves_with_chances_of_the_first_player(chess_server) -> None:
    status, found = ask(chess_server, "search", start=MATE_IN_ONE, simulations=100)
    assert (status, found["move"], found["mate"]) == (200, "h5f7", 1)
    assert found["wdl"][0] > 0.99 and found["policy"][0][:1] == ["Qxf7#"]
    mirrored = chess.Board(MATE_IN_ONE).mirror().fen()
    status, found = ask(chess_server, "search", start=mirrored, simulations=100)
    assert (status, found["move"], found["mate"]) == (200, "h4f2", -1)
    assert found["wdl"][2] > 0.99


def test_the_game_as_pgn_is_read_by_python_chess(chess_server) -> None:
    moves = ["e4", "e5", "Bc4", "Nc6", "Qh5", "Nf6", "Qxf7#"]
    status, answer = ask(chess_server, "pgn", moves=moves, players=["human", 'alpha "zero"'])
    game = chess.pgn.read_game(io.StringIO(answer["pgn"]))
    assert status == 200 and game is not None and not game.errors
    assert game.headers["Result"] == "1-0" and game.headers["Black"] == r"alpha \"zero\""
    assert game.end().board().is_checkmate()
    status, answer = ask(chess_server, "pgn", moves=["e4"], players=["a", "b"], resigned="1-0")
    assert "resignation" in answer["pgn"] and answer["pgn"].rstrip().endswith("1-0")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("position", {"start": 3}, "start 3"),
    ("position", {"start": "nonsense"}, "nonsense"),
    ("position", {"moves": "e4"}, "moves"),
    ("position", {"moves": ["e4"] * 5000}, "moves"),
    ("position", {"moves": ["e4", 7]}, "move 2: 7"),
    ("position", {"moves": ["e4", "e4"]}, "move 2: 'e4'"),
    ("search", {"simulations": 0}, "simulations 0"),
    ("search", {"simulations": True}, "simulations True"),
    ("search", {"simulations": 10**9}, "simulations"),
    ("search", {"seconds": -1}, "seconds -1"),
    ("search", {"seconds": 1e9}, "seconds"),
    ("search", {"seconds": float("nan")}, "seconds nan"),
    ("search", {}, "simulations None, seconds None"),
    ("search", {"seconds": 1, "simulations": 1}, "expected one of them"),
    ("search", {"simulations": 1, "network": 1}, "network: 1"),
    ("search", {"simulations": 1, "network": "0"}, "network: '0'"),
    ("search", {"simulations": 1, "start": "8/8/8/8/8/5k2/5q2/7K w - - 0 1", "moves": ["Kg1"]}, "move 1"),
    ("pgn", {}, "players None"),
    ("pgn", {"players": ["a", "b\nc"]}, "players"),
    ("pgn", {"players": ["a", "b"], "resigned": "2-0"}, "resigned '2-0'"),
]


@pytest.mark.parametrize(("kind", "asked", "named"), WRONG)
def test_what_cannot_be_answered_is_named_in_a_line(chess_server, kind, asked, named) -> None:
    status, answer = ask(chess_server, kind, **asked)
    assert status == 400 and named in answer["error"] and "\n" not in answer["error"]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": "localhost:99x"}, 403),
        ({"Origin": None}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({TOKEN_HEADER: None}, 403),
        ({TOKEN_HEADER: "\u00e4"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Length": str(MOST_BYTES + 1)}, 413),
        ({"Content-Length": "9" * 5000}, 413),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": None, "Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_a_request_of_a_stranger_is_refused_before_its_body_is_read(chess_server, changed, status) -> None:
    headers = headers_of(chess_server, **changed)
    connection = http.client.HTTPConnection("127.0.0.1", chess_server.server_port, timeout=30)
    connection.putrequest("POST", "/position", skip_host=True)
    for name, value in {"Content-Length": "2", **headers}.items():
        if not (name == "Content-Length" and "Transfer-Encoding" in changed):
            connection.putheader(name, value.encode("latin-1"))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == status and "error" in json.loads(answer.read())
    connection.close()


def test_a_tunnel_may_give_it_another_port(chess_server) -> None:
    headers = headers_of(chess_server, Host="localhost:9000", Origin="http://localhost:9000")
    assert request(chess_server, "POST", "/position", b"{}", headers)[0] == 200


def test_two_hundred_hostile_requests_are_refused_and_it_still_answers(chess_server) -> None:
    draw = random.Random(5)
    bodies = [b"", b"[]", b"null", b"{", b"[" * 60000, b"\xff\xfe", b'{"moves": ' + b"9" * 5000 + b"}"]
    for number in range(200):
        method = draw.choice(["POST", "POST", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "FOO"])
        path = draw.choice(
            ["/position", "/search", "/pgn", "/", "/../etc/passwd", "//", "/position?x", "/%00"]
        )
        body = draw.choice([*bodies, bytes(draw.randrange(256) for _ in range(draw.randrange(300)))])
        status, _ = request(chess_server, method, path, body, headers_of(chess_server))
        assert 400 <= status < 500, (number, method, path, body[:80])
    for raw in (
        b"\x16\x03\x01\x02",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 70000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ):
        place = ("127.0.0.1", chess_server.server_port)
        with contextlib.suppress(ConnectionError), socket.create_connection(place, timeout=30) as stranger:
            stranger.sendall(raw)
            stranger.shutdown(socket.SHUT_WR)
            assert not re.match(rb"HTTP/1\.. [235]", stranger.recv(100))
    assert ask(chess_server, "position")[0] == 200
    assert request(chess_server, "GET", "/", None, {"Host": "localhost"})[1] == b"the page"
    assert request(chess_server, "GET", "/x", None, {"Host": "localhost"})[0] == 404
    assert request(chess_server, "GET", "/", None, {"Host": "evil.example"})[0] == 403


def test_a_tab_that_is_closed_ends_its_search(chess_server) -> None:
    body = json.dumps({"seconds": 600}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", chess_server.server_port, timeout=60)
    connection.request("POST", "/search", body, headers_of(chess_server))
    time.sleep(0.5)
    connection.close()
    began = time.monotonic()
    assert ask(chess_server, "search", simulations=10, moves=["e4"])[0] == 200
    assert time.monotonic() - began < 20


def test_more_searches_than_it_does_at_a_time_are_refused(chess_server) -> None:
    open_ones = []
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", chess_server.server_port, timeout=60)
        connection.request("POST", "/search", json.dumps({"seconds": 600}).encode(), headers_of(chess_server))
        open_ones.append(connection)
    time.sleep(1)
    assert ask(chess_server, "search", simulations=1)[0] == 503
    for connection in open_ones:
        connection.close()
    deadline = time.monotonic() + 20
    while ask(chess_server, "search", simulations=1)[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_moves_that_have_the_same_name_are_told_apart_by_their_numbers(tmp_path) -> None:
    rules = tmp_path / "alike.py"
    text = (REPOSITORY / "examples" / "nim.py").read_text()
    rules.write_text(text.replace('return "abcdefgh"[pile] + str(taken + 1)', 'return f"take {taken + 1}"'))
    name = read_game("--game", f"{rules}:Nim(piles=3)")
    with served(load(write_small_net(tmp_path / "net.pt", name), device="cpu")) as server:
        status, view = ask(server, "position")
        assert status == 200 and view["drawing"] and all(target == -1 for *_, target in view["legal"])
        assert [name for name, *_ in view["legal"]] == ["0", "3", "4", "6", "7", "take 3"]
        moves: list[str] = []
        while view["legal"]:
            moves.append(view["legal"][0][0])
            status, view = ask(server, "position", moves=moves)
            assert status == 200 and view["pushed"] == moves[-1]
        assert len(moves) == 6 and view["result"] == "0-1"  # one object at a time
        assert ask(server, "pgn", players=["a", "b"])[0] == 400


def test_the_command_prints_its_address_and_ends_by_ctrl_c(tmp_path) -> None:
    net = write_small_net(tmp_path / "net.pt", "connect4")
    command = [sys.executable, "-m", "alphazero", "play", net, "--browser", "--device", "cpu"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"http://127\.0\.0\.1:(\d+)/#(\S{20,}) ", line)
        assert found, line
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        connection.request("GET", "/")
        page = connection.getresponse()
        content = page.read().decode()
        assert page.status == 200 and page.getheader("Referrer-Policy") == "no-referrer"
        assert found[2] not in content and "script-src 'sha256-" in content and "unsafe-eval" not in content
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0 and errors.strip() == ""
