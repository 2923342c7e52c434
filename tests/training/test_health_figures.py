"""The health of the host is written beside the figures of training."""

import json

from alphazero.files import complete_lines


def health_lines(directory):
    lines = map(json.loads, complete_lines(directory / "runs/job/metrics.jsonl"))
    return [line for line in lines if line["kind"] == "health"]


def test_health_is_written_as_often_as_asked(zygote, tmp_path, random_store):
    zygote.run_job(tmp_path / "often", random_store, 2, "--steps", "40", "--health-interval", "0.1")
    lines = health_lines(tmp_path / "often")
    assert len(lines) >= 3
    assert lines[-1]["step"] > lines[0]["step"]
    assert lines[-1]["host/memory_available_gib"] > 0
    zygote.run_job(tmp_path / "never", random_store, 1, "--steps", "4", "--health-interval", "0")
    assert health_lines(tmp_path / "never") == []
