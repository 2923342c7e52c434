"""`alphazero bench gpu`: rehearsed on the CPU; a row that dies costs itself alone; the budget is kept."""

import json
import subprocess
import sys
import time

import pytest

from alphazero.cli.main import main
from benchmarks import gpu
from benchmarks.gpu import Row, measured, rows, text
from tests.support.paths import REPOSITORY

MACHINE = {"device_name": "a GPU", "cores": 1, "commit": "c", "versions": {"torch": "2"}}
QUICK = Row("product", "ceilings", ("--size", "32", "--seconds", "0.01"), 0.0)


def document(found):
    return {"machine": MACHINE, "rehearsal": False, "rows": found}


def all_of(plan, budget_s=60.0):
    *_, last = measured(plan, time.monotonic() + budget_s)
    return last


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """The rehearsal's document on disk. What a busy machine has no time for is left out."""
    out = tmp_path_factory.mktemp("bench") / "gpu.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        flags = ["--device", "cpu", "--rehearse", "--budget", "250", "--out", str(out)]
        assert main(["bench", "gpu", "--json", *flags]) == 0
    return out


@pytest.mark.slow
def test_the_rehearsal_runs_every_row_without_an_error(rehearsed):
    found = json.loads(rehearsed.read_text())
    assert found["bench"] == "gpu" and found["rehearsal"] is True
    assert found["machine"]["versions"]["deepspeed"] and found["machine"]["versions"]["torch"]
    assert [row["name"] for row in found["rows"]] == [row.name for row in rows("cpu", tiny=True)]
    assert [row["error"] for row in found["rows"] if "error" in row] == []
    first = {row["bench"]: row["figures"] for row in found["rows"] if "figures" in row}
    assert {"ceilings", "network", "training"} <= first.keys()
    assert first["training"]["positions_per_s"] > 0


@pytest.mark.slow
def test_the_tables_are_made_from_the_document_and_put_into_a_page(rehearsed, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench gpu: begin -->\nold\n<!-- bench gpu: end -->\nafter\n")
    assert main(["bench", "gpu", "--table", str(rehearsed), "--into", str(page)]) == 0
    printed, written = capsys.readouterr().out, page.read_text()
    assert "rehearsal" in printed and "| training bf16 zero0 8 |" in printed
    assert written.startswith("before\n") and written.endswith("after\n") and "old" not in written
    assert printed.strip() in written


def test_a_row_that_fails_costs_itself_alone_and_is_named():
    bad = Row("bad", "search", ("--game", "go"), 0.0)
    failed, done = all_of([bad, QUICK])
    assert failed["error"].startswith("exit status 2: ") and "--game: 'go'" in failed["error"]
    assert done["figures"]["tflops"] > 0
    table = text(document([failed, done]))
    assert "bad: exit status 2" in table


def test_a_row_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(gpu, "LEAST_LIMIT_S", 1.0)
    begun = time.monotonic()
    (row,) = all_of([Row("endless", "search", ("--seconds", "1000"), 0.0)])
    assert "after 1 second" in row["error"]
    assert time.monotonic() - begun < 20


def test_a_row_without_time_or_packages_is_left_out_and_says_why():
    slow = Row("slow", "search", (), 100.0)
    needy = Row("needy", "training", (), 0.0, ("torch", "no_such_module", "nor_this"))
    found = all_of([slow, needy], budget_s=5.0)
    times, packages = (row["left_out"] for row in found)
    assert "100 s, 5 s were left" in times and packages.endswith(": no_such_module, nor_this")
    assert "left; needy: " in " ".join(text(document(found)).split())


def test_the_plan_names_every_row_once_and_begins_with_what_matters():
    names = [row.name for row in rows("cuda", tiny=False)]
    assert len(names) == len(set(names))
    assert {f"training bf16 zero0 {batch}" for batch in (256, 512, 1024, 2048, 4096)} <= set(names)
    assert {f"training bf16 zero{stage} 1024" for stage in range(4)} <= set(names)
    assert names[0] == "product bf16" and "training bf16 zero0 1024" in names[:12]
    assert {"preset bf16 1024", "training bf16 zero3 1024", "selfplay bf16 10x128 4096"} < set(names[:12])
    assert {"engine bf16 20x256 256", "BT4 bf16 256 backward", "T1 bf16 1024 evaluates"} < set(names[:24])
    assert names.index("selfplay bf16 20x256 512") < names.index("training fp16 zero0 1024")


def test_recordings_are_measured_beside_none_and_fused_inference_beside_plain():
    plan = {row.name: row for row in rows("cuda", tiny=False)}
    for batch in (256, 1024):
        ours = plan[f"training bf16 zero0 {batch} compile"]
        assert "--compile" in ours.flags and "--no-cuda-graphs" not in ours.flags
    assert "--no-cuda-graphs" in plan["training bf16 zero0 1024 no-cuda-graphs"].flags
    assert plan["selfplay bf16 20x256 512 operators"].flags[-2:] == ("--kernels", "operators")


def test_rows_without_needs_import_none_of_the_packages_that_a_bare_machine_lacks():
    benches = {row.bench for row in rows("cuda", tiny=False) if not row.needs}
    assert benches == {"ceilings", "network", "selfplay", "loader", "tree"}
    missing = ("deepspeed", "hjson", "chess", "zstandard", "isal", "pydantic", "bokeh")
    imports = "; ".join(f"import benchmarks.{name}" for name in ("gpu", "measuring.machine", *benches))
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r})); import alphazero.cli.bench; {imports}"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "cpu"], "--device cpu: expected --rehearse with it, or a GPU"),
        (["--device", "cuda", "--rehearse"], "--device cuda: CUDA does not work"),
        (["--rehearse", "--only", "zero9"], "--only zero9: no row; expected a part of a name"),
        (["--into", "page.md"], "--into: expected --table FILE with it"),
        (["--table", "no-such.json"], "no-such.json: "),
        (["--rehearse", "--device", "cpu", "--out", "no/such/file"], "expected a file in a directory"),
    ],
)
def test_a_slip_in_the_flags_is_one_line(flags, message, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["bench", "gpu", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_json_of_another_bench_is_refused(tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"bench": "loader"}))
    assert main(["bench", "gpu", "--table", str(path)]) == 2
    assert "bench gpu, format 2" in capsys.readouterr().err
