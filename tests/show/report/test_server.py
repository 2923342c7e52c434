"""A watched report: served to this machine alone, made anew when the run goes on, ended by Ctrl-C."""

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from alphazero.run.directory import RunDirectory
from alphazero.show.report.page import ReportServer
from alphazero.show.report.report import build
from tests.support.jobs.jobs import environment
from tests.support.report.made_up_runs import step_line, supervised_run


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return supervised_run(tmp_path / "one")


@pytest.fixture
def server(run) -> Iterator[ReportServer]:
    with ReportServer(lambda: build([run.path]), refresh_s=0.2) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ReportServer, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): one for name, one in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def test_only_this_machine_is_served_and_only_under_its_own_name(server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, page, _ = ask(server, "/")
    assert status == 200
    assert b"connect-src 'self'" in page
    assert ask(server, "/", Host="evil.example:80")[0] == 403
    assert ask(server, "/config.json")[0] == ask(server, "/../config.json")[0] == 404


def test_new_figures_are_new_data_and_nothing_new_is_told_so(server, run) -> None:
    status, data, headers = ask(server, "/report.json")
    assert status == 200
    assert ask(server, "/report.json", If_None_Match=headers["ETag"])[0] == 304
    with run.metrics.open("a") as file:
        file.write(json.dumps(step_line(41, policy_loss=0.123)) + "\n")
    # Another report is made when the one before is ten times as old as it took.
    for _ in range(200):
        status, newer, _ = ask(server, "/report.json", If_None_Match=headers["ETag"])
        if status == 200:
            break
        threading.Event().wait(0.1)
    assert json.loads(newer)["panels"][0]["marks"][0]["value"][-1] == 0.123
    assert json.loads(data)["panels"][0]["marks"][0]["value"][-1] != 0.123
    run.metrics.unlink()  # what was last known stays
    assert ask(server, "/report.json")[0] == 200


def test_a_browser_that_leaves_is_no_error(server, capfd) -> None:
    for request in (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.server_port, b"GET"):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.server_port)) as browser:
                browser.sendall(request)
                browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(3):
        status, page, _ = ask(server, "/")
        assert status == 200
        assert len(page) > 1_000_000
    assert capfd.readouterr().err == ""


def test_a_taken_port_is_named(server) -> None:
    from alphazero.base.errors import ConfigError

    with pytest.raises(ConfigError, match=f"--port {server.server_port}: cannot be opened"):
        ReportServer(server._make, server.server_port)


def test_ctrl_c_ends_it_quietly(run) -> None:
    command = [sys.executable, "-m", "alphazero", "report", str(run.path), "--watch"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:")
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert errors.strip() == ""
