"""`alphazero bench training` measures the network that its flags name."""

import itertools

import pytest

from benchmarks import training


@pytest.mark.parametrize(
    ("flags", "network"),
    [((), "6"), (("--blocks", "3"), "3"), (("--config", "chess_bt4"), ""), (("--config=chess_bt4",), "")],
)
def test_a_preset_keeps_its_network(monkeypatch, flags, network):
    given = []
    monkeypatch.setattr(training, "train_for", lambda flags, *_: given.extend(flags) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training.train(flags, 1.0)
    blocks = [value for name, value in itertools.pairwise(given) if name == "--blocks"]
    assert blocks[-1:] == [network] * bool(network)
    assert given[-len(flags) :] == list(flags) or not flags
