"""How long a run is, and what it tells of its epochs."""

import json
import math

import pytest

from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from tests.support.data.stores import write_random_store
from tests.support.jobs.jobs import step_lines


def test_epochs_are_counted_in_samples_and_their_means_are_those_of_their_steps(zygote, tmp_path):
    store = tmp_path / "eight"
    write_random_store(store, num_games=8)
    train, _ = Window.of_stores([GameStore.open(store)]).split(0.05)
    output = zygote.run_job(tmp_path, store, 1, "--epochs", "1.5")
    steps = step_lines(tmp_path)
    assert len(steps) == math.ceil(1.5 * train.num_samples / 128)
    lines = map(json.loads, (tmp_path / "runs/job/metrics.jsonl").read_text().splitlines())
    (epoch,) = [line for line in lines if line["kind"] == "epoch"]
    in_epoch = steps[: math.ceil(train.num_samples / 128)]
    assert epoch["step"] == 1
    assert epoch["loss"] == pytest.approx(sum(line["loss"] for line in in_epoch) / len(in_epoch), rel=1e-9)
    assert "epoch 1 ended" in output
