"""`python s3_server.py PORT DIRECTORY`: moto's S3 server as a process, for hosts that reach it by a network.

Like the real service it refuses a request whose clock is more than 15 minutes off. DIRECTORY gets
`archive/`, a copy of every shard that was ever stored; `place/`, the objects of the run as they are now; and
`requests.txt`. While it has a file `reset`, the connection of an upload of a shard is reset: when half of it
has come ("half"), or when it is stored and the answer due ("stored").
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from calendar import timegm
from pathlib import Path

from moto.s3.models import S3Backend, s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

from tests.support.actors.s3 import BUCKET

MOST_SKEW_S = 900
SKEWED = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"


def keep_copies(directory: Path) -> None:
    """Have the backend copy what it stores, before it answers."""
    put, delete = S3Backend.put_object, S3Backend.delete_object

    def put_object(self, bucket_name, key_name, value, *others, **named):
        stored = put(self, bucket_name, key_name, value, *others, **named)
        if not key_name.endswith("/"):  # the mark of a folder, which pyarrow writes after it deletes in it
            parts = key_name.split("/")
            if parts[1] == "games":
                write(directory / "archive" / f"{parts[2]}-{parts[3]}", value)
            write(directory / "place" / "/".join(parts[1:]), value)
        return stored

    def delete_object(self, bucket_name, key_name, *others, **named):
        (directory / "place" / key_name.partition("/")[2]).unlink(missing_ok=True)
        return delete(self, bucket_name, key_name, *others, **named)

    S3Backend.put_object, S3Backend.delete_object = put_object, delete_object


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{time.monotonic_ns()}")
    temporary.write_bytes(content)
    temporary.replace(path)


class Service:
    """The application around moto's: clocks that are off, connections that are reset."""

    def __init__(self, directory: Path) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._reset, self._log = directory / "reset", (directory / "requests.txt").open("a", buffering=1)

    def __call__(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        signed = environ.get("HTTP_X_AMZ_DATE")
        self._log.write(f"{time.time():.1f} {environ['REMOTE_ADDR']} {method} {path} {signed}\n")
        if signed and abs(timegm(time.strptime(signed, "%Y%m%dT%H%M%SZ")) - time.time()) > MOST_SKEW_S:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self._log.write("skewed\n")
            start_response("403 Forbidden", [("Content-Length", str(len(SKEWED)))])
            return [] if method == "HEAD" else [SKEWED]
        if method == "PUT" and "/games/" in path and (how := self._how()):
            if how == "half":
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 2) // 2)
            else:
                b"".join(self._moto(environ, lambda *_: None))
            self._log.write(f"reset {how}\n")
            connection: socket.socket = environ["werkzeug.socket"]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(connection.detach())
            raise ConnectionAbortedError
        return self._moto(environ, start_response)

    def _how(self) -> str:
        """How uploads of shards end now; "" for well."""
        try:
            return self._reset.read_text()
        except FileNotFoundError:
            return ""


class Handler(WSGIRequestHandler):
    """As a service answers: connections stay open; nothing on standard error."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        pass


def main() -> None:
    port, directory = int(sys.argv[1]), Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    keep_copies(directory)
    s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
    run_simple("0.0.0.0", port, Service(directory), threaded=True, request_handler=Handler)


if __name__ == "__main__":
    main()
