"""Text for people."""

import pytest

from alphazero.base.text import (
    counted,
    exit_text,
    near_match,
    one_of,
    quoted,
    reason,
    shortened,
    signed,
    table,
)


def test_nouns_are_counted():
    assert [counted(number, "rank") for number in (0, 1, 2, 1024)] == [
        "0 ranks",
        "1 rank",
        "2 ranks",
        "1,024 ranks",
    ]
    assert counted(2, "batch", "batches") == "2 batches"


def test_a_sign_is_never_that_of_zero():
    assert [signed(value, 1) for value in (17.44, -17.44, -0.04, -0.0, 0.04)] == [
        "+17.4",
        "-17.4",
        "+0.0",
        "+0.0",
        "+0.0",
    ]
    assert [signed(value) for value in (-0.4, -0.6, 1500.2)] == ["+0", "-1", "+1500"]


def test_a_long_value_is_cut_and_an_unprintable_number_is_described():
    assert quoted("x") == "'x'"
    assert quoted("y" * 1000) == "'" + "y" * 39 + "... (1,002 characters)"
    assert len(quoted(1 << 100_000)) < 80
    nest: list[object] = []
    for _ in range(100_000):
        nest = [nest]
    assert len(quoted(nest)) < 80


def test_the_reason_of_an_error_is_one_short_line():
    assert reason(ValueError("a\n  b")) == "a b"
    assert reason(ValueError()) == "ValueError"
    assert reason(ValueError("x" * 1000)) == "x" * 300 + "... (1,000 characters)"


def test_the_nearest_known_word_is_named():
    assert near_match("blokcs", ["blocks", "filters"]) == "blocks"
    assert near_match("seed", ["blocks", "filters"]) == ""
    flags = ["--hostfile", "--game", "--heads", "--data", "--warmup-steps"]
    assert near_match("--Host_fiel", flags) == "--hostfile"
    assert near_match("--warmup", flags) == "--warmup-steps"
    for other_meaning in ("--profile", "--name", "--threads", "--beta1", "--l"):
        assert near_match(other_meaning, flags) == ""
    assert one_of("blokcs", ["blocks", "filters"]).startswith("did you mean blocks?")
    assert one_of("seed", ["blocks", "filters"]).endswith("one of blocks, filters")


def test_columns_are_as_wide_as_their_widest_cell_and_nothing_trails():
    rows = [("name", "count", "note"), ("a", "1,024", ""), ("longer", "7", "x")]
    assert table(rows, "lr") == ["name    count  note", "a       1,024", "longer      7  x"]
    assert table([]) == []


def test_a_text_from_outside_stays_on_one_line():
    assert shortened("a key\nwith\x1b[31m colours\udc80") == "a key\\nwith\\x1b[31m colours\\udc80"
    assert shortened("naïve") == "naïve"
    assert shortened("z" * 500).endswith("... (500 characters)")


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (7, "ended with exit status 7"),
        (-9, "was killed by SIGKILL: perhaps out of memory, see dmesg"),
        (-40, "was killed by signal 40"),  # a real-time signal has no name
    ],
)
def test_the_end_of_a_process_in_words(exit_code: int, text: str):
    assert exit_text(exit_code) == text
