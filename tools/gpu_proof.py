"""The proof on a machine with a GPU, in the interpreter that runs this: no set-up, no network.

    python3 -m tools.gpu_proof test|bench [--out DIRECTORY] [--rehearse] [ARGUMENTS]

test: every test marked gpu. bench: `alphazero bench gpu`, which leaves out rows whose packages are missing.
Each leaves one JSON document in the directory of --out within nine minutes. What needs a package that the
interpreter lacks, such as DeepSpeed, is skipped by its name. The C++ core is built by cmake where it is not
there yet. Further arguments go to pytest or to the benchmark. See docs/gpu.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE_BUILD = ROOT / "build" / f"gpu-core-{sys.implementation.cache_tag}"
# Modules without which nothing runs, by the package that has them; what needs more is skipped.
NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "safetensors": "safetensors",
    "tqdm": "tqdm",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
}
NEEDED_BY_TESTS = {"pytest": "pytest", "hypothesis": "hypothesis", "pytest_timeout": "pytest-timeout"}
GPU_MARK = re.compile(r"^ *@?(pytest\.mark\.gpu|on_gpu|on_cuda)\b", re.MULTILINE)
# After which a proof is ended, whatever it is doing; its own budget is shorter.
LIMIT_S = 535
BUDGET_S = 500
MISSING = 2


def main(argv: Sequence[str]) -> int:
    """Prepare what is lacking, then run the tests or the benchmark."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.gpu_proof", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=("test", "bench"))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="directory of the results")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, where no GPU is")
    args, passed_on = parser.parse_known_args(argv)
    environment = environment_of(args.rehearse)
    needed = {**NEEDED, **(NEEDED_BY_TESTS if args.what == "test" else {})}
    if fault := lacking(needed, environment) or core_fault(environment):
        print(f"gpu_proof: {fault}", file=sys.stderr)
        return MISSING
    out: Path = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    command = test_command if args.what == "test" else bench_command
    return run(command(out, passed_on, rehearse=args.rehearse), environment)


def environment_of(rehearse: bool) -> dict[str, str]:
    """Of everything that is started: the checkout comes first."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path}
    if rehearse:
        environment |= {"ALPHAZERO_REHEARSE_GPU": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return environment


def lacking(needed: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Which packages cannot be found, "" where all are there."""
    places = environment["PYTHONPATH"].split(os.pathsep)
    sys.path[:0] = [place for place in places if place not in sys.path]
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return ""
    names = ", ".join(missing)
    return f"{sys.executable} lacks {names}; expected them there, or make test-gpu BUNDLE=DIRECTORY"


def core_fault(environment: Mapping[str, str]) -> str:
    """Build the C++ core where this interpreter has none; why that failed, "" where it is there."""
    check = [sys.executable, "-c", "import alphazero._core"]
    if subprocess.run(check, env=environment, cwd=ROOT, capture_output=True).returncode == 0:
        return ""
    cmake = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
    if cmake is None:
        return "the C++ core is not built and there is no cmake (3.20 or newer)"
    if importlib.util.find_spec("nanobind") is None:
        return "the C++ core is not built and nanobind (2.9 or newer) is not installed"
    for command in core_commands(cmake):
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return f"{' '.join(command[:2])} failed:\n{(done.stdout + done.stderr)[-3000:]}"
    done = subprocess.run(check, env=environment, cwd=ROOT, capture_output=True, text=True)
    return f"the C++ core was built and cannot be imported: {done.stderr[-500:]}" if done.returncode else ""


def core_commands(cmake: str) -> list[list[str]]:
    """Configure and build, for the interpreter that runs this."""
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [cmake, "-S", str(ROOT), "-B", str(CORE_BUILD), *ninja, "-DALPHAZERO_PYTHON=ON"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}"]
    jobs = str(len(os.sched_getaffinity(0)))
    return [configure, [cmake, "--build", str(CORE_BUILD), "--parallel", jobs, "--target", "_core"]]


def test_command(out: Path, passed_on: Sequence[str], *, rehearse: bool) -> list[str]:
    """Every test marked gpu within the budget, several at a time where pytest-xdist is installed."""
    at_a_time = ["--numprocesses=auto", "--maxschedchunk=1"] if importlib.util.find_spec("xdist") else []
    report = [f"--gpu-budget={BUDGET_S}", f"--gpu-report={out / 'gpu-tests.json'}"]
    pytest = [sys.executable, "-m", "pytest", "-p", "tests.support.gpu_budget", "-m", "gpu"]
    return [*pytest, *at_a_time, *report, "-p", "no:cacheprovider", *passed_on, *map(str, gpu_test_files())]


def gpu_test_files() -> list[Path]:
    """The files with tests marked gpu: to collect all others takes longer than some of these tests."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in paths if GPU_MARK.search(path.read_text(encoding="utf-8"))]


def bench_command(out: Path, passed_on: Sequence[str], *, rehearse: bool) -> list[str]:
    """`alphazero bench gpu` within the budget."""
    bench = [sys.executable, "-m", "alphazero", "bench", "gpu", f"--budget={BUDGET_S}"]
    where = ["--device=cpu", "--rehearse"] if rehearse else ["--device=cuda"]
    return [*bench, f"--out={out / 'gpu-bench.json'}", *where, *passed_on]


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit status; it and all it started are ended when the time is over."""
    process = subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"gpu_proof: ended after {LIMIT_S} s; the document holds what was done", file=sys.stderr)
        return 1
    finally:
        with contextlib.suppress(ProcessLookupError):  # it left nothing behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
