"""The server of `alphazero play --browser`: a page for browsers of this machine, and answers to it alone.

Every program of this machine may fetch the page, which has no secret; only one with the token of the printed
address gets answers. Pages of other sites have no token, and Host and Origin give them away as well.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
from http import HTTPStatus
from typing import Any

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import quoted
from alphazero.show.local_server import LocalHandler, LocalServer
from alphazero.show.play_page.answers import GameAnswers, SearchesFullError

MOST_BYTES = 64 * 1024  # of a request's body
TOKEN_HEADER = "X-Alphazero-Token"
KINDS = ("position", "search", "pgn")


class PlayServer(LocalServer):
    """Serves the page at /, and answers POST /position, /search and /pgn with JSON."""

    def __init__(self, page: bytes, answers: GameAnswers, port: int = 0) -> None:
        """port: 0 takes a free one. Raises ConfigError where it is taken."""
        super().__init__(PlayHandler, port)
        self.page = page
        self.answers = answers
        self.token = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        """Where a browser finds it; the page takes the token out of its address."""
        return f"{super().url}#{self.token}"


class PlayHandler(LocalHandler):
    """Answers one connection."""

    server: PlayServer

    def get(self, path: str) -> None:
        """The page, which is all that / has."""
        if path == "/":
            self.send(HTTPStatus.OK, self.server.page, "text/html")
        else:
            self.send(HTTPStatus.NOT_FOUND, b"expected /\n")

    def do_POST(self) -> None:  # noqa: N802 - of http.server
        """An answer as JSON: {"error": line} where there is none."""
        try:
            status, body = HTTPStatus.OK, self._answer()
        except _RefusedError as error:
            self.close_connection = True  # its body may not have been read
            status, body = error.status, {"error": str(error)}
        except SearchesFullError as error:
            status, body = HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}
        except AlphaZeroError as error:
            status, body = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        self.send(status, json.dumps(body, allow_nan=False).encode(), "application/json")

    def _answer(self) -> dict[str, Any]:
        kind = self.path.removeprefix("/")
        if self.refusal:
            raise _RefusedError(HTTPStatus.FORBIDDEN, self.refusal)
        if self.headers.get("Origin", "") != f"http://{self.headers.get('Host', '')}":
            raise _RefusedError(HTTPStatus.FORBIDDEN, "expected a request of the page itself")
        if not hmac.compare_digest(self.headers.get(TOKEN_HEADER, "").encode(), self.server.token.encode()):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, "the token is missing: expected the address that alphazero play printed"
            )
        if kind not in KINDS:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"expected /{', /'.join(KINDS)}")
        return self.server.answers.answer(kind, self._asked(), self._is_gone)

    def _asked(self) -> dict[str, Any]:
        """The body. Raises _RefusedError before it is read, GameInputError for one that is not an object."""
        if self.headers.get_content_type() != "application/json":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdecimal()):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BYTES:,} bytes")
        body = self.rfile.read(int(length))
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            raise GameInputError(f"{quoted(body[:80])}: expected a JSON object")
        return asked

    def _is_gone(self) -> bool:
        """True where the browser has closed the connection: its tab is gone, or it waits no longer."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


class _RefusedError(Exception):
    """A request that is not answered."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
