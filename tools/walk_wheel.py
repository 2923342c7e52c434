"""`make test-wheel`: the first ten minutes of an installed wheel, in an empty directory beside no checkout.

    .venv/bin/python -m tools.walk_wheel dist/alphazero-*.whl

The environment is new and has the wheel; all other packages are those of the Python that runs this, so that
nothing is fetched, and `pip check` compares them with what the wheel asks for. Every command runs, two at a
time, and each one that a run names as next. No output may name a file that is not there.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 300
AT_ONCE = 2
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Words of an output that are files: of the source alone, of any kind, and of any place.
OF_A_CHECKOUT = r"(?:docs|examples|configs|benchmarks|tests|tools|csrc)/\S*|\S+\.(?:sh|sbatch|ipynb)"
FILES = r"\S+\.(?:py|md|pgn|gz|toml|json|jsonl|pt|html|png|epd|safetensors|onnx|log|csv)"
PLACES = r"\.{0,2}/\S+|(?:runs|cache|stores)/\S+"
MAKE = r"\bmake (?:[a-z-]+ )?(?:setup|train|demo|test|bench)\b"
SMALL = ("--device", "cpu", "--blocks", "1", "--filters", "8", "--batch-size", "32")
ORIGIN = "import alphazero, sys; assert alphazero.__file__.startswith(sys.prefix), alphazero.__file__"
LOADS = "import alphazero as az; print(az.load('runs/first').evaluate(moves=['e4']).best)"
# What a run names at its end: tensorboard is a server, and only asked for its help.
NEXT = [
    *(f"alphazero {name}" for name in ("play", "analyse", "eval", "report")),
    *("tensorboard --logdir", "alphazero train"),
]
# On what the run has made, and then on what these have made.
USES = (
    "alphazero rate runs/first --games 2 --simulations 1",
    "alphazero analyse runs/first --moves e4 --simulations 8",
    "alphazero export runs/first --to lc0 --out first.pb.gz",
    "alphazero selfplay runs/first --out stores/own --games 2 --simulations 2 --max-plies 8 --device cpu",
    "alphazero uci runs/first < uci; position startpos; go nodes 4; quit; ",
    f"python -c {shlex.quote(LOADS)}",
    "alphazero runs",
    "alphazero checkpoint list runs/first",
    "alphazero solve 4455443",
    "alphazero games",
    "alphazero perft startpos 3",
    "alphazero completion bash",
)
AFTER = (
    "alphazero match runs/first --against first.pb.gz --games 2 --nodes 2 --maxmoves 4",
    "alphazero import-weights first.pb.gz first.pt",
    "alphazero data info stores/own",
    "alphazero data export stores/own --to pgn --out own.pgn",
)


def absent(output: str, directory: Path, *, is_general: bool = False) -> list[str]:
    """What an output of a command in `directory` names that is not there: files, and targets of make.

    is_general: of help and errors, whose other names stand for a user's own: those of the source alone.
    """
    pages = re.search(r"^docs/ is (.+)$", output, re.MULTILINE)
    text = output.replace(pages[0], "") if pages else output
    text = re.sub(r"https?://\S+|.*\bthe ladder lacks\b.*", "", text)
    known = OF_A_CHECKOUT if is_general else f"{OF_A_CHECKOUT}|{FILES}|{PLACES}"
    found = re.findall(MAKE, text)
    for word in re.split(r"[\s\"'`()\[\]{}<>,;=|]+", text):
        name = word.strip(".:").partition("@")[0] if not word.startswith(".") else word.rstrip(".:")
        if re.fullmatch(known, name):
            place = Path(pages[1]).parent if pages and name.startswith("docs/") else directory
            if not ((place / name).exists() or ("/" not in name and any(directory.rglob(name)))):
                found.append(name)
    return found


def next_commands(output: str) -> list[list[str]]:
    """The commands that a run prints at its end: what its network is good for, and how it goes on."""
    lines = [re.sub(r"^\S+ [\d:]{8} ", "", line) for line in output.splitlines()]
    begin = next((number for number, line in enumerate(lines) if line.startswith("next, ")), len(lines))
    words = [line.removeprefix("continue with: ") for line in lines[begin + 1 :]]
    return [shlex.split(line) for line in words if line and not line.startswith("=")]


@dataclass
class Walk:
    """An environment with the wheel, and an empty directory to type commands in."""

    environment: Path
    directory: Path
    faults: list[str] = field(default_factory=list)
    commands: set[str] = field(default_factory=set)

    def run(self, *words: str, typed: str = "", expected: tuple[int, ...] = (0,)) -> str:
        """The output of a command that ends with one of `expected`; what is wrong with it is a fault."""
        begin, line = time.monotonic(), shlex.join(words)
        variables = {"PATH": f"{self.environment}/bin:{SYSTEM_PATH}", "HOME": str(self.directory.parent)}
        try:
            done = subprocess.run(
                words,
                cwd=self.directory,
                env=variables | {"LC_ALL": "C.UTF-8", "TMPDIR": tempfile.gettempdir()},
                input=typed,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT_S,
            )
            output, status = done.stdout, done.returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            output, status = str(error), -1
        print(f"{time.monotonic() - begin:6.1f} s  {line}", flush=True)
        is_general = "--help" in words or "completion" in words or 0 not in expected
        if words[0] == "alphazero" and "--help" not in words:
            self.commands.update(words[1:2])
        if status not in expected or "Traceback" in output:
            self.fault(f"{line}: exit status {status}:\n{output}")
        for name in sorted(set(absent(output, self.directory, is_general=is_general))):
            self.fault(f"{line}: names {name}, which is not there")
        return output

    def fault(self, text: str) -> None:
        """Something wrong, said at once."""
        print(f"         wrong: {text}", flush=True)
        self.faults.append(text)


def install(wheel: Path, directory: Path) -> None:
    """A new environment with the wheel. All other packages are those that this process has."""
    venv.create(directory)
    here = Path(sysconfig.get_path("purelib"))
    (site,) = directory.glob("lib/python3*/site-packages")
    (site / "others.pth").write_text(f"{here}\n")
    (directory / "bin" / "tensorboard").symlink_to(Path(sys.executable).with_name("tensorboard"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(directory / "bin" / "python")]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True)
    subprocess.run([*pip, "check"], check=True)


def at_once(to: Walk, lines: Iterable[str]) -> None:
    """Commands that do not need each other; words behind "<" are typed into one."""

    def run(line: str) -> None:
        command, _, typed = line.partition(" < ")
        output = to.run(*shlex.split(command), typed=typed.replace("; ", "\n"))
        if "go nodes" in typed and "bestmove" not in output:
            to.fault(f"{line}: no move in {output}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, lines))


def walk(to: Walk) -> None:
    """What people type in the first ten minutes, then each command that is left."""
    version = to.run("alphazero", "--version")
    print(f"          {version.splitlines()[0]}")
    commands = re.findall(r"^  ([a-z-]+)  ", to.run("alphazero", "--help"), re.MULTILINE)
    at_once(to, [f"alphazero {command} --help" for command in commands])
    at_once(to, ["alphazero train --help all", "alphazero launch --dry-run --device cpu"])
    to.run("python", "-c", ORIGIN)
    trained = to.run("alphazero", "train", *SMALL, "--steps", "4", "--run-name", "first")
    follow(to, next_commands(trained))
    at_once(to, ["alphazero launch --device cpu --gpus 2 --run-name first --steps 12"])
    at_once(to, USES)
    at_once(to, AFTER)
    to.run("alphazero", "data", "import", "own.pgn", "--store", "stores/again")
    to.run("alphazero", "health", expected=(0, 2))  # a busy machine may not be fit for training
    to.run("alphazero", "doctor", "--presets", "connect4", expected=(0, 2))
    for refused in ("bench search", "play runs/none"):
        output = to.run("alphazero", *refused.split(), expected=(2,))
        if len(output.splitlines()) != 1:
            to.fault(f"{refused}: more than a line: {output}")
    for command in sorted(set(commands) - to.commands):
        to.fault(f"alphazero {command}: was not walked")


def follow(to: Walk, commands: list[list[str]]) -> None:
    """Each next command, typed as it was printed."""
    names = [" ".join(words[:2]) for words in commands]
    if names != NEXT:
        to.fault(f"next commands: {names}; expected {NEXT}")
    *uses, continued = [shlex.join(words) for words in commands]
    uses = [f"{line} < e4; quit; " if " play " in line else line for line in uses]
    at_once(to, [f"{line} --help" if line.startswith("tensorboard") else line for line in uses])
    at_once(to, [continued])


def main() -> int:
    """0 where nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="alphazero-wheel-") as directory:
        place = Path(os.path.realpath(directory))
        (place / "empty").mkdir()
        install(wheel, place / "environment")
        to = Walk(place / "environment", place / "empty")
        walk(to)
    faults = "; ".join(fault.splitlines()[0] for fault in to.faults)
    took = (
        f"{time.monotonic() - begin:.0f} s ({sum(os.times()[2:4]):.0f} s of CPU), {len(to.commands)} commands"
    )
    print(f"{wheel.name}: {took}; wrong: {faults or 'nothing'}")
    return 1 if to.faults else 0


if __name__ == "__main__":
    sys.exit(main())
