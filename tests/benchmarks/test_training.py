"""`alphazero bench training` measures the network that its flags name."""

import itertools

import pytest

from benchmarks import training


class StartedError(Exception):
    """In place of a run; its arguments are the flags."""


@pytest.mark.parametrize(
    ("flags", "network"),
    [((), "6"), (("--blocks", "3"), "3"), (("--config", "chess_bt4"), ""), (("--config=chess_bt4",), "")],
)
def test_a_preset_keeps_its_network(monkeypatch, flags, network):
    def start(flags, *_):
        raise StartedError(*flags)

    monkeypatch.setattr(training, "train_for", start)
    with pytest.raises(StartedError) as started:
        training.train(flags, 1.0)
    given = started.value.args
    assert given[len(given) - len(flags) :] == flags
    # The last one counts.
    blocks = [value for name, value in itertools.pairwise(given) if name == "--blocks"]
    assert (blocks or [""])[-1] == network
