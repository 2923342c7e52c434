"""The shares of a step's time in real runs on the CPU."""

import json

import pytest

from alphazero.base.files import complete_lines

PARTS = {"compute", "data_wait", "communication", "checkpoint", "host_overhead"}


@pytest.mark.parametrize("stage", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_shares_of_two_ranks_add_up_to_one_and_know_no_gpus(zygote, tmp_path, random_store, stage):
    arguments = ("--steps", "12", "--log-interval", "4", "--zero-stage", str(stage))
    said = zygote.run_job(tmp_path, random_store, 2, *arguments)
    lines = list(map(json.loads, complete_lines(tmp_path / "runs" / "job" / "metrics.jsonl")))
    shares = [line for line in lines if line["kind"] == "time_share"]
    assert [line["step"] for line in shares] == [4, 8, 12]
    for line in shares:
        assert set(line) == PARTS | {"kind", "step", "slowest_rank"}
        assert sum(line[part] for part in PARTS) == pytest.approx(1.0, abs=1e-9)
        assert all(0 <= line[part] <= 1 for part in PARTS)
        assert line["compute"] > 0
        assert line["communication"] > 0
        assert line["slowest_rank"] in (0, 1)
    assert not any("gpu" in name for line in lines for name in line)
    assert {line["kind"] for line in lines} <= {
        "step",
        "speed",
        "time_share",
        "epoch",
        "validation",
        "health",
    }
    assert "GPUs" not in said
