"""The processes that measure: one at a time, replaced after an error, ended when it is over time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from alphazero.base.text import counted, shortened

CHECKOUT = Path(__file__).resolve().parents[2]
WORKER = (sys.executable, "-m", "benchmarks.gpu_rows.worker")
# Importing torch and DeepSpeed from a cold disk.
START_LIMIT_S = 120.0
END_LIMIT_S = 5.0


class Worker:
    """A process that answers orders. Raises nothing: what goes wrong is the answer's error."""

    def __init__(self, argv: Sequence[str] = WORKER) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # compilers that it starts end with it
        )
        self._unread = b""

    def wait_until_ready(self) -> str:
        """Why it did not start, "" where it did."""
        error: str = self._answer(START_LIMIT_S).get("error", "")
        return error

    def measure(self, kind: str, settings: object, limit_s: float) -> dict[str, Any]:
        """{"figures": ...} or {"error": ...} of one row."""
        assert self._process.stdin is not None
        order = json.dumps({"kind": kind, "settings": settings}).encode() + b"\n"
        try:
            self._process.stdin.write(order)
            self._process.stdin.flush()
        except BrokenPipeError:
            return {"error": self._death()}
        return self._answer(limit_s)

    def end(self) -> None:
        """Ask it to end, and make sure."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # then by force
            self._process.wait(END_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):  # it left nothing behind
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _answer(self, limit_s: float) -> dict[str, Any]:
        """The next line it writes."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return {"error": f"not done after {counted(round(limit_s), 'second')}", "over_time": True}
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return {"error": self._death()}
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> str:
        """How the process ended, with its last words."""
        try:
            status = self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "the process closed its output and went on"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f"the process ended with {how}" + (f": {shortened(lines[-1])}" if lines else "")
