"""What a [TimeControl] header of PGN says, as one of Lichess's classes of speed."""

from __future__ import annotations

import re

CORRESPONDENCE = "correspondence"
# Seconds that 40 moves may take a player, below which a game is of the class (lichess.org/faq#time-controls).
_BOUNDS = (("ultrabullet", 30.0), ("bullet", 180.0), ("blitz", 480.0), ("rapid", 1500.0))
_SLOWEST = "classical"
_TYPICAL_MOVES = 40

# PGN standard, 9.6.1: fields of moves/seconds, seconds, seconds+increment or *seconds, divided by colons.
_FIELD = re.compile(
    r"(?:(?P<moves>[0-9]{1,4})/|\*)?(?P<base>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
    r"(?:\+(?P<increment>[0-9]{1,9}(?:\.[0-9]{1,9})?))?(?::.*)?",
    re.ASCII | re.DOTALL,
)


def time_class(header: str) -> str | None:
    """The class of a time control by its first field: its seconds and 40 increments; None if it is not known.

    '-' and one move in so many seconds ('1/86400') are correspondence.
    """
    header = header.strip()
    if header == "-":
        return CORRESPONDENCE
    found = _FIELD.fullmatch(header)
    if found is None:
        return None
    if found["moves"] is not None and int(found["moves"]) <= 1:
        return CORRESPONDENCE
    seconds = float(found["base"]) + _TYPICAL_MOVES * float(found["increment"] or 0)
    return next((name for name, bound in _BOUNDS if seconds < bound), _SLOWEST)
