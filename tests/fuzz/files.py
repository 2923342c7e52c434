"""`python -m tests.fuzz.files`: damaged files to all who read them; each in a process of its own.

Input N of a kind is a function of the seed, the kind and N: --input N tries that one again and shows what
was said. Inputs at fault are kept.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.foreign import KINDS as FOREIGN
from tests.fuzz.readers import KINDS as OF_DATA
from tests.fuzz.readers import Kind, damage
from tests.fuzz.sandbox import Outcome, try_reader

# What commands import when they are called: here once, before the first fork.
MODULES = (
    "alphazero.cli.playing.analyse",
    "alphazero.cli.training.checkpoint",
    "alphazero.cli.training.data",
    "alphazero.cli.measuring.eval",
    "alphazero.cli.import_weights",
    "alphazero.cli.perft",
    "alphazero.cli.playing.match",
    "alphazero.cli.training.report",
    "alphazero.cli.training.runs",
    "alphazero.cli.training.launch",
    "alphazero.cli.playing.match_report",
    "chess.syzygy",
    "pyspiel",
    "alphazero.show.report.page",
    "alphazero.show.report.picture",
    "matplotlib.figure",
    "pandas",  # by pyarrow
    "alphazero.data.formats.lc0",
    "alphazero.data.formats.pgn",
    "alphazero.data.open",
    "alphazero.data.store.summary",
    "alphazero.measure.known_games",
    "alphazero.network.inference.evaluator",
    "torch._dynamo",
)
KINDS = (*OF_DATA, *FOREIGN)
NUM_EXAMPLES = 4
MOST_KEPT = 5  # of one fault


def make_example(kind: Kind, directory: Path, seed: int, number: int) -> None:
    """A sound example, tried with every reader; made in a process of its own, as Arrow starts threads."""
    example = directory / f"example-{number}"
    example.mkdir(parents=True)

    def make() -> None:
        kind.make(example, Random(f"{seed}/{kind.name}/example/{number}"))

    required(try_reader(make), f"{kind.name}: making example {number}")
    for reader in kind.readers:
        path = fresh_copy(directory, number)
        required(try_reader(lambda reader=reader, path=path: reader(path)), f"{kind.name}: example {number}")


def required(outcome: Outcome, what: str) -> None:
    """A sound example is made and read without a word."""
    if outcome.fault or outcome.status != 0:
        sys.exit(f"{what}: status {outcome.status} {outcome.fault}\n{outcome.said}")


def fresh_copy(directory: Path, number: int) -> Path:
    """An example to damage, in `work`."""
    work = directory / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(directory / f"example-{number}", work)
    (path,) = work.iterdir()
    return path


def try_input(kind: Kind, directory: Path, seed: int, number: int) -> tuple[Outcome, Path]:
    """Input `number` of this kind, and what came of it."""
    random = Random(f"{seed}/{kind.name}/{number}")
    example = random.randrange(NUM_EXAMPLES)
    if not (directory / f"example-{example}").exists():
        make_example(kind, directory, seed, example)
    path = fresh_copy(directory, example)
    damage(kind, path, random)
    reader = random.choice(kind.readers)
    return try_reader(lambda: reader(path)), path


def try_kind(kind: Kind, directory: Path, arguments: argparse.Namespace) -> int:
    """Inputs until the time is up; the number of different faults."""
    if arguments.input is not None:
        outcome, _ = try_input(kind, directory, arguments.seed, arguments.input)
        print(f"status {outcome.status}; {outcome.fault or 'no fault'}\n{outcome.said}")
        return bool(outcome.fault)
    end_s = cpu_time_s() + arguments.seconds
    faults: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    number = 0
    while cpu_time_s() < end_s and (arguments.inputs is None or number < arguments.inputs):
        outcome, path = try_input(kind, directory, arguments.seed, number)
        statuses[outcome.status] += 1
        if outcome.fault:
            same = re.sub(r"0x[0-9a-f]+|\d+|'[^']*'|\S*/\S*", "_", outcome.fault)[:200]
            faults[same] += 1
            if faults[same] == 1:
                print(
                    f"{kind.name}, seed {arguments.seed}, input {number}: {outcome.fault[:500]}", flush=True
                )
            if faults[same] <= MOST_KEPT:
                keep(path, outcome, arguments.keep / f"{kind.name}-{arguments.seed}-{number}")
        number += 1
    read = statuses[0]
    print(
        f"{kind.name}: {number} inputs, {read} read, {statuses[2] + statuses[3]} refused, "
        f"{sum(faults.values())} at fault in {len(faults)} ways",
        flush=True,
    )
    return len(faults)


def cpu_time_s() -> float:
    """The CPU time of this process and its ended children, so that a busy machine tries as many inputs."""
    return sum(os.times()[:4])


def keep(path: Path, outcome: Outcome, directory: Path) -> None:
    """The input and what was said of it, for whoever mends it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (shutil.copytree if path.is_dir() else shutil.copy)(path, directory / path.name)
    (directory / "said.txt").write_text(f"{outcome.fault}\n\n{outcome.said}")


def main() -> int:
    """Try all kinds, or those named; exit status 1 where one has a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.files", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(kind.name for kind in KINDS))
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU time for each kind (default 60)")
    parser.add_argument("--inputs", type=int, help="at most, for each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=int, metavar="N", help="this one alone, with what was said")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz/found"), help="where to keep inputs")
    arguments = parser.parse_args()
    for name in MODULES:
        importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"{threads} threads run before the first fork: expected one")
    num_faults = 0
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["XDG_CACHE_HOME"] = f"{temporary}/cache"
        for kind in KINDS:
            if not arguments.kinds or kind.name in arguments.kinds:
                num_faults += try_kind(kind, Path(temporary) / kind.name, arguments)
    return min(num_faults, 1)


if __name__ == "__main__":
    sys.exit(main())
