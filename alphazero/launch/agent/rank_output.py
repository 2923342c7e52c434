"""What a host's ranks print: read through a FIFO each, kept in a log file each, passed to the head."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import shutil
import struct
import tempfile
import termios
import tty
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from alphazero.base.log import stamped
from alphazero.launch.agent.protocol import Output

MAX_LINE = 1 << 16
MAX_ERROR = 500
# What names a cause: our own one-line errors, the last line of a traceback (which torch marks), and what C++
# and the interpreter say before they abort ("Fatal Python error: Aborted" adds nothing to the signal).
ERROR_LINE = re.compile(
    r"alphazero: error: .*|(\[rank\d+\]: )?([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit)\b.*"
    r"|terminate called .*|what\(\): .*|FATAL: .*"
    r"|Fatal Python error: (?!Aborted|Segmentation fault|Bus error|Illegal instruction|Floating).*"
)
MARK = re.compile(r"^\[rank\d+\]: ")


class OutputStream:
    """One source of output: to its log file with the time of each line, to the head by lines or in pieces."""

    def __init__(self, rank: int | None, log: Path, by_lines: bool, send: Callable[[Output], None]) -> None:
        self.rank = rank
        self.log = log
        self.error = ""  # the last line that looks like one
        self._by_lines = by_lines
        self._send = send
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._file: BinaryIO | None = None
        with contextlib.suppress(OSError):  # a full or read-only disk: the head still gets the output
            log.parent.mkdir(parents=True, exist_ok=True)
            self._file = log.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """What the source wrote last."""
        text = self._decoder.decode(data)
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[-MAX_LINE:]
        # A terminal's bar is drawn over and over, without an end of its line.
        self._keep("".join(stamped(f"{line}\n") for line in lines).encode() if self._by_lines else data)
        for line in lines:
            if ERROR_LINE.fullmatch(bare := line.strip().rpartition("\r")[2]):
                self.error = MARK.sub("", bare)[:MAX_ERROR]
        if not self._by_lines:
            self._send(Output(self.rank, text))
        elif lines:
            self._send(Output(self.rank, "\n".join(lines) + "\n"))

    def _keep(self, data: bytes) -> None:
        """Append to the log file, as long as that goes."""
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._file = None
            self._send(Output(None, f"{self.log}: cannot be written: {error.strerror}\n"))

    def close(self) -> None:
        """No more comes: an unfinished line is a line."""
        if self._rest and self._by_lines:
            self.write(b"\n")
        if self._file is not None:
            self._file.close()


class RankOutputs:
    """A private directory with a FIFO (or, for a person's terminal, a terminal) for each local rank.

    The ranks open it themselves (run/rank.py, begin): torchrun has one output for all of them.
    """

    def __init__(self, num_ranks: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="alphazero-"))
        self._num_ranks = num_ranks
        self._kept_open: list[int] = []

    def open(self, terminal_rank: int | None, columns: int) -> list[int]:
        """Non-blocking descriptors to read from, by local rank."""
        descriptors = []
        for local_rank in range(self._num_ranks):
            path = self.directory / str(local_rank)
            if local_rank == terminal_rank:
                reader, writer = os.openpty()
                tty.setraw(writer)  # a newline stays a newline
                fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                path.write_text(os.ttyname(writer), encoding="utf-8")
                self._kept_open.append(writer)  # reading fails while no process has it open
            else:
                os.mkfifo(path, 0o600)
                reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # for writing too: it never ends
            os.set_blocking(reader, False)
            descriptors.append(reader)
        self._kept_open += descriptors
        return descriptors

    def close(self) -> None:
        """Remove the directory."""
        for descriptor in self._kept_open:
            os.close(descriptor)
        shutil.rmtree(self.directory, ignore_errors=True)
