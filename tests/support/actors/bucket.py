"""A bucket on a host of its own (s3_server.py), as other hosts of the network reach it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.support.actors.s3 import BUCKET
from tests.support.hosts.hosts import Host
from tests.support.jobs.jobs import environment
from tests.support.paths import REPOSITORY

PORT = 5000
VARIABLES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Bucket:
    """Answers when it is made; ends with its host."""

    def __init__(self, host: Host, directory: Path) -> None:
        self.directory = directory / "bucket"
        self.place = f"s3://{BUCKET}/run?endpoint_override={host.address}:{PORT}&scheme=http&region=us-east-1"
        self.directory.mkdir()
        program = REPOSITORY / "tests" / "support" / "actors" / "s3_server.py"
        words = (sys.executable, str(program), str(PORT), str(self.directory))
        log = self.directory / "said.txt"
        host.popen(*words, cwd=REPOSITORY, stdout=log.open("w"), stderr=subprocess.STDOUT, env=environment())
        deadline = time.monotonic() + 60
        look = f"import socket; socket.create_connection(('127.0.0.1', {PORT}))"
        while subprocess.run(host.argv(sys.executable, "-c", look), capture_output=True).returncode:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)

    @property
    def archive(self) -> Path:
        """Copies of all shards that were ever stored."""
        return self.directory / "archive"

    @property
    def objects(self) -> Path:
        """Copies of what is there now."""
        return self.directory / "place"

    @property
    def reset(self) -> Path:
        """While it is there, uploads of shards are reset."""
        return self.directory / "reset"

    def requests(self) -> str:
        """A line each, and what was said to them where it was no answer of moto's."""
        return (self.directory / "requests.txt").read_text()
