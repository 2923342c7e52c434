"""The report as one self-contained HTML page, and a server on this machine that keeps it up to date."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import chess.svg

from alphazero.base.errors import AlphaZeroError, ConfigError
from alphazero.show.report.report import RunReport

SCRIPTS = ("dom.js", "charts.js", "boards.js", "games.js", "tree.js", "page.js")
BOKEH_SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")


def page_of(report: RunReport, watch_s: float = 0.0) -> str:
    """The page. watch_s: how often it asks its server for newer data; 0 is never.

    The data is in a block that is not executed, with < > & escaped, and the policy lets the browser run only
    the page's scripts, by their hashes.
    """
    libraries = "".join(f"<script>{script}</script>\n" for script in _libraries())
    scripts = "".join(f"<script>{script}</script>\n" for script in _own_scripts())
    data = json_of(report).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    pieces = "".join(chess.svg.PIECES.values())  # each under its name
    names = html.escape(", ".join(run["name"] for run in report.body["runs"]))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(is_watched=watch_s > 0)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{names} - alphazero report</title>
<style>{_asset("style.css")}</style>
</head>
<body data-watch="{watch_s:g}">
<header></header>
<main><p>This page needs JavaScript; it is all within it, and nothing is fetched.</p></main>
<footer>made by alphazero report</footer>
<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{pieces}</defs></svg>
<script type="application/json" id="data">{data}</script>
{libraries}{scripts}</body>
</html>
"""


def json_of(report: RunReport) -> str:
    """The report as JSON."""
    return json.dumps(report.to_json(), allow_nan=False, separators=(",", ":"))


def _policy(*, is_watched: bool) -> str:
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in (*_libraries(), *_own_scripts()))
    rules = [
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "connect-src 'self'"] if is_watched else rules)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _libraries() -> tuple[str, ...]:
    """Bokeh's scripts as its package has them; a page asks no other server for them."""
    directory = files("bokeh") / "server" / "static" / "js"
    return tuple((directory / name).read_text(encoding="utf-8").strip() for name in BOKEH_SCRIPTS)


@cache
def _own_scripts() -> tuple[str, ...]:
    return tuple(_asset(name).strip() for name in SCRIPTS)


def _asset(name: str) -> str:
    return (files("alphazero.show.report") / "assets" / name).read_text(encoding="utf-8")


ADDRESS = "127.0.0.1"
REFRESH_S = 5.0
# Making a report takes at most this part of the time, however long the run is.
BUSY_SHARE = 0.1


class ReportServer(ThreadingHTTPServer):
    """Serves / and /report.json, made anew while they are asked for, to browsers of this machine."""

    daemon_threads = True

    def __init__(self, make: Callable[[], RunReport], port: int = 0, refresh_s: float = REFRESH_S) -> None:
        """Makes the first report. port: 0 takes a free one. Raises DataError, and ConfigError."""
        self._make = make
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._answers, self._took_s = self._made()
        self._made_at = time.monotonic()
        try:
            super().__init__((ADDRESS, port), Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"--port {port}: cannot be opened: {error}; expected a free port, or none for any"
            ) from error

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def answers(self) -> tuple[bytes, bytes, str]:
        """The newest page, its data and their ETag; the last ones where a run cannot be read now."""
        with self._lock:
            wait_s = max(self._refresh_s / 2, self._took_s / BUSY_SHARE)
            if time.monotonic() - self._made_at >= wait_s:
                with contextlib.suppress(AlphaZeroError):  # a run that is removed or started again
                    self._answers, self._took_s = self._made()
                self._made_at = time.monotonic()
            return self._answers

    def _made(self) -> tuple[tuple[bytes, bytes, str], float]:
        started, report = time.monotonic(), self._make()
        data = json_of(report).encode()
        without_time = data.replace(report.body["made"].encode(), b"")
        tag = f'"{hashlib.sha256(without_time).hexdigest()[:32]}"'
        return (page_of(report, self._refresh_s).encode(), data, tag), time.monotonic() - started

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that leaves is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


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
                HTTPStatus.FORBIDDEN, b"expected the address printed by alphazero report\n", "text/plain"
            )
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/report.json"):
            self._send(HTTPStatus.NOT_FOUND, b"expected / or /report.json\n", "text/plain")
            return
        page, data, tag = self.server.answers()
        if path == "/":
            self._send(HTTPStatus.OK, page, "text/html")
        elif self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
        else:
            self._send(HTTPStatus.OK, data, "application/json", tag)

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
        """Log nothing: a line every few seconds would hide the others."""
