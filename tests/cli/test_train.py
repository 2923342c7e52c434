"""`alphazero train`: what it passes on when it starts the ranks itself."""

import pytest

from alphazero.run.next_command import without


@pytest.mark.parametrize(
    ("typed", "passed_on"),
    [
        (["--world-size", "8", "--steps", "3"], ["--steps", "3"]),
        (["--steps", "3", "--world-size=8"], ["--steps", "3"]),
        (["--run-name", "train", "--world-size", "2"], ["--run-name", "train"]),
    ],
)
def test_the_world_size_alone_is_taken_away(typed, passed_on):
    assert without(typed, "--world-size") == passed_on
