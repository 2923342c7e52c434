"""Lines of UCI: commands parsed, infos and best moves written.

The protocol asks engines to ignore what they do not understand; remarks report what was ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import alphazero._core as _core
from alphazero.base.text import quoted, shortened
from alphazero.games.core_types import Line
from alphazero.games.notation import own_texts
from alphazero.games.outside.names import is_outside
from alphazero.games.registry import CHESS
from alphazero.search.snapshot import MoveReport, Snapshot

NULL_MOVE = "0000"
MOST = 10**15  # of a number in `go`
MOST_DIGITS = 100  # that are read of one
NUMBER = re.compile(r"[+-]?[0-9]+")
SET_OPTION = re.compile(r"name\s+(?!value\b)(\S.*?)(?:\s+value(?:\s+(.*))?)?", re.IGNORECASE | re.DOTALL)
PLAIN = ("uci", "isready", "ucinewgame", "stop", "ponderhit", "quit", "register", "debug")
COMMANDS = (*PLAIN, "setoption", "position", "go")
# lc0's conversion of W - L to centipawns (src/search/classic/search.cc, score type "centipawn").
CENTIPAWN_SCALE = 90.0
CENTIPAWN_ANGLE = 1.5637541897


@dataclass(frozen=True)
class Plain:
    """A command of one word."""

    word: str


@dataclass(frozen=True)
class SetOption:
    """`setoption name N [value V]`."""

    name: str
    value: str


@dataclass(frozen=True)
class SetPosition:
    """`position startpos|fen F [moves M...]`; fen "" is the standard start. problem: of any other."""

    fen: str
    moves: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True)
class Go:
    """`go` with its limits; times in milliseconds."""

    wtime: int | None = None
    btime: int | None = None
    winc: int | None = None
    binc: int | None = None
    movestogo: int | None = None
    depth: int | None = None
    nodes: int | None = None
    mate: int | None = None
    movetime: int | None = None
    infinite: bool = False
    ponder: bool = False
    searchmoves: tuple[str, ...] = ()


Command: TypeAlias = Plain | SetOption | SetPosition | Go
OF_CLOCKS = ("winc", "binc", "movestogo")  # which are no limits without one
LIMITS = ("wtime", "btime", "depth", "nodes", "mate", "movetime", "infinite")
NUMBERS = (*OF_CLOCKS, *LIMITS[:-1])
# The least of each number, where it is not 0; a clock that has run out may be below 0.
LEAST = {**dict.fromkeys(("wtime", "btime", "winc", "binc"), -MOST), "mate": 1}
GO_WORDS = tuple(field.name for field in fields(Go))


@dataclass(frozen=True)
class Parsed:
    """A parsed line; command None: not understood. remarks: what was ignored and why."""

    command: Command | None
    remarks: tuple[str, ...] = ()


def parse(line: str) -> Parsed:
    """Parse any line; an empty one gives neither a command nor a remark."""
    words = line.split()
    skipped = next((index for index, word in enumerate(words) if word in COMMANDS), len(words))
    if skipped == len(words):
        return Parsed(None, (f"unknown command: {quoted(line.strip())}",) if words else ())
    remarks = [f"ignored unknown command: {quoted(' '.join(words[:skipped]))}"] if skipped else []
    word, rest = words[skipped], words[skipped + 1 :]
    if word in PLAIN:
        if rest and word not in ("register", "debug"):
            remarks.append(f"{word}: ignored {quoted(' '.join(rest))}")
        return Parsed(Plain(word), tuple(remarks))
    if word == "setoption":
        return _set_option(line.split(None, skipped + 1)[-1] if rest else "", remarks)
    return _position(rest, remarks) if word == "position" else _go(rest, remarks)


def _set_option(text: str, remarks: list[str]) -> Parsed:
    """A value is taken as it stands: names of files may hold several spaces in a row."""
    match = SET_OPTION.fullmatch(text.strip())
    if match is None:
        return Parsed(None, (*remarks, "setoption: expected setoption name NAME [value VALUE]"))
    return Parsed(SetOption(" ".join(match[1].split()), match[2] or ""), tuple(remarks))


def _position(rest: list[str], remarks: list[str]) -> Parsed:
    end = rest.index("moves") if "moves" in rest else len(rest)
    moves = tuple(rest[end + 1 :])
    what = rest[:end]
    if what[:1] == ["startpos"]:
        if what[1:]:
            remarks.append(f"position: ignored {quoted(' '.join(what[1:]))}")
        return Parsed(SetPosition("", moves), tuple(remarks))
    if what[:1] == ["fen"] and len(what) > 1:
        return Parsed(SetPosition(" ".join(what[1:]), moves), tuple(remarks))
    problem = f"{quoted(' '.join(what))}: expected startpos or fen FEN"
    return Parsed(SetPosition("", (), problem), tuple(remarks))


def _go(rest: list[str], remarks: list[str]) -> Parsed:
    """A search has no end where that is asked for, by `go`, `infinite` or `ponder`, not by a bad number."""
    arguments: dict[str, int | bool | tuple[str, ...]] = {}
    at, num_before = 0, len(remarks)
    while at < len(rest):
        word = rest[at]
        at += 1
        if word in ("infinite", "ponder"):
            arguments[word] = True
        elif word == "searchmoves":
            begin = at
            while at < len(rest) and rest[at] not in GO_WORDS:
                at += 1
            arguments[word] = tuple(rest[begin:at])
        elif word in NUMBERS:
            text = rest[at] if at < len(rest) and rest[at] not in GO_WORDS else ""
            at += bool(text)
            least = LEAST.get(word, 0)
            number = _number(text, least)
            if number is None:
                at_least = f" from {least}" if least > -MOST else ""
                remarks.append(f"go {word}: {quoted(text)}: expected a whole number{at_least}; ignored")
            else:
                arguments[word] = number
        else:
            remarks.append(f"go: ignored {quoted(word)}")
    is_mistaken = len(remarks) > num_before or not arguments.keys().isdisjoint(OF_CLOCKS)
    if is_mistaken and arguments.keys().isdisjoint(LIMITS):
        remarks.append("go: no limit is left: the position is evaluated once")
        arguments["nodes"] = 1
    return Parsed(Go(**arguments), tuple(remarks))  # type: ignore[arg-type]  # names and types agree above


def _number(text: str, low: int) -> int | None:
    """A number of plain digits, MOST where it is larger; None for others and those below `low`."""
    number = int(text[:MOST_DIGITS]) if NUMBER.fullmatch(text) else low - 1
    return min(number, MOST) if low <= number else None


def centipawns(q: float) -> int:
    """W - L in centipawns by lc0's formula: 90 * tan(1.5637541897 * q)."""
    return round(CENTIPAWN_SCALE * math.tan(CENTIPAWN_ANGLE * max(-1.0, min(1.0, q))))


