"""What one GPU does with the 20x256 network, beside what it can do at best: rows in order of importance.

Each row is another benchmark in a process of its own: one that dies costs itself alone. Rows for which the
time or a package is missing are left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path, write_json
from alphazero.base.text import counted, shortened
from alphazero.settings.flags import Parser, seconds
from benchmarks.measuring.page import markdown_table, percent, put_into_page, read_document, shown

FORMAT = 2
CHECKOUT = Path(__file__).resolve().parents[1]
# Within nine minutes, the start of the command and the end of its last process included.
BUDGET_S = 510.0
# A row may take so many times what it should before it is ended, and at least so many seconds.
PATIENCE, LEAST_LIMIT_S = 4.0, 60.0
# What the trainer imports beyond what inference needs.
TRAINER_NEEDS = ("deepspeed", "hjson", "chess", "zstandard", "isal")
BATCHES, USUAL_BATCH = (256, 512, 1024, 2048, 4096), 1024


@dataclass(frozen=True)
class Row:
    """A benchmark with its flags. expected_s: on an H100. needs: modules beyond torch, numpy and pyarrow."""

    name: str
    bench: str
    flags: tuple[str, ...]
    expected_s: float
    needs: tuple[str, ...] = ()


def rows(device: str, *, tiny: bool) -> list[Row]:
    """The most important first. tiny: sizes at which figures mean nothing."""
    tower = ("--blocks", "1", "--filters", "8") if tiny else ("--blocks", "20", "--filters", "256")
    batches, usual = ((8,), 8) if tiny else (BATCHES, USUAL_BATCH)
    short = "0.05" if tiny else "2"
    on = ("--device", device, "--seconds", short)
    size = ("--size", "64" if tiny else "8192")

    def ceilings() -> Iterator[Row]:
        for precision in ("bf16", "fp16", "tf32", "fp32"):
            yield Row(f"product {precision}", "ceilings", (*on, "--precision", precision, *size), 12)
        chain = (*on, *tower, "--what", "convolutions", "--precision", "bf16")
        for batch in sorted({usual, max(batches)}):
            yield Row(f"convolutions bf16 {batch}", "ceilings", (*chain, "--batch", str(batch)), 14)

    def passes() -> Iterator[Row]:
        layout = ("--backward", "--channels-last", "--weights-channels-last", "--precision", "bf16")
        for batch in (usual, max(batches)):
            flags = (*on, *tower, *layout, "--batch", str(batch))
            yield Row(f"passes bf16 {batch}", "network", flags, 15)

    def training(batch: int, precision: str = "bf16", stage: int = 0, *more: str) -> Row:
        name = f"training {precision} zero{stage} {' '.join((str(batch), *more))}".replace("--", "")
        flags = (
            *on,
            *tower,
            "--batch",
            str(batch),
            "--precision",
            precision,
            "--zero-stage",
            str(stage),
            *more,
        )
        pace = () if device == "cpu" or "--checkpoint-interval" in more else ("--log-interval", "10")
        return Row(name, "training", (*flags, *pace), 70 if "--compile" in more else 35, TRAINER_NEEDS)

    def selfplay() -> Iterator[Row]:
        settings = (*on, *tower, "--se-ratio", "0", "--rounds", "1", "--simulations", "2" if tiny else "64")
        for batch in (4,) if tiny else (512, 256, 1024):
            yield Row(f"selfplay bf16 {batch}", "selfplay", (*settings, "--batch", str(batch)), 40)

    ordered = [*ceilings(), *passes(), training(usual), *selfplay()]
    ordered += [training(batch) for batch in sorted(batches, reverse=True)]
    ordered.append(training(usual, "bf16", 0, "--checkpoint-interval", "4" if tiny else "50"))
    ordered.append(Row("loader", "loader", ("--seconds", short, "--repeats", "1" if tiny else "3"), 20))
    ordered += [training(usual, "bf16", stage) for stage in (1, 2, 3)]
    ordered += [training(usual, precision) for precision in ("fp16", "tf32", "fp32")]
    if device == "cuda":
        ordered.append(training(usual, "bf16", 0, "--compile"))
    return [row for place, row in enumerate(ordered) if row not in ordered[:place]]


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where it runs")
    parser.add_argument(
        "--rehearse", action="store_true", help="every row, at sizes so tiny that figures mean nothing"
    )
    parser.add_argument("--budget", type=seconds(1), default=BUDGET_S, help="seconds for all rows")
    parser.add_argument("--commit", default="", help="name of the version, where git cannot tell it")
    parser.add_argument("--out", default="", help="file for the document, written anew after every row")
    parser.add_argument("--table", default="", help="measure nothing: write the tables of this document")
    parser.add_argument("--into", default="", help="with --table: put them into this page of docs/")


def run(arguments: list[str]) -> dict[str, object]:
    """The document, measured or read."""
    parser = Parser(prog="alphazero bench gpu", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    if args.into and not args.table:
        raise ConfigError("--into: expected --table FILE with it")
    if args.table:
        found = read_document(given_path(args.table, "--table"), "gpu", FORMAT)
        if args.into:
            put_into_page(given_path(args.into, "--into"), "gpu", text(found))
        return found
    out = given_path(args.out, "--out") if args.out else None
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: expected a file in a directory that exists")
    from benchmarks.measuring.machine import describe_machine

    machine = describe_machine(args.device)
    if machine["device"] == "cpu" and not args.rehearse:
        raise ConfigError("--device cpu: expected --rehearse with it, or a GPU: the 20x256 network needs one")
    machine |= {"commit": args.commit} if args.commit else {}
    document = {"format": FORMAT, "rehearsal": args.rehearse, "machine": machine}
    plan = rows(str(machine["device"]), tiny=args.rehearse)
    for found_rows in measured(plan, time.monotonic() + args.budget):
        document["rows"] = found_rows
        if out is not None:
            write_json(out, {"bench": "gpu", **document})
    return document


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
    """Run the benchmark of a row; its whole process group ends after `limit_s`."""
    argv = [sys.executable, "-m", "alphazero", "bench", row.bench, "--json", *row.flags]
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH", ""))))
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"error": f"not done after {counted(round(limit_s), 'second')}"}
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["no output"])[-1]
    if process.returncode:
        return {"error": f"exit status {process.returncode}: {shortened(last)}"}
    return {"seconds": round(time.monotonic() - begin, 1), "figures": json.loads(output.splitlines()[-1])}


def text(document: dict[str, Any]) -> str:
    """All tables in Markdown, and what was left out."""
    machine, found = document["machine"], document["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"{machine['device_name']}, {machine['cores']} CPU cores; commit {machine['commit']}.\n{versions}."
    ]
    if document["rehearsal"]:
        lines.insert(0, "**A rehearsal at tiny sizes: the figures mean nothing.**")
    done = [row for row in found if "figures" in row]
    ceilings = [(row["name"], row["figures"]["tflops"]) for row in done if row["bench"] == "ceilings"]
    product = next((value for name, value in ceilings if name == "product bf16"), None)
    chain = max((value for name, value in ceilings if name.startswith("conv")), default=None)
    lines += table(["ceiling", "TFLOP/s"], [[name, shown(value)] for name, value in ceilings])
    header = ["training", "positions/s", "of the bf16 product", "of bf16 convolutions", "memory, GiB", "idle"]
    cells = [
        speed_cells(row["name"], row["figures"], product, chain)
        for row in done
        if row["bench"] in ("network", "training")
    ]
    lines += table([*header, "pause of a checkpoint, steps"], cells)
    cells = [
        [
            row["name"],
            shown(row["figures"]["self_play_evaluations_per_s"]),
            shown(row["figures"]["bare_evaluations_per_s"]),
            percent(row["figures"]["share_steady"]),
        ]
        for row in done
        if row["bench"] == "selfplay"
    ]
    lines += table(["self-play", "evaluations/s", "bare network, evaluations/s", "share"], cells)
    for row in (row for row in done if row["bench"] == "loader"):
        speeds = [shown(value) for name, value in row["figures"].items() if name.endswith("_threads")]
        lines.append(f"Loader, on one thread and on all: {', '.join(speeds)} positions/s.")
    lines += [f"Failed: {row['name']}: {row['error']}" for row in found if "error" in row]
    lines += [f"Left out: {row['name']}: {row['left_out']}" for row in found if "left_out" in row]
    return "\n\n".join(lines)


def table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """None where nothing was measured."""
    return [markdown_table(header, cells)] if cells else []


def speed_cells(
    name: str, figures: Mapping[str, Any], product: float | None, chain: float | None
) -> list[str]:
    """A line of the table of training."""
    tflops = figures.get("tflops", figures.get("tflop_per_s"))
    shares = [percent(tflops / ceiling if ceiling else None) for ceiling in (product, chain)]
    memory, pause = figures.get("memory_gib"), figures.get("checkpoint_pause_in_steps")
    idle = percent(figures.get("device_idle_share"))
    return [name, shown(figures["positions_per_s"]), *shares, shown(memory), idle, shown(pause)]
