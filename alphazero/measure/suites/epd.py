"""Test suites of chess positions (EPD): moves to find and to avoid, and whether a player does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import alphazero._core as _core
from alphazero.base.errors import DataError, GameInputError
from alphazero.base.text import quoted, reason, shortened
from alphazero.data.formats.pgn import text_lines
from alphazero.games.core_types import Line
from alphazero.games.notation import move_text, read_move
from alphazero.games.registry import make_line
from alphazero.play.matches.players import ChooseMoves
from alphazero.search.game_trees import GameTrees
from alphazero.search.tree_search import SearchLimits

WHAT = "EPD positions"
POSITION_FIELDS = 4
AT_ONCE = 64  # trees that share batches
# `bm Nf3 e4;`, `id "BK.01";`: the last one may lack its end.
_OPERATION = re.compile(r"""\s*([A-Za-z]\w*)((?:\s+(?:"[^"]*"|[^\s;"]+))*)\s*(?:;|$)""")
_COUNTERS = re.compile(r"\s*(\d+)\s+(\d+)(?=\s|$)")  # those of a FEN, which some suites have


@dataclass(frozen=True)
class EpdPosition:
    """name: its id, else file and line. best: the moves of bm, any where there are none. avoid: of am.

    wanted: both as the file has them.
    """

    name: str
    fen: str
    best: frozenset[int]
    avoid: frozenset[int]
    wanted: str

    def line(self) -> Line:
        """The position to play from."""
        return make_line("chess", self.fen)

    def is_solved_by(self, move: int) -> bool:
        """Whether it is one of the best, if these are known, and none to avoid."""
        return move not in self.avoid and (not self.best or move in self.best)


@dataclass(frozen=True)
class EpdAnswer:
    """move: as SAN. within: the nodes from which on the search's best move was a solution, to its end.

    None where it was none in the end, and without a search.
    """

    move: str
    solved: bool
    within: int | None = None


def read_epd(path: Path) -> list[EpdPosition]:
    """The positions of a file, plain or packed; empty lines and those of # are left out.

    Raises DataError naming file, line and value.
    """
    found = [
        _position(f"{path}:{number}", f"{path.name}:{number}", text.strip())
        for number, text in enumerate(text_lines(path, WHAT), start=1)
        if text.strip() and not text.lstrip().startswith("#")
    ]
    if not found:
        raise DataError(f"{path}: no position; expected lines of EPD with bm or am")
    return found


def _position(place: str, name: str, text: str) -> EpdPosition:
    fields = text.split(maxsplit=POSITION_FIELDS)
    rest = fields[POSITION_FIELDS] if len(fields) > POSITION_FIELDS else ""
    counters = _COUNTERS.match(rest)
    fen = " ".join([*fields[:POSITION_FIELDS], *(counters.groups() if counters else ("0", "1"))])
    try:
        line = make_line("chess", fen)
    except GameInputError as error:
        raise DataError(f"{place}: {reason(error)}; expected a position of EPD") from error
    operations = dict(_operations(place, rest[counters.end() :] if counters else rest))
    if line.outcome().over:
        raise DataError(f"{place}: {quoted(fen)}: the game is over; expected a position with a move to find")
    moves = {}
    for opcode in ("bm", "am"):
        try:
            moves[opcode] = frozenset(read_move(line, word) for word in operations.get(opcode, "").split())
        except GameInputError as error:
            raise DataError(f"{place}: {opcode} {error}") from error
    wanted = "; ".join(f"{opcode} {operations[opcode]}" for opcode in moves if moves[opcode])
    if not wanted:
        raise DataError(f"{place}: {quoted(text)}: expected bm or am with a move, as 'bm Nf3;'")
    name = shortened(operations.get("id", "").strip('"') or name)
    return EpdPosition(name, fen, moves["bm"], moves["am"], wanted)


def _operations(place: str, text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip(" \t;"):
        match = _OPERATION.match(text, at)
        if match is None:
            raise DataError(f"{place}: {quoted(text[at:].strip())}: expected operations, as 'bm Nf3;'")
        yield match[1], match[2].strip()
        at = match.end()


def answers_alone(positions: Sequence[EpdPosition], player: ChooseMoves) -> list[EpdAnswer]:
    """Of a player without a search."""
    lines = [position.line() for position in positions]
    return [
        EpdAnswer(move_text(line, move), position.is_solved_by(move))
        for position, line, move in zip(positions, lines, player(lines), strict=True)
    ]


def answers_of_search(
    positions: Sequence[EpdPosition], trees: GameTrees, nodes: int, more: Callable[[int], None]
) -> list[EpdAnswer]:
    """Of the engine's search, many positions at a time. more: called with nodes searched."""
    right_since: dict[int, int | None] = {}
    seen: dict[int, int] = {}

    def watch(number: int, view: _core.SearchView) -> None:
        is_right = positions[number].is_solved_by(view.moves[0].move)
        since = right_since.get(number)
        right_since[number] = (since or view.nodes) if is_right else None
        more(view.nodes - seen.get(number, 0))
        seen[number] = view.nodes

    answers = []
    for begin in range(0, len(positions), AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, len(positions)))
        lines = {number: positions[number].line() for number in numbers}
        views = trees.search(lines, SearchLimits(nodes=nodes), watch)
        for (number, line), view in zip(lines.items(), views, strict=True):
            watch(number, view)  # a proof may have ended it after its last batch
            more(nodes - view.nodes)
            trees.leave(number)
            move, within = view.moves[0].move, right_since[number]
            answers.append(EpdAnswer(move_text(line, move), within is not None, within))
    return answers


def steps_to(nodes: int, most: int = 6) -> list[int]:
    """`nodes`, half of them, a quarter, ..., ascending, for a table of how many are solved within each."""
    steps = [nodes >> halvings for halvings in range(most) if nodes >> halvings]
    return sorted(set(steps))
