"""`make test-gpu`, `make bench-gpu`: what is lacking is named, the budget kept, every gpu test found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tools import gpu_proof

TESTS = """
import time
import pytest
from tests.support.gpu import need

gpu = pytest.mark.gpu

@gpu(order=9, seconds=1)
def test_late():
    pass

@gpu(order=1, seconds=1)
def test_early():
    time.sleep(0.1)

@gpu(order=2, seconds=1)
def test_that_fails():
    assert 1 == 2, "one is not two"

@gpu(order=3, seconds=1000)
def test_too_long():
    pass

@gpu(order=4, seconds=1)
def test_of_a_package(record_property):
    record_property("fill", 0.5)
    need("json", "no_such_module")

def test_of_no_gpu():
    pass
"""


# Each says from when to when it ran.
SIDE_BY_SIDE = """
import time
from pathlib import Path
import pytest

gpu = pytest.mark.gpu

@pytest.mark.parametrize("number", range(4))
@gpu(seconds=1)
def test_in_company(number):
    note(number, 0.5)

@gpu(order=1, seconds=1, alone=True)
def test_alone():
    note("alone", 0.2)

def note(name, seconds):
    begin = time.monotonic()
    time.sleep(seconds)
    (Path(__file__).parent / f"{name}.ran").write_text(f"{begin} {time.monotonic()}")
"""


def run_tests(place, tests, *more):
    """The report on a file of tests, by the plugin."""
    (place / "test_here.py").write_text(tests)
    flags = ["-m", "gpu", "--gpu-budget=60", f"--gpu-report={place / 'out.json'}", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", "-p", "tests.support.gpu_budget", *flags, *more, str(place)]
    subprocess.run(
        [*argv, "--rootdir", str(place), "-c", "/dev/null"],
        cwd=REPOSITORY,
        env=gpu_proof.environment_of(rehearse=True),
        capture_output=True,
        timeout=120,
    )
    return json.loads((place / "out.json").read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of one process."""
    return run_tests(tmp_path_factory.mktemp("proof"), TESTS)


@pytest.mark.slow
def test_tests_run_side_by_side_but_for_the_one_that_wants_to_be_alone(tmp_path):
    report = run_tests(tmp_path, SIDE_BY_SIDE, "--numprocesses=2", "--maxschedchunk=1")
    assert report["summary"]["passed"] == 5 and report["machine"]["versions"]["torch"]
    ran = {path.stem: tuple(map(float, path.read_text().split())) for path in tmp_path.glob("*.ran")}
    begin, end = ran.pop("alone")
    assert all(stop < begin or start > end for start, stop in ran.values())
    assert sum(stop - start for start, stop in ran.values()) > 1.1 * (
        max(stop for _, stop in ran.values()) - min(start for start, _ in ran.values())
    )


@pytest.mark.slow
def test_the_report_has_every_test_in_order_of_importance_with_its_outcome(report):
    names = [name.split("::")[-1] for name in report["tests"]]
    assert names == ["test_early", "test_that_fails", "test_too_long", "test_of_a_package", "test_late"]
    outcomes = {name.split("::")[-1]: test["outcome"] for name, test in report["tests"].items()}
    assert outcomes["test_early"] == outcomes["test_late"] == "passed"
    assert outcomes["test_that_fails"] == "failed" and outcomes["test_too_long"] == "skipped"
    failed = next(test for name, test in report["tests"].items() if name.endswith("fails"))
    assert "not two" in failed["why"]


@pytest.mark.slow
def test_the_report_says_what_the_time_did_not_hold_and_on_what_it_ran(report):
    dropped = [name.split("::")[-1] for name in report["summary"]["left_out_for_time"]]
    assert dropped == ["test_too_long"]
    assert report["summary"]["passed"] == 2 and report["summary"]["failed"] == 1
    assert report["rehearsal"] is True and report["machine"]["versions"]["torch"]


