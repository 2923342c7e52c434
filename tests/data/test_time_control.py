"""Time controls as PGN writes them, in Lichess's classes (lichess.org/faq#time-controls)."""

import pytest

from alphazero.data.store.game_filters import time_class


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("15+0", "ultrabullet"),
        ("29", "ultrabullet"),
        ("30+0", "bullet"),
        ("0+1", "bullet"),  # 40 s
        ("60+2", "bullet"),  # 140 s
        ("179+0", "bullet"),
        ("180+0", "blitz"),
        ("60+3", "blitz"),  # 180 s
        ("300+4", "blitz"),  # 460 s
        ("480", "rapid"),
        ("600+10", "rapid"),
        ("1499", "rapid"),
        ("1500+0", "classical"),
        ("900+15", "classical"),  # 1,500 s
        ("7200+15", "classical"),
        ("1800+5.232", "classical"),
        ("40/6000:20/3000:1200+10", "classical"),
        ("40/240", "blitz"),
        ("*300", "blitz"),
        ("-", "correspondence"),
        ("1/86400", "correspondence"),
        (" 300+0 ", "blitz"),
        ("?", None),
        ("", None),
        ("15 minutes", None),
        ("300+", None),
        ("-5", None),
        ("1e9", None),
        ("9" * 5000, None),
        ("\u0663\u0660\u0660", None),  # Arabic digits
    ],
)
def test_a_time_control_is_of_a_class(header: str, expected: str | None):
    assert time_class(header) == expected
