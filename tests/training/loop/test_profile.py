"""--profile: the trace of some steps names their parts, on the ranks asked for, and changes nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.support.jobs.jobs import step_lines

PROFILED = ("--profile", "3-4@1")


@pytest.mark.slow
def test_the_trace_of_two_steps_has_their_parts_and_the_run_stays_the_same(
    zygote, tmp_path, random_store
) -> None:
    zygote.run_job(tmp_path / "plain", random_store, 2, "--steps", "6")
    output = zygote.run_job(tmp_path / "profiled", random_store, 2, "--steps", "6", *PROFILED)
    files = [*(tmp_path / "profiled" / "runs" / "job" / "profile").iterdir()]
    assert [file.name for file in files] == ["rank1.3-4.pt.trace.json.gz"]
    assert "profile:" not in output  # rank 1 prints nothing
    names = names_in(files[0])
    assert {"compute", "data", "messages", "gradients"} <= names.keys()
    assert names["messages"] == 2 and names["data"] >= 2
    assert any(name.startswith("aten::") for name in names) and any(
        "AdamW" in name or "SGD" in name for name in names
    )
    lines = [step_lines(tmp_path / each) for each in ("plain", "profiled")]
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]


def names_in(trace: Path) -> dict[str, int]:
    """How often each name occurs among a trace's complete events."""
    counts: dict[str, int] = {}
    for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]:
        if event.get("ph") == "X":
            counts[event["name"]] = counts.get(event["name"], 0) + 1
    return counts


@pytest.mark.slow
def test_a_run_that_ends_amid_its_profile_writes_what_it_has_and_a_wrong_one_is_refused(
    zygote, tmp_path, random_store
) -> None:
    output = zygote.run_job(tmp_path, random_store, 1, "--steps", "3", "--profile", "2-9")
    assert "profile: runs/job/profile/rank0.2-9.pt.trace.json.gz" in output
    assert "compute" in names_in(tmp_path / "runs" / "job" / "profile" / "rank0.2-9.pt.trace.json.gz")
    output = zygote.run_job(tmp_path, random_store, 1, "--profile", "all", status=2)
    assert "--profile" in output and "as 101-103" in output