def per_mille(wdl: tuple[float, float, float]) -> tuple[int, int, int]:
    """Win, draw, loss in 1/1000, of sum 1000."""
    win, loss = round(1000 * wdl[0]), round(1000 * wdl[2])
    loss = min(loss, 1000 - win)
    return win, 1000 - win - loss, loss


def info_line(
    seen: Snapshot,
    move: MoveReport | None,
    pv: tuple[str, ...],
    *,
    multipv: int = 0,
    shows_wdl: bool = False,
    table_hits: int = 0,
) -> str:
    """The info line of one move of a search (None: of the position); multipv 0 omits that field."""
    of = move or seen
    score = f"cp {centipawns(of.q)}" if of.mate is None else f"mate {of.mate}"
    milliseconds = round(1000 * seen.seconds)
    parts = [
        f"info depth {seen.depth} seldepth {max(seen.seldepth, 1)} time {milliseconds} nodes {seen.nodes}",
        f"score {score}",
    ]
    if shows_wdl:
        parts.append("wdl {} {} {}".format(*per_mille(of.wdl)))
    nps = round(1000 * seen.playouts / max(1, milliseconds))
    parts.append(f"nps {nps} hashfull {seen.hashfull} tbhits {table_hits}")
    if multipv:
        parts.append(f"multipv {multipv}")
    if pv:
        parts.append(f"pv {' '.join(pv)}")
    return " ".join(parts)


def read_move(line: Line, text: str) -> int:
    """A legal move as move_texts writes it. Raises GameError."""
    try:
        return line.text_to_move(text)
    except _core.GameError:
        if is_outside(line.NAME) and text in map(str, line.legal()):
            return int(text)
        raise


def move_texts(line: Line, moves: Sequence[int], *, chess960: bool) -> tuple[str, ...]:
    """Moves from the end of the line as UCI; in games of OpenSpiel and Python an action's number where its
    text is more than one word.
    """
    if line.NAME != CHESS:
        own = zip(own_texts(line, moves), moves, strict=True)
        return tuple(text if len(text.split()) == 1 else str(move) for text, move in own)
    position, texts = _core.ChessPosition(str(line)), []
    for move in moves:
        texts.append(position.uci(move, chess960=chess960))
        position.push(move)
    return tuple(texts)


def info_string(text: str) -> str:
    """A line of text for the user."""
    return f"info string {shortened(text)}"


def best_move_line(move: str, ponder: str = "") -> str:
    """The answer to `go`."""
    return f"bestmove {move} ponder {ponder}" if ponder else f"bestmove {move}"
