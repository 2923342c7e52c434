"""`make fuzz`: the harnesses of csrc/fuzz under libFuzzer, then the files that Python reads."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.fuzz.corpus import write_seeds
from tests.support.paths import REPOSITORY

BUILD = REPOSITORY / "build" / "fuzz"
FOUND = BUILD / "found"
SOURCES = REPOSITORY / "csrc" / "fuzz"
LONGEST_INPUT = 8192
# Arrow's allocator, OpenMP and MKL would start threads; the process that forks readers must have one.
ONE_THREAD = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def run_harness(name: str, seconds: int, seed: int) -> bool:
    """One harness under libFuzzer; whether it found nothing."""
    program, corpus = BUILD / name, BUILD / "corpus" / name
    if not program.exists():
        sys.exit(f"{program}: not built; expected `make fuzz` to build it")
    write_seeds(name, corpus)
    flags = (
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={LONGEST_INPUT}",
        f"-artifact_prefix={FOUND}/{name}-",
        "-timeout=20",
        "-rss_limit_mb=1536",
        "-print_final_stats=1",
    )
    with (BUILD / f"{name}.log").open("w") as log:
        status = subprocess.run([program, *flags, corpus], stdout=log, stderr=log, check=False).returncode
    lines = (BUILD / f"{name}.log").read_text(errors="replace").splitlines()
    inputs = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), "?")
    verdict = "nothing found" if status == 0 else f"exit status {status}; {BUILD / name}.log tells more"
    print(f"{name}: seed {seed}, {inputs} inputs in {seconds} s: {verdict}", flush=True)
    return status == 0


def file_fuzz_command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """argv and environment of the run over files."""
    return [sys.executable, "-m", "tests.fuzz.files", *arguments], {**os.environ, **ONE_THREAD}


def main() -> int:
    """Exit status 1 where anything was found."""
    harnesses = sorted(path.stem for path in SOURCES.glob("*.cpp"))
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(harnesses)}, or a kind of file")
    parser.add_argument(
        "--seconds",
        type=int,
        default=60,
        help="for each harness; CPU time for each kind of file (default 60)",
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    FOUND.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in harnesses if not arguments.names or name in arguments.names]
    whole = [run_harness(name, arguments.seconds, arguments.seed) for name in chosen]
    kinds = [name for name in arguments.names if name not in harnesses]
    if kinds or not arguments.names:
        times = ("--seconds", str(arguments.seconds), "--seed", str(arguments.seed), "--keep", str(FOUND))
        argv, environment = file_fuzz_command(*kinds, *times)
        whole.append(subprocess.run(argv, env=environment, cwd=REPOSITORY, check=False).returncode == 0)
    return 0 if all(whole) else 1


if __name__ == "__main__":
    sys.exit(main())
