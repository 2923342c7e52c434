"""Numbers on the command line: types for argparse whose errors name the value got and the value expected."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from alphazero.settings import MOST, MOST_SEED, range_text
from alphazero.text import quoted

# Bounds of flags, far above every sensible value.
MOST_COUNT = 10**9
MOST_THREADS = 1024
MOST_BATCH = 2**24
MOST_SECONDS = 1e8


def whole(low: int = 0, high: int = MOST) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # no number, or one of more digits than Python reads
            number = low - 1
        if not low <= number <= high:
            raise _error(text, f"a whole number{range_text(low, high)}")
        return number

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise _error(text, f"a number{range_text(low, high)}")
        return value

    return parse


def seconds(low: float = 0.0) -> Callable[[str], float]:
    """A duration of at least `low` seconds."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= MOST_SECONDS:
            raise _error(text, f"seconds{range_text(low, MOST_SECONDS)}")
        return value

    return parse


seed = whole(0, MOST_SEED)
count = whole(1, MOST_COUNT)
threads = whole(1, MOST_THREADS)
batch_size = whole(1, MOST_BATCH)


def _error(text: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{quoted(text)}: expected {expected}")
