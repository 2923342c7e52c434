"""The report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files

import chess.svg

from alphazero.show.report.report import RunReport

SCRIPTS = ("dom.js", "charts.js", "boards.js", "games.js", "tree.js", "page.js")
BOKEH_SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")


def page_of(report: RunReport, watch_s: float = 0.0) -> str:
    """The page. watch_s: how often a browser reloads it; 0 is never.

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
<meta http-equiv="Content-Security-Policy" content="{_policy()}">
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


def _policy() -> str:
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in (*_libraries(), *_own_scripts()))
    rules = [
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


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
