"""What one GPU does with the 20x256 network, beside what it can do at best: rows in order of importance.

Each row is another benchmark in a process of its own: one that dies costs itself alone. Rows for which the
time or a package is missing are left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, last_line, shortened
from alphazero.machine.environment import CHECKOUT, START
from alphazero.settings.flags import Parser, seconds
from benchmarks.measuring.page import configure, document_of, markdown_table, percent, shown

# Within nine minutes, the start of the command and the end of its last process included.
BUDGET_S = 510.0
# A row may take so many times what it should before it is ended, and at least so many seconds.
PATIENCE, LEAST_LIMIT_S = 4.0, 60.0
# What the trainer imports beyond what inference needs.
TRAINER_NEEDS = ("deepspeed", "hjson", "chess", "zstandard", "isal")
BATCHES, USUAL_BATCH = (256, 512, 1024, 2048, 4096), 1024
# Kernels of evaluations; their own module (alphazero/network/inference) imports torch.
OPERATORS, CUDNN_TRITON = "operators", "cudnn+triton"
COMPILED, COMPILED_PLAIN = "compiled", "compiled+plain"
LINE_LENGTH = 120  # of pages
# lc0's BT4 and T1 (configs/): encoders, channels, heads, feed-forward units; what else they have.
ENCODERS: dict[str, tuple[Any, ...]] = {
    "BT4": ((15, 1024, 32, 1536),),
    "T1": ((10, 256, 8, 256), "--embedding", "map"),
}
# Of rows that are not named for it.
BENCH_OF = {
    **{"product": "ceilings", "convolutions": "ceilings", "preset": "training", "engine": "tree"},
    **dict.fromkeys(("passes", "T1", "BT4"), "network"),
}


@dataclass(frozen=True)
class Row:
    """A benchmark with its flags.

    expected_s: on an H100. needs: modules beyond torch, numpy and pyarrow.
    """

    name: str
    bench: str
    flags: tuple[str, ...]
    expected_s: float
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rows:
    """Makes rows for a device. tiny: at sizes at which figures mean nothing."""

    device: str
    tiny: bool

    def row(self, name: str, expected_s: float, *flags: str, needs: tuple[str, ...] = ()) -> Row:
        """name: its first word is the benchmark, or of BENCH_OF; its second is the precision."""
        kind, precision, *_ = name.split()
        bench = BENCH_OF.get(kind, kind)
        arithmetic = ("fp32", "--tf32") if (bench, precision) == ("training", "tf32") else (precision,)
        time_each = () if bench == "tree" else ("--seconds", "0.05" if self.tiny else "2")
        on = ("--device", self.device, *time_each, "--precision", *arithmetic)
        return Row(name, bench, (*on, *flags), expected_s, needs)

    def tower(self, blocks: int, filters: int) -> tuple[str, ...]:
        return (
            "--blocks",
            "1" if self.tiny else str(blocks),
            "--filters",
            "8" if self.tiny else str(filters),
        )

    def training(self, batch: int, *more: str, precision: str = "bf16", stage: int = 0) -> Row:
        name = f"training {precision} zero{stage} {' '.join((str(batch), *more))}".replace("--", "")
        flags = (*self.tower(20, 256), "--batch-size", str(batch), "--zero-stage", str(stage), *more)
        return self._trained(name, 70 if "--compile" in more else 35, *flags)

    def preset(self, batch: int) -> Row:
        smaller = self.tower(20, 256) if self.tiny else ()
        flags = ("--config", "chess_20x256", *smaller, "--batch-size", str(batch))
        return self._trained(f"preset bf16 {batch}", 35, *flags)

    def _trained(self, name: str, expected_s: float, *flags: str) -> Row:
        # With a line for each step the console would be measured.
        is_quiet = self.device == "cuda" and "--checkpoint-interval" not in flags
        log = ("--log-interval", "10") if is_quiet else ()
        return self.row(name, expected_s, *flags, *log, needs=TRAINER_NEEDS)

    def selfplay(self, shape: tuple[int, int], batch: int, *more: str, se_ratio: int = 0) -> Row:
        name = f"selfplay bf16 {'x'.join(map(str, shape))} {' '.join((str(batch), *more[1:]))}"
        play = ("--rounds", "1", "--simulations", "2" if self.tiny else "64")
        flags = (*self.tower(*shape), "--se-ratio", str(se_ratio), *play, "--batch", str(batch), *more)
        return self.row(name, 40, *flags)

    def engine(self, shape: tuple[int, int], batch: int, se_ratio: int = 0) -> Row:
        name = f"engine bf16 {'x'.join(map(str, shape))} {batch}"
        flags = (*self.tower(*shape), "--se-ratio", str(se_ratio), "--minibatch-size", str(batch))
        return self.row(name, 20, *flags, *(("--nodes", "100") if self.tiny else ()))

    def attention(
        self, name: str, batch: int, pass_of: str, kernels: str = OPERATORS, checkpointing: str = "none"
    ) -> Row:
        (blocks, filters, heads, units), *more = ENCODERS[name]
        body = ("--body", "attention", *self.tower(blocks, filters), "--ffn-width", str(units), *more)
        flags = (*body, "--heads", "8" if self.tiny else str(heads), "--batch", str(batch), pass_of)
        words = [f"{name} bf16 {batch} {pass_of[2:]}"]
        if kernels != OPERATORS:
            words.append(kernels)
            flags += ("--kernels", kernels)
        if checkpointing != "none":
            words.append(f"{checkpointing} again")
            flags += ("--activation-checkpointing", checkpointing)
        return self.row(" ".join(words), 20 if kernels == OPERATORS else 40, *flags)


def rows(device: str, *, tiny: bool) -> list[Row]:
    """The most important first. tiny: sizes at which figures mean nothing."""
    make = Rows(device, tiny)
    batches, usual = ((8,), 8) if tiny else (BATCHES, USUAL_BATCH)
    few = sorted({usual, max(batches)})
    tower = make.tower(20, 256)
    size = ("--size", "64" if tiny else "8192")
    layout = ("--backward", "--channels-last", "--weights-channels-last")
    ordered = [make.row("product bf16", 12, *size)]
    for batch in few:
        chain = ("--what", "convolutions", *tower, "--batch", str(batch))
        ordered.append(make.row(f"convolutions bf16 {batch}", 14, *chain))
    ordered += [make.training(usual), make.preset(usual)]
    ordered += [make.training(usual, stage=stage) for stage in (1, 2, 3)]
    ordered += [make.selfplay((10, 128), batch, se_ratio=8) for batch in ((4,) if tiny else (4096, 1024))]
    if device == "cuda":
        ordered.append(make.selfplay((10, 128), 4096, "--kernels", CUDNN_TRITON, se_ratio=8))
    least = 16 if tiny else 256
    ordered += [make.engine((20, 256), least), make.engine((6, 64), least, se_ratio=8)]
    for pass_of in ("--backward", "--evaluates"):
        for kernels in (OPERATORS, COMPILED, COMPILED_PLAIN) if device == "cuda" else (OPERATORS,):
            bodies = ("BT4", min(batches)), ("T1", usual)
            ordered += [make.attention(name, batch, pass_of, kernels) for name, batch in bodies]
    for again in ("scores", "encoders"):
        ordered.append(make.attention("BT4", min(batches), "--backward", OPERATORS, again))
    ordered += [make.row(f"passes bf16 {batch}", 15, *tower, *layout, "--batch", str(batch)) for batch in few]
    ordered += [make.preset(max(batches)), make.training(max(batches))]
    ordered += [make.selfplay((20, 256), batch) for batch in ((4,) if tiny else (512, 256, 1024))]
    if device == "cuda":
        ordered.append(make.selfplay((20, 256), 512, "--kernels", OPERATORS))
    ordered += [make.row(f"product {precision}", 12, *size) for precision in ("fp16", "tf32", "fp32")]
    ordered += [make.training(batch) for batch in sorted(batches, reverse=True)]
    if device == "cuda":  # with our recordings and without
        ordered += [make.training(batch, "--compile") for batch in (usual, min(batches))]
        ordered.append(make.training(usual, "--no-cuda-graphs"))
    ordered.append(make.training(usual, "--checkpoint-interval", "4" if tiny else "50"))
    ordered.append(
        Row("loader", "loader", ("--seconds", "0.05" if tiny else "2", "--repeats", "1" if tiny else "3"), 20)
    )
    ordered += [make.training(usual, precision=precision) for precision in ("fp16", "tf32", "fp32")]
    return list(dict.fromkeys(ordered))


def run(arguments: list[str]) -> dict[str, object]:
    """The document, measured or read."""
    parser = Parser(prog="alphazero bench gpu", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where it runs")
    parser.add_argument(
        "--rehearse", action="store_true", help="every row, at sizes so tiny that figures mean nothing"
    )
    parser.add_argument("--budget", type=seconds(1), default=BUDGET_S, help="seconds for all rows")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose names contain it")
    configure(parser)
    args = parser.parse_args(arguments)
    return document_of("gpu", args, documents(args), text)


def documents(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The document so far, after every row."""
    from benchmarks.measuring.machine import describe_machine

    deadline = time.monotonic() + args.budget
    machine = describe_machine(args.device)
    if machine["device"] == "cpu" and not args.rehearse:
        raise ConfigError("--device cpu: expected --rehearse with it, or a GPU: the 20x256 network needs one")
    plan = [row for row in rows(str(machine["device"]), tiny=args.rehearse) if args.only in row.name]
    if not plan:
        raise ConfigError(f"--only {args.only}: no row; expected a part of a name, such as 'zero'")
    for found in measured(plan, deadline):
        yield {"rehearsal": args.rehearse, "machine": machine, "rows": found}


