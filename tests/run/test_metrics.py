"""metrics.jsonl of a run that was killed while it wrote a line."""

from alphazero.run.metrics import JsonLinesWriter
from alphazero.run.run_directory import RunDirectory, read_metrics


def test_figures_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    run = RunDirectory(tmp_path)
    writer = JsonLinesWriter(run)
    for step in (1, 2):
        writer.write("step", step, {"loss": step / 8})
    writer.close()
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[:-7])
    assert [line["step"] for line in read_metrics(run, "step")] == [1]
    writer = JsonLinesWriter(run)
    writer.write("step", 2, {"loss": 2 / 8})
    writer.close()
    assert run.metrics.read_bytes() == whole
