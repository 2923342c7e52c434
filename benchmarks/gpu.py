"""What one GPU does with the 20x256 network: training, inference, self-play, beside what it can do at best.

`alphazero bench gpu [--json] [--out FILE] [--budget SECONDS]`. Rows run in processes of their own, the most
important first; what the budget does not hold is left out and named. `--table FILE [--into PAGE]` writes the
tables of a document that was measured earlier.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path, write_json
from alphazero.settings.flags import Parser, seconds
from benchmarks.gpu_rows import table
from benchmarks.gpu_rows.budget import Budget, measure_rows
from benchmarks.gpu_rows.document import FORMAT, document
from benchmarks.gpu_rows.plan import FULL, MODES, TINY, rows
from benchmarks.gpu_rows.row import Result, Row
from benchmarks.measuring.page import put_into_page, read_document

# Within nine minutes, the start of the command and the end of its last process included.
BUDGET_S = 510.0


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where it runs")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="every row, at sizes so tiny that figures mean nothing",
    )
    parser.add_argument("--budget", type=seconds(1), default=BUDGET_S, help="seconds for all rows")
    parser.add_argument(
        "--without", choices=sorted(MODES), nargs="+", default=[], help="ways to run the network to leave out"
    )
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
            put_into_page(given_path(args.into, "--into"), "gpu", table.text(found))
        return found
    return measure(args)


def text(figures: dict[str, object]) -> str:
    """The document as tables."""
    return table.text(figures)


def measure(args: argparse.Namespace) -> dict[str, object]:
    """All rows that fit into the budget."""
    if args.device == "cpu" and not args.rehearse:
        raise cpu_unrehearsed()
    out = given_path(args.out, "--out") if args.out else None
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: expected a file in a directory that exists")
    budget = Budget(args.budget)
    machine = describe_machine(args.device, budget)
    if args.commit:
        machine["commit"] = args.commit
    device = str(machine["device"])
    if device == "cpu" and not args.rehearse:
        raise cpu_unrehearsed()
    sizes = TINY if args.rehearse else FULL
    results: list[Result] = []

    def keep(result: Result) -> None:
        results.append(result)
        if out is not None and not result.dropped:
            write_document(out)

    def whole() -> dict[str, object]:
        return document(machine, sizes, results, budget, rehearsal=args.rehearse)

    def write_document(path: Path) -> None:
        write_json(path, {"bench": "gpu", **whole()})

    measure_rows(rows(sizes, device, args.without), budget, keep)
    if out is not None:
        write_document(out)
    return whole()


def cpu_unrehearsed() -> ConfigError:
    """What a machine without a GPU is told."""
    return ConfigError("--device cpu: expected --rehearse with it, or a GPU: the 20x256 network wants one")


def describe_machine(device: str, budget: Budget) -> dict[str, Any]:
    """Versions and device, from a process of its own. Raises ConfigError where the device cannot be used."""
    found: list[Result] = []
    measure_rows([Row("machine", "machine", {"device": device}, 1)], budget, found.append)
    if not found[0].figures:
        raise ConfigError(f"bench gpu: {found[0].error or found[0].dropped}")
    return dict(found[0].figures)