@pytest.mark.slow
def test_the_report_names_packages_that_are_missing_and_has_the_figures_of_tests(report):
    assert report["summary"]["left_out_for_packages"] == {"no_such_module not installed": 1}
    (figures,) = [test["figures"] for test in report["tests"].values() if "figures" in test]
    assert figures == {"fill": 0.5}


# Packages that a machine with torch may lack.
WITHOUT = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
for name in sys.argv[2].split(","):
    importlib.import_module(name)
"""


def test_what_a_job_and_the_proof_import_needs_no_package_that_only_some_uses_need():
    missing = "deepspeed,chess,zstandard,isal,hjson,pydantic,bokeh,xdist,selenium"
    modules = "alphazero.training.start.train,alphazero.cli.training.train,tests.conftest"
    modules += ",alphazero.play.selfplay,tests.support.gpu_budget," + ",".join(
        str(path.relative_to(REPOSITORY).with_suffix("")).replace("/", ".")
        for path in gpu_proof.gpu_test_files()
    )
    argv = [sys.executable, "-c", WITHOUT, missing, modules]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_a_fork_in_which_cuda_would_not_work_becomes_a_new_python(tmp_path):
    script, output = tmp_path / "script.py", tmp_path / "output"
    script.write_text("import sys; print(sys.argv[1:], 'torch' in sys.modules)")
    task = {
        **{"core": None, "directory": str(tmp_path), "output": str(output), "script": str(script)},
        **{"arguments": ["--flag"], "environment": {"PATH": "/usr/bin:/bin"}},
    }
    program = f"import torch; from tests.support.jobs.zygote_process import run_rank; run_rank({task}, %s)"
    for can_continue in (True, False):
        argv = [sys.executable, "-c", program % can_continue]
        subprocess.run(argv, cwd=REPOSITORY, check=True, timeout=120)
    assert output.read_text().splitlines() == ["['--flag'] True", "['--flag'] False"]


def test_the_files_with_tests_marked_gpu_are_found():
    """By their text; collected by pytest they are the same."""
    found = {str(path.relative_to(REPOSITORY)) for path in gpu_proof.gpu_test_files()}
    assert "tests/training/loop/test_cuda.py" in found
    assert "tests/network/inference/test_evaluator_cuda.py" in found
    mentioned = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        if "mark.gpu" in path.read_text() or "support.gpu import" in path.read_text()
    }
    assert found == mentioned - {"tests/benchmarks/test_gpu_proof.py"}


def test_what_an_interpreter_lacks_is_named_in_one_line():
    environment = gpu_proof.environment_of(rehearse=False)
    told = gpu_proof.lacking({"json": "json", "no_such_module": "no-such-package"}, environment)
    assert "lacks no-such-package" in told and "BUNDLE=" in told
    assert gpu_proof.lacking({"json": "json"}, environment) == ""


def test_the_core_is_built_for_the_interpreter_that_runs_the_proof():
    configure, build = gpu_proof.core_commands("cmake")
    assert f"-DPython_EXECUTABLE={sys.executable}" in configure
    assert build[:2] == ["cmake", "--build"] and "_core" in build


def test_a_proof_that_does_not_end_is_ended(monkeypatch, capsys):
    monkeypatch.setattr(gpu_proof, "LIMIT_S", 0.5)
    assert gpu_proof.run([sys.executable, "-c", "import time; time.sleep(100)"], {}) == 1
    assert "ended after 0.5 s" in capsys.readouterr().err


def test_both_proofs_fit_into_nine_minutes():
    assert gpu_proof.BUDGET_S < gpu_proof.LIMIT_S < 9 * 60
    test = gpu_proof.test_command(Path("out"), [], rehearse=False)
    bench = gpu_proof.bench_command(Path("out"), [], rehearse=False)
    assert f"--gpu-budget={gpu_proof.BUDGET_S}" in test and f"--budget={gpu_proof.BUDGET_S}" in bench
