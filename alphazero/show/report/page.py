"""The report as one self-contained HTML page, and a server on this machine that keeps it up to date."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files

import chess.svg

from alphazero.base.errors import AlphaZeroError
from alphazero.show.local_server import LocalHandler, LocalServer
from alphazero.show.report.report import RunReport

SCRIPTS = ("dom.js", "charts.js", "boards.js", "games.js", "tree.js", "page.js")
BOKEH_SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")


def page_of(report: RunReport, watch_s: float = 0.0) -> str:
    """The page. watch_s: how often it asks its server for newer data; 0 is never."""
    names = ", ".join(run["name"] for run in report.body["runs"])
    return html_page(
        f"{names} - alphazero report",
        json_of(report),
        asset("style.css"),
        (*_libraries(), *(asset(name) for name in SCRIPTS)),
        connects=watch_s > 0,
        watch=f"{watch_s:g}",
    )


def html_page(
    title: str, data: str, style: str, scripts: Sequence[str], *, connects: bool, **of_body: str
) -> str:
    """A page whose scripts draw it from `data`, JSON. connects: to its server. of_body: data attributes.

    The data is in a block that is not executed, with < > & escaped, and the policy lets the browser run only
    the page's scripts, by their hashes.
    """
    data = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    attributes = "".join(f' data-{name}="{html.escape(value)}"' for name, value in of_body.items())
    pieces = "".join(chess.svg.PIECES.values())  # each under its name
    blocks = "".join(f"<script>{script}</script>\n" for script in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, connects=connects)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body{attributes}>
<header></header>
<main><p>This page needs JavaScript; it is all within it, and nothing is fetched.</p></main>
<footer>made by alphazero</footer>
<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{pieces}</defs></svg>
<script type="application/json" id="data">{data}</script>
{blocks}</body>
</html>
"""


def json_of(report: RunReport) -> str:
    """The report as JSON."""
    return json.dumps(report.to_json(), allow_nan=False, separators=(",", ":"))


def _policy(scripts: Sequence[str], *, connects: bool) -> str:
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    rules = [
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "connect-src 'self'"] if connects else rules)


@cache
def _libraries() -> tuple[str, ...]:
    """Bokeh's scripts as its package has them; a page asks no other server for them."""
    directory = files("bokeh") / "server" / "static" / "js"
    return tuple((directory / name).read_text(encoding="utf-8").strip() for name in BOKEH_SCRIPTS)


def asset(name: str, package: str = "alphazero.show.report") -> str:
    """A script or style sheet of a page."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8").strip()


REFRESH_S = 5.0
# Making a report takes at most this part of the time, however long the run is.
BUSY_SHARE = 0.1


class ReportServer(LocalServer):
    """Serves / and /report.json, from the runs as they are when a browser asks."""

    def __init__(self, make: Callable[[], RunReport], port: int = 0, refresh_s: float = REFRESH_S) -> None:
        """Makes the first report. port: 0 takes a free one. Raises DataError, ConfigError."""
        super().__init__(ReportHandler, port)
        self._make = make
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._answers, self._took_s = self._made()
        self._made_at = time.monotonic()

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


class ReportHandler(LocalHandler):
    """Answers one connection."""

    server: ReportServer

    def get(self, path: str) -> None:
        """The page or its data."""
        if path not in ("/", "/report.json"):
            self.send(HTTPStatus.NOT_FOUND, b"expected / or /report.json\n")
            return
        page, data, tag = self.server.answers()
        if path == "/":
            self.send(HTTPStatus.OK, page, "text/html")
        elif self.headers.get("If-None-Match") == tag:
            self.send(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
        else:
            self.send(HTTPStatus.OK, data, "application/json", tag)
