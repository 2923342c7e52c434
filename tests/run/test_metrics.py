"""metrics.jsonl of a run that was killed while it wrote a line."""

import json
from functools import partial
from pathlib import Path

import pytest

from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.run.metrics import AllWriters, JsonLinesWriter


def test_figures_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    run = RunDirectory(tmp_path)
    writer = JsonLinesWriter(run)
    for step in (1, 2):
        writer.write("step", step, {"loss": step / 8})
    writer.close()
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[:-7])
    assert RunFigures.read(run).of("step").step.tolist() == [1]
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
    writer.write("alarm", 5, {"cause": "disk", "time_s": 3.0})
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


def test_a_full_disk_is_named_with_the_file(tmp_path):
    run = RunDirectory(tmp_path)
    writer = JsonLinesWriter(run)
    writer._file = Path("/dev/full").open("a", encoding="utf-8")  # noqa: SIM115 - the writer closes it
    for act in (partial(writer.write, "step", 1, {"loss": 0.5}), writer.close):
        with pytest.raises(OSError, match="No space left") as caught:
            act()
        assert str(run.metrics) in str(caught.value)


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
    assert RunFigures.read(run).of("step").step.tolist() == [7, 8]
    assert capsys.readouterr().err == ""
