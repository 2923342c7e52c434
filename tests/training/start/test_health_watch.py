"""Health figures of a run while it trains."""

import json

import pytest

from alphazero.base.files import complete_lines
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters, JsonLinesWriter


@pytest.mark.parametrize(("interval", "expects_figures"), [("0.05", True), ("0", False)])
def test_figures_of_the_host_are_written_as_often_as_asked(
    zygote, tmp_path, random_store, interval: str, expects_figures: bool
):
    said = zygote.run_job(tmp_path, random_store, 2, "--steps", "20", "--health-interval", interval)
    assert "Traceback" not in said
    run = tmp_path / "runs" / "job"
    lines = list(map(json.loads, complete_lines(run / "metrics.jsonl")))
    steps = [line["step"] for line in lines if line["kind"] == "step"]
    assert steps == list(range(1, 21))
    health = [line for line in lines if line["kind"] == "health"]
    if not expects_figures:
        assert health == []
        return
    assert len(health) >= 2
    assert all(line["host/memory_available_gib"] > 0 for line in health)
    assert all(line["host/disk_free_gib"] > 0 for line in health)
    assert [line["step"] for line in health] == sorted(line["step"] for line in health)
    assert all(0 <= line["step"] <= 20 for line in health)


def test_figures_beside_a_step_belong_to_the_newest_and_are_dropped_after_the_end(tmp_path):
    run = RunDirectory(tmp_path)
    writers = AllWriters([JsonLinesWriter(run)], first_step=7)
    writers.write("health", None, {"host/load": 1.0})
    writers.write("step", 9, {"loss": 2.0})
    writers.write("epoch", 1, {"loss": 2.0})
    writers.write("health", None, {"host/load": 3.0})
    writers.close()
    writers.write("health", None, {"host/load": 4.0})
    lines = list(map(json.loads, complete_lines(run.metrics)))
    health = [(line["step"], line["host/load"]) for line in lines if line["kind"] == "health"]
    assert health == [(7, 1.0), (9, 3.0)]
