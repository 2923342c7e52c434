"""`alphazero bench gpu`: rehearsed in full on the CPU; what dies costs one row; the budget is kept."""

import json
import sys
import time

import pytest

from alphazero.base.errors import TrainingError
from alphazero.cli.main import main
from alphazero.training.ranks.batch import plan_batches
from benchmarks.gpu_rows.budget import Budget, measure_rows
from benchmarks.gpu_rows.crew import Worker
from benchmarks.gpu_rows.document import document
from benchmarks.gpu_rows.plan import FULL, MODES, PRECISIONS, STAGES, TINY, modes, rows
from benchmarks.gpu_rows.row import Result, Row
from benchmarks.measuring.trainer_bench import RepeatedBatches

# A worker that does what an order says: figures, an exception's answer, its own death, silence.
ODD_WORKER = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    kind = order["kind"]
    if kind == "die":
        print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    if kind == "hang":
        time.sleep(1000)
    answer = {"error": "OutOfMemoryError: 80 GiB"} if kind == "fail" else {"figures": {"pid": os.getpid()}}
    print(json.dumps(answer), flush=True)
"""


def odd_worker():
    return Worker([sys.executable, "-c", ODD_WORKER])


def measure(kinds, total_s=60.0, expected_s=0.01):
    results = []
    budget = Budget(total_s)
    rows = [Row(kind, f"{number} {kind}", {}, expected_s) for number, kind in enumerate(kinds)]
    measure_rows(rows, budget, results.append, odd_worker)
    return results, budget


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """The rehearsal's document, as JSON on disk. What a busy machine has no time for is left out."""
    out = tmp_path_factory.mktemp("bench") / "gpu.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        flags = ["--device", "cpu", "--rehearse", "--without", "compiled", "--budget", "50"]
        assert main(["bench", "gpu", "--json", *flags, "--out", str(out), "--commit", "a-name"]) == 0
    return out


@pytest.mark.slow
def test_the_rehearsal_runs_every_kind_of_row_without_an_error(rehearsed):
    found = json.loads(rehearsed.read_text())
    assert found["bench"] == "gpu" and found["rehearsal"] is True and found["machine"]["commit"] == "a-name"
    assert found["machine"]["versions"]["deepspeed"] and found["machine"]["versions"]["torch"]
    assert found["summary"]["rows_failed"] == [], found["rows"]
    measured = {row["kind"] for row in found["rows"] if row["figures"]}
    assert {"matmul", "convolutions", "training"} <= measured
    every = {row.name for row in rows(TINY, "cpu", ["compiled"])}
    assert {row["name"] for row in found["rows"]} == every
    assert all(row["figures"] or row["dropped"] for row in found["rows"])
    first = next(row for row in found["rows"] if row["kind"] == "training" and row["figures"])
    assert first["figures"]["positions_per_s"] > 0 and first["figures"]["share_of_bf16_matmul"] > 0