def measured(plan: Sequence[Row], deadline: float) -> Iterator[list[dict[str, Any]]]:
    """After every row, all rows so far: their figures, an error, or why a row was left out."""
    found: list[dict[str, Any]] = []
    for row in plan:
        missing = [name for name in row.needs if importlib.util.find_spec(name) is None]
        left_s = deadline - time.monotonic()
        entry: dict[str, Any] = {"name": row.name, "bench": row.bench, "flags": list(row.flags)}
        if missing:
            entry["left_out"] = f"not installed: {', '.join(missing)}"
        elif left_s < row.expected_s:
            entry["left_out"] = f"may take {row.expected_s:.0f} s, {max(left_s, 0):.0f} s were left"
        else:
            entry |= figures_of(row, min(left_s, max(LEAST_LIMIT_S, PATIENCE * row.expected_s)))
        found.append(entry)
        yield found


def figures_of(row: Row, limit_s: float) -> dict[str, Any]:
    """Run the benchmark of a row; it ends after `limit_s`, and what it launched ends with it."""
    argv = [sys.executable, START, "bench", row.bench, "--json", *row.flags]
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path}
    begin = time.monotonic()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {counted(round(limit_s), 'second')}"}
    if done.returncode:
        last = shortened(last_line(done.stderr) or "no output")
        return {"error": f"exit status {done.returncode}: {last}"}
    return {
        "seconds": round(time.monotonic() - begin, 1),
        "figures": json.loads(done.stdout.splitlines()[-1]),
    }


