"""Text for people: counted nouns."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """'1 rank', '2 ranks', '1,024 positions'; `plural` where it is not the noun and an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
