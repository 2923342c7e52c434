"""Which rank shows an error that all ranks raise alike: one for each terminal that people look at."""

import pytest

from alphazero.run.rank import ONE_HEAD_VARIABLE, shows_common_errors


@pytest.mark.parametrize(
    ("environment", "shows"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "1", "LOCAL_RANK": "1"}, False),
        ({"RANK": "4", "LOCAL_RANK": "0"}, True),  # a node started by hand, with a terminal of its own
        ({"RANK": "5", "LOCAL_RANK": "1"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0", ONE_HEAD_VARIABLE: "1"}, True),
        ({"RANK": "4", "LOCAL_RANK": "0", ONE_HEAD_VARIABLE: "1"}, False),
    ],
)
def test_one_rank_for_each_terminal_shows_it(environment, shows):
    assert shows_common_errors(environment) is shows
