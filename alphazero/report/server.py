"""Serves a report on this machine alone, and makes it anew while its runs go on."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from alphazero.errors import AlphaZeroError, ConfigError
from alphazero.report.html_page import json_of, page_of
from alphazero.report.report import Report

ADDRESS = "127.0.0.1"
REFRESH_S = 5.0
# Making a report takes at most this part of the time, however long the run is.
BUSY_SHARE = 0.1
# Files of a run that say that there is something new.
WATCHED_FILES = ("metrics.jsonl", "validation.jsonl", "ratings.jsonl", "games/manifest.json")


@dataclass(frozen=True)
class Answers:
    """What is served: the page, its data, and a tag by which the data is known."""

    page: bytes
    data: bytes
    tag: str


class WatchedReport:
    """The newest report of runs that go on, made anew when one of their files has changed."""

    def __init__(
        self, paths: Sequence[Path], make: Callable[[], Report], refresh_s: float = REFRESH_S
    ) -> None:
        """Makes the first report. Raises DataError."""
        self._paths = paths
        self._make = make
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._seen = self._state()
        self._answers, self._took_s = self._made()
        self._made_at = time.monotonic()

    def answers(self) -> Answers:
        """The newest word; the one before where a run cannot be read at this moment."""
        with self._lock:
            wait_s = max(self._refresh_s / 2, self._took_s / BUSY_SHARE)
            if time.monotonic() - self._made_at < wait_s:
                return self._answers
            state = self._state()
            if state != self._seen:
                try:
                    self._answers, self._took_s = self._made()
                    self._seen = state
                except AlphaZeroError:
                    pass  # a run that is removed or begun anew: what was last known stays
                self._made_at = time.monotonic()
            return self._answers

    def _made(self) -> tuple[Answers, float]:
        started = time.monotonic()
        report = self._make()
        data = json_of(report).encode()
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        answers = Answers(page_of(report, self._refresh_s).encode(), data, tag)
        return answers, time.monotonic() - started

    def _state(self) -> list[tuple[str, int, int]]:
        state = []
        for path in self._paths:
            for name in WATCHED_FILES:
                try:
                    status = (path / name).stat()
                except OSError:
                    continue
                state.append((str(path / name), status.st_size, status.st_mtime_ns))
        return state


class ReportServer(ThreadingHTTPServer):
    """Two addresses, / and /report.json, for browsers of this machine."""

    daemon_threads = True

    def __init__(self, watched: WatchedReport, port: int = 0) -> None:
        """port: 0 takes a free one. Raises ConfigError where it is taken."""
        try:
            super().__init__((ADDRESS, port), Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"--port {port}: cannot be opened: {error}; expected a free port, or none for any"
            ) from error
        self.watched = watched

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{ADDRESS}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: ReportServer
    server_version = "alphazero"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """The page or its data."""
        # A page elsewhere must not read a report by a name that it has pointed at this machine.
        own = [f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")]
        if self.headers.get("Host", "") not in own:
            self._send(
                HTTPStatus.FORBIDDEN, b"expected the address that alphazero report told\n", "text/plain"
            )
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/report.json"):
            self._send(HTTPStatus.NOT_FOUND, b"expected / or /report.json\n", "text/plain")
            return
        answers = self.server.watched.answers()
        if path == "/":
            self._send(HTTPStatus.OK, answers.page, "text/html")
        elif self.headers.get("If-None-Match") == answers.tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", answers.tag)
        else:
            self._send(HTTPStatus.OK, answers.data, "application/json", answers.tag)

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line every few seconds would hide the others."""
