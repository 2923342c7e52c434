"""metrics.jsonl of a run that was killed while it wrote a line."""

import json

import pytest

from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters, JsonLinesWriter, read_metrics


def test_figures_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    run = RunDirectory(tmp_path)
    writer = JsonLinesWriter(run)
    for step in (1, 2):
        writer.write("step", step, {"loss": step / 8})
    writer.close()
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[:-7])
    assert [line["step"] for line in read_metrics(run, "step")] == [1]
    writer = JsonLinesWriter(run, 1)
    writer.write("step", 2, {"loss": 2 / 8})
    writer.close()
    assert run.metrics.read_bytes() == whole


@pytest.mark.parametrize("again", [JsonLinesWriter, None], ids=["a new start", "a return within the run"])
def test_the_file_has_each_step_once(tmp_path, again):
    run = RunDirectory(tmp_path)
    writer = JsonLinesWriter(run)
    lines = [("self_play", step, {"games": 8.0}) for step in (0, 2, 4)]
    lines += [("step", step, {"loss": step / 8}) for step in range(1, 6)]
    lines += [("epoch", number, {"ended_in_step": 2.0 * number}) for number in (1, 2)]
    lines += [("validation", 2, {"policy_top1": 0.5}), ("validation", 4, {"policy_top1": 0.6})]
    for line in lines:
        writer.write(*line)
    writer.event("alarm", 5, {"cause": "disk", "time_s": 3.0})
    if again:
        writer.close()
        writer = again(run, 2)
    else:
        writer.rewind(2)
    kept = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    found = [(line["kind"], line["step"]) for line in kept]
    assert found == [
        *[("self_play", 0), ("step", 1), ("step", 2), ("epoch", 1), ("validation", 2), ("alarm", 5)]
    ]
    for line in lines:
        if (line[0], line[1]) not in found:
            writer.write(*line)
    writer.close()
    assert len(run.metrics.read_text().splitlines()) == len(lines) + 1


def test_damaged_lines_are_passed_over_with_a_line(tmp_path, capsys):
    run = RunDirectory(tmp_path)
    good = [b'{"kind": "step", "step": %d, "loss": 0.5}' % step for step in (1, 2)]
    bad = [
        b'{"kind": "step", "st',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"[1]",
        b'{"kind": "step"}',
        b'{"kind": "step", "step": "three", "loss": 1}',
        b'{"kind": "step", "step": ' + b"9" * 5000 + b"}",
        b"",
    ]
    run.metrics.write_bytes(b"\n".join([good[0], *bad, good[1], b""]))
    assert [line["step"] for line in read_metrics(run, "step")] == [1, 2]
    error = capsys.readouterr().err
    assert error == f"{run.metrics}:2: no JSON of a step; passed over 8 damaged lines\n"


def test_an_event_has_text_and_the_step_that_was_written_last(tmp_path, capsys):
    run = RunDirectory(tmp_path)
    writers = AllWriters([JsonLinesWriter(run)])
    writers.write("step", 7, {"loss": 0.5})
    writers.event("alarm", {"cause": "disk", "text": "the disk fills", "share": 0.25})
    writers.event("alarm", {"cause": "disk", "text": "again", "time_s": 3.0})
    writers.write("step", 8, {"loss": 0.25})
    writers.close()
    writers.event("alarm", {"cause": "after the end"})
    lines = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    first, second = (line for line in lines if line["kind"] == "alarm")
    assert first.pop("time_s") > 1e9
    assert first == {"kind": "alarm", "step": 7, "cause": "disk", "text": "the disk fills", "share": 0.25}
    assert second["time_s"] == 3.0
    assert [line["step"] for line in read_metrics(run, "step")] == [7, 8]
    assert capsys.readouterr().err == ""
