"""Hidden dependence on history: positions that look the same to the network and have different futures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

MOST_SHOWN = 40  # moves of a line
# Positions, and moves from them, that are remembered, of some 250 bytes each.
MOST_REMEMBERED = 200_000

# A game's moves, and how many of them led there: the lists are shared by all positions of the game.
Place: TypeAlias = tuple[list[int], int]


@dataclass
class AlikePositions:
    """What followed where the network saw the same before.

    legal: a hash of the legal actions, by what was seen. ends: by what was seen and the action taken, the
    returns where it ended the game and () where it did not. notes: for each kind of difference the shortest
    pair of lines found, with its length.
    """

    legal: dict[bytes, tuple[int, Place]] = field(default_factory=dict)
    ends: dict[tuple[bytes, int], tuple[tuple[float, ...], Place]] = field(default_factory=dict)
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)

    def compare_legal(self, seen: bytes, legal: list[int], place: Place) -> None:
        """seen: what the network gets, or a digest of it, with the player to move. legal: sorted."""
        now = hash(tuple(legal))
        if seen not in self.legal and len(self.legal) < MOST_REMEMBERED:
            self.legal[seen] = now, place
        before, first = self.legal.get(seen, (now, place))
        if before != now:
            self._note("their legal actions", "", first, place)

    def compare_end(self, seen: bytes, action: int, returns: tuple[float, ...], place: Place) -> None:
        """place: before the action."""
        if (seen, action) not in self.ends and len(self.ends) < MOST_REMEMBERED:
            self.ends[seen, action] = returns, place
        before, first = self.ends.get((seen, action), (returns, place))
        if before != returns:
            kind = "the result" if before and returns else "whether the game ends"
            self._note(kind, f" after action {action}", first, place)

    def lines(self) -> list[str]:
        """A line for each kind of difference."""
        return [line for _, line in self.notes.values()]

    def _note(self, kind: str, after: str, first: Place, second: Place) -> None:
        length = first[1] + second[1]
        if kind in self.notes and self.notes[kind][0] <= length:
            return
        moves = " and ".join(_text_of(moves[:ply]) for moves, ply in (first, second))
        what = f"two positions look the same and differ in {kind}{after}"
        self.notes[kind] = length, f"observation_tensor: {what} (the moves: {moves})"


def _text_of(moves: list[int]) -> str:
    """'4,0,8', or how many there are of a long line."""
    if len(moves) > MOST_SHOWN:
        return f"a line of {len(moves)}"
    return ",".join(map(str, moves)) or "none"