def text(document: dict[str, Any]) -> str:
    """All tables in Markdown, and what was left out."""
    machine, found = document["machine"], document["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    where = f"{machine['device_name']}, {machine['cores']} CPU cores; commit {machine['commit']}."
    lines = [f"{where}\n{textwrap.fill(f'{versions}.', LINE_LENGTH)}"]
    if document["rehearsal"]:
        lines.insert(0, "**A rehearsal at tiny sizes: the figures mean nothing.**")

    def done(*benches: str) -> list[tuple[str, dict[str, Any]]]:
        return [
            (row["name"], row["figures"]) for row in found if row["bench"] in benches and "figures" in row
        ]

    def table(header: Sequence[str], cells: list[list[str]]) -> None:
        if cells:
            lines.append(markdown_table(header, cells))

    ceilings = {name: figures["tflops"] for name, figures in done("ceilings")}
    best = (
        ceilings.get("product bf16"),
        max((value for name, value in ceilings.items() if name.startswith("conv")), default=None),
    )
    table(["ceiling", "TFLOP/s"], [[name, shown(value)] for name, value in ceilings.items()])
    header = ["network", "positions/s", "of the bf16 product", "of bf16 convolutions", "memory, GiB"]
    table(
        [*header, "MiB a position", "idle", "start, s", "pause of a checkpoint, steps"],
        [speed_cells(name, figures, best) for name, figures in done("network", "training")],
    )
    names = ("self_play_evaluations_per_s", "bare_evaluations_per_s")
    table(
        ["self-play", "evaluations/s", "bare network, evaluations/s", "share"],
        [
            [name, *(shown(figures[one]) for one in names), percent(figures["share_steady"])]
            for name, figures in done("selfplay")
        ],
    )
    nodes = [[name, shown(figures["nodes_per_s"])] for name, figures in done("tree")]
    table(["engine", "nodes/s"], nodes)
    for _, figures in done("loader"):
        speeds = [shown(value) for name, value in figures.items() if name.endswith("_threads")]
        lines.append(f"Loader, on one thread and on all: {', '.join(speeds)} positions/s.")
    lines += [f"Failed: {row['name']}: {row['error']}" for row in found if "error" in row]
    if left_out := [f"{row['name']}: {row['left_out']}" for row in found if "left_out" in row]:
        lines.append(textwrap.fill(f"Left out: {'; '.join(left_out)}.", LINE_LENGTH))
    return "\n\n".join(lines)


def speed_cells(name: str, figures: Mapping[str, Any], ceilings: Sequence[float | None]) -> list[str]:
    """A line of the table of training."""
    tflops = figures.get("tflops", figures.get("tflop_per_s"))
    shares = [percent(tflops / ceiling if ceiling else None) for ceiling in ceilings]
    keys = ("positions_per_s", "memory_gib", "mib_per_position", "start_s", "checkpoint_pause_in_steps")
    speed, *memory, start, pause = (shown(figures.get(key)) for key in keys)
    return [name, speed, *shares, *memory, percent(figures.get("device_idle_share")), start, pause]
