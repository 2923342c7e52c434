"""A server of pages for browsers of this machine: on 127.0.0.1, and only under a name of this machine."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from alphazero.base.errors import ConfigError

ADDRESS = "127.0.0.1"
OWN_NAMES = (ADDRESS, "localhost")


class LocalServer(ThreadingHTTPServer):
    """Answers browsers of this machine, and those that ssh -L brings here."""

    daemon_threads = True

    def __init__(self, handler: type[LocalHandler], port: int = 0) -> None:
        """port: 0 takes a free one. Raises ConfigError where it is taken."""
        try:
            super().__init__((ADDRESS, port), handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"--port {port}: cannot be opened: {error}; expected a free port, or none for any"
            ) from error

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def serve(self) -> None:
        """Print the address and serve until Ctrl-C."""
        try:
            print(f"{self.url}  (on this machine; Ctrl-C ends it)", flush=True)
            self.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)

    def handle_error(self, request: object, client_address: object) -> None:
        """Report errors, but not that a browser leaves."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class LocalHandler(BaseHTTPRequestHandler, ABC):
    """Answers GET and HEAD by get()."""

    server_version = "alphazero"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    @property
    def refusal(self) -> str:
        """Why the request's Host is refused, "" where it is one of this machine's names.

        A page elsewhere must not read this one by a name that it has pointed at this machine. The port may be
        another: ssh -L gives it one.
        """
        name, _, port = self.headers.get("Host", "").partition(":")
        if name in OWN_NAMES and (not port or port.isdecimal()):
            return ""
        return "expected the address that was printed, at 127.0.0.1 or localhost"

    def do_GET(self) -> None:
        """What get() answers."""
        if self.refusal:
            self.send(HTTPStatus.FORBIDDEN, f"{self.refusal}\n".encode())
        else:
            self.get(self.path.partition("?")[0])

    do_HEAD = do_GET

    @abstractmethod
    def get(self, path: str) -> None:
        """Answer for a path, without its query."""

    def send(self, status: HTTPStatus, body: bytes, kind: str = "text/plain", tag: str = "") -> None:
        """An answer of this content type. tag: its ETag."""
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        if tag:
            self.send_header("ETag", tag)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server cannot read, as a line; a method that nothing answers is the browser's fault."""
        is_unknown = code == HTTPStatus.NOT_IMPLEMENTED
        status = HTTPStatus.METHOD_NOT_ALLOWED if is_unknown else HTTPStatus(code)
        self.close_connection = True
        self.send(status, f"{message or status.phrase}\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a line every few seconds would hide the others."""