@pytest.mark.slow
def test_the_tables_are_made_from_the_document_and_put_into_a_page(rehearsed, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench gpu: begin -->\nold\n<!-- bench gpu: end -->\nafter\n")
    assert main(["bench", "gpu", "--table", str(rehearsed), "--into", str(page)]) == 0
    printed, written = capsys.readouterr().out, page.read_text()
    assert "A rehearsal at tiny sizes" in printed and "| bf16 zero0 eager 8 |" in printed
    assert written.startswith("before\n") and written.endswith("after\n") and "old" not in written
    assert printed.strip() in written


def test_a_row_that_dies_costs_itself_alone_and_is_named():
    results, _ = measure(["good", "die", "good", "fail", "good"])
    assert [bool(result.figures) for result in results] == [True, False, True, False, True]
    assert results[1].error == "the process ended with signal SIGKILL: CUDA error: an illegal memory access"
    assert results[3].error == "OutOfMemoryError: 80 GiB"
    # After an error CUDA may be of no use any more in that process.
    assert len({result.figures["pid"] for result in results if result.figures}) == 3


def test_a_row_that_hangs_is_ended_by_the_budget_and_what_follows_is_left_out():
    begun = time.monotonic()
    results, budget = measure(["good", "hang", "good"], total_s=4.0)
    assert time.monotonic() - begun < 20
    assert results[1].dropped.startswith("not done in the ")
    found = document({}, TINY, results, budget, rehearsal=True)
    assert found["summary"]["rows_dropped"][0] == "1 hang"


def test_what_is_expected_to_take_longer_than_is_left_is_not_begun():
    results, _ = measure(["good", "good"], total_s=5.0, expected_s=100.0)
    assert [result.dropped for result in results] == ["expected to take 100 s, 5 s were left"] * 2


def test_the_budget_learns_from_rows_of_the_same_pace():
    budget, slow = Budget(100.0), Row("training", "a", {}, 10.0, "eager")
    budget.learn(slow, 30.0)
    assert budget.expected_s(Row("training", "b", {}, 8.0, "eager")) == pytest.approx(24.0)
    assert budget.expected_s(Row("training", "c", {}, 8.0, "compiled")) == 8.0


def test_the_full_plan_has_every_batch_precision_stage_and_mode_once_and_begins_with_what_matters():
    plan = rows(FULL, "cuda")
    names = [row.name for row in plan]
    assert len(names) == len(set(names))
    table = {
        f"training {precision} zero{stage} {mode} {batch}"
        for precision in PRECISIONS
        for mode in modes()
        for stage in ((0,) if mode == "graphed" else STAGES)
        for batch in (256, 512, 1024, 2048, 4096)
    }
    assert table <= set(names)
    assert names[0] == "matmul bf16" and "training bf16 zero0 eager 1024" in names[:12]
    assert names.index("selfplay bf16 512") < names.index("training fp16 zero3 eager 256")


def test_modes_whose_setting_this_version_lacks_have_no_rows():
    assert set(modes()) <= set(MODES) and "eager" in modes() and "compiled" in modes()
    assert "compiled" not in modes(["compiled"])
    assert not any(modes()["eager"].values()) and modes()["compiled"]["compile"] is True


def test_micro_batches_that_do_not_fit_are_a_failed_row_and_not_smaller_ones():
    plan = plan_batches(64, 32, [1.0], "cpu")
    source = RepeatedBatches(plan, [])
    assert next(source.steps(plan, 0, 1)) == []
    with pytest.raises(TrainingError, match="micro-batches of 32 do not fit into device memory"):
        next(source.steps(plan.with_micro_batch_size(16), 0, 1))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "cpu"], "--device cpu: expected --rehearse with it, or a GPU"),
        (["--device", "cuda", "--rehearse"], "--device cuda: CUDA does not work"),
        (["--into", "page.md"], "--into: expected --table FILE with it"),
        (["--table", "no-such.json"], "no-such.json: "),
        (["--without", "eagre"], "did you mean eager?"),
        (["--rehearse", "--device", "cpu", "--out", "no/such/file"], "expected a file in a directory"),
    ],
)
def test_a_slip_in_the_flags_is_one_line(flags, message, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["bench", "gpu", *flags]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1


def test_the_json_of_another_bench_is_refused(tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"bench": "loader"}))
    assert main(["bench", "gpu", "--table", str(path)]) == 2
    assert "expected the JSON of alphazero bench gpu, format 1" in capsys.readouterr().err


def test_a_failed_row_stands_in_the_tables_with_its_error():
    from benchmarks.gpu_rows.table import text

    rows = [Result(Row("training", "training bf16 zero0 eager 8", {}, 1), error="OutOfMemoryError: 80 GiB")]
    machine = {"device_name": "a GPU", "cores": 1, "commit": "c", "versions": {"torch": "2"}}
    told = text(document(machine, TINY, rows, Budget(1), rehearsal=False))
    assert "Failed: training bf16 zero0 eager 8: OutOfMemoryError: 80 GiB" in told
