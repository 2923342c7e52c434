"""Queries read ahead of the analysis server, by a thread, to a bounded size."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import IO, TypeAlias

from alphazero.play.analysis.query import Query, QueryAction, QueryDefaults, QueryError, read_query

LONGEST_LINE = 2**20  # bytes of a query
MOST_HELD = 2**24  # bytes of the queries that are read ahead

Item: TypeAlias = Query | QueryAction | QueryError


class Inbox:
    """Queries read and not yet handled, of a bounded size: a program that sends more waits."""

    def __init__(self, lines: IO[bytes], defaults: QueryDefaults) -> None:
        self._lines, self._defaults = lines, defaults
        self._changed = threading.Condition()
        self._items: deque[tuple[Item, int]] = deque()
        self._held = 0
        self._is_over = False
        self._error: Exception | None = None
        threading.Thread(target=self._read, name="queries", daemon=True).start()

    def take(self, *, wait: bool) -> tuple[list[tuple[Item, int]], bool]:
        """What has been read, each with its bytes, and whether that is all. wait: until there is news."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._items or self._is_over)
            if self._error is not None:
                raise self._error
            items = list(self._items)
            self._items.clear()
            return items, self._is_over

    def release(self, size: int) -> None:
        """Bytes of a query that is handled."""
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            for number, raw in enumerate(self._whole_lines(), start=1):
                if not raw.isspace():
                    self._put(self._item(raw, number), len(raw))
        except Exception as error:  # of any kind: take() raises it
            self._error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _item(self, raw: bytes, number: int) -> Item:
        if len(raw) > LONGEST_LINE:
            return QueryError(f"line {number}: more than {LONGEST_LINE:,} bytes")
        try:
            return read_query(raw, number, self._defaults)
        except QueryError as error:
            return error

    def _put(self, item: Item, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._held < MOST_HELD)
            self._held += size
            self._items.append((item, size))
            self._changed.notify_all()

    def _whole_lines(self) -> Iterator[bytes]:
        """Lines; of one that is too long the beginning."""
        while raw := self._lines.readline(LONGEST_LINE + 1):
            rest = raw
            while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
                rest = self._lines.readline(LONGEST_LINE + 1)
            yield raw
