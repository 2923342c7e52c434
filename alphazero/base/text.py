"""Text of messages: counted nouns, quoted values, near matches, tables; words that are not UTF-8."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import PurePath

QUOTED_WIDTH = 80
DASHES = str.maketrans("", "", "-_")
REASON_WIDTH = 300  # of a library's message about a file


def counted(number: int, noun: str, plural: str = "") -> str:
    """'1 rank', '2 ranks', '1,024 positions'; `plural` where it is not the noun and an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def quoted(value: object) -> str:
    """repr of a value from outside for a message of one line, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out a whole number of thousands of digits
        return "a number of thousands of digits"
    except RecursionError:
        return "a value nested too deeply to be shown"
    if len(text) <= QUOTED_WIDTH:
        return text
    return f"{text[: QUOTED_WIDTH // 2]}... ({len(text):,} characters)"


def reason(error: BaseException) -> str:
    """An error's message, on one line and cut where it is long: libraries quote whole files."""
    return shortened(" ".join(str(error).split()) or type(error).__name__)


def shortened(text: str) -> str:
    """A text from outside for a message of one line: cut where it is long, what cannot be printed escaped."""
    text = escaped(text)
    if len(text) <= REASON_WIDTH:
        return text
    return f"{text[:REASON_WIDTH]}... ({len(text):,} characters)"


def escaped(text: str, kept: str = "") -> str:
    """A text from outside for a terminal or a log: what cannot be printed, less `kept`, becomes \\x1b, \\n.

    Names of files, settings of a run and tags of a game may hold anything, also what moves the cursor.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in kept else repr(sign)[1:-1] for sign in text)


def last_line(text: str) -> str:
    """The last line that is not empty, "" where there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def signal_name(number: int) -> str:
    """'SIGKILL'; 'signal 40' for one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_text(exit_code: int) -> str:
    """How a process ended, for messages: 'ended with exit status 3'; -N is a death by signal N."""
    if exit_code >= 0:
        return f"ended with exit status {exit_code}"
    hint = ": perhaps out of memory, see dmesg" if exit_code == -signal.SIGKILL else ""
    return f"was killed by {signal_name(-exit_code)}{hint}"


def near_match(word: str, known: Iterable[str]) -> str:
    """The known word that was misspelt, or of which `word` is the beginning; "" where there is none."""
    words = list(known)
    begun = (name for name in words if len(word) > 2 and name.startswith((f"{word}-", f"{word}_")))
    return next(itertools.chain((name for name in words if _is_misspelt(word, name)), begun), "")


def _is_misspelt(word: str, known: str) -> bool:
    """True for a letter more, less or another one, or two that changed places, but for the first letter."""
    one, other = (text[:QUOTED_WIDTH].lower().translate(DASHES) for text in (word, known))
    shorter = min(len(one), len(other))
    start = next((index for index in range(shorter) if one[index] != other[index]), shorter)
    rest, other_rest = one[start:], other[start:]
    is_swapped = rest[1::-1] == other_rest[:2] and rest[2:] == other_rest[2:]
    is_one = rest[1:] == other_rest[1:] or rest[1:] == other_rest or rest == other_rest[1:]
    return start > 0 and shorter > 2 and (is_swapped or is_one)


def one_of(word: str, known: Iterable[str]) -> str:
    """'expected one of A, B', after 'did you mean A?' where a known word is near."""
    names = list(known)
    listed = f"xpected one of {', '.join(names)}"
    near = near_match(word, names)
    return f"did you mean {near}? E{listed}" if near else f"e{listed}"


def table(rows: Sequence[Sequence[str]], align: str = "") -> list[str]:
    """One line per row with its cells, escaped, in columns, two spaces apart.

    align: a letter per column, 'l' or 'r'; columns beyond it are aligned to the left.
    """
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    letters = align.ljust(len(widths), "l")

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if letter == "r" else cell.ljust(width)
            for cell, width, letter in zip(row, widths, letters, strict=True)
        )
        return "  ".join(cells).rstrip()

    return [line(row) for row in rows]


def signed(value: float, digits: int = 0) -> str:
    """A number with its sign, +17.4; 0 is +0, from whichever side it was rounded."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def printable(path: PurePath | str) -> str:
    """A file's name as text that any file or terminal takes: bytes that are no UTF-8 become \\xff."""
    return escaped(os.fsencode(path).decode("utf-8", "backslashreplace"))


def as_utf8(text: str) -> str:
    """Words of a command line with '?' for each byte that was not UTF-8: the C++ core takes no others."""
    return text.encode("utf-8", "replace").decode("utf-8")
