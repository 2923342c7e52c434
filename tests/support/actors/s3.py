"""S3's interface on this machine, by moto; and a service that refuses everything with one code."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest

BUCKET = "games-of-many"


def s3_url(port: int) -> str:
    """A place in the bucket of a service on this port of this machine."""
    where = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://{BUCKET}/run?{where}"


class LocalS3:
    """moto's server: what was stored stays when it stops and starts again."""

    def __init__(self) -> None:
        server = pytest.importorskip("moto.server")
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._make = server.ThreadedMotoServer
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()
        self.backend.create_bucket(BUCKET, "us-east-1")

    @property
    def backend(self):
        """moto's own store of objects, behind its server."""
        from moto.s3.models import s3_backends

        return s3_backends["123456789012"]["aws"]

    def start(self) -> None:
        self._server = self._make("127.0.0.1", self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def close(self) -> None:
        self.stop()
        self.backend.reset()


def refusing(code: str, status: int) -> contextlib.AbstractContextManager[str]:
    """The URL of a place at a service that answers every request so."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    return _service(lambda path: (status, body))


def listing(names: list[str], requests: list[str]) -> contextlib.AbstractContextManager[str]:
    """The URL of a place with objects of these names, listed as S3 does; requests gets what was asked for."""

    def answer(path: str) -> tuple[int, bytes]:
        requests.append(path)
        query = dict(parse_qsl(urlsplit(path).query))
        first = int(query.get("continuation-token", 0))
        last = first + int(query["max-keys"])
        keys = "".join(
            f"<Contents><Key>run/{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<Size>20000</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for name in names[first:last]
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < len(names) else ""
        is_cut = str(bool(more)).lower()
        head = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        text = (
            f"{head}<Name>{BUCKET}</Name><IsTruncated>{is_cut}</IsTruncated>{more}{keys}</ListBucketResult>"
        )
        return 200, text.encode()

    return _service(answer)


@contextlib.contextmanager
def _service(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield s3_url(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
