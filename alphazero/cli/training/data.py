"""`alphazero data`: games into a game store and out of it; a store described, a store verified."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alphazero.base.errors import DataError
from alphazero.base.files import given_path
from alphazero.base.section import add_flags, values_of_flags
from alphazero.base.text import counted, escaped, printable
from alphazero.cli.flags import add_number
from alphazero.data.formats.importer import ImportReport, import_games
from alphazero.data.formats.lc0_export import export_lc0
from alphazero.data.formats.pgn_export import export_pgn
from alphazero.data.sampling.filters import for_training, with_filters
from alphazero.data.sampling.window import Window
from alphazero.data.store.rescoring import Rescoring
from alphazero.data.store.store import GameStore
from alphazero.data.store.summary import summarize
from alphazero.games.tablebases import Tablebases
from alphazero.machine.memory import count_processors
from alphazero.settings.data import GameFilters, SampleFilters, chosen_filters
from alphazero.settings.flags import threads, whole
from alphazero.show.console import Console

RESCORE = "--rescore"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{import,info,verify,export}")
    importer = actions.add_parser("import", help="import PGN files or lc0 training data into a game store")
    importer.add_argument(
        "sources",
        nargs="+",
        metavar="SRC",
        help="PGN file (plain, .gz, .bz2, .zst), lc0 data (.gz, .tar, .tar.gz), or directory of such",
    )
    importer.add_argument("--store", required=True, metavar="DIR", help="the store to make")
    add_number(importer, "--workers", threads, "threads (default: one per core)", 0)
    importer.add_argument(
        RESCORE,
        default="",
        metavar="DIR",
        help="correct the results of chess games by the Syzygy tablebases of DIR (several: DIR:DIR)",
    )
    add_flags(importer, {"games that are stored, of those read (docs/data.md)": GameFilters})
    info = actions.add_parser("info", help="describe what a game store holds")
    info.add_argument("store", metavar="STORE")
    info.add_argument("--json", action="store_true", help="print JSON")
    add_flags(info, {"filters of the positions trained on (docs/data.md)": SampleFilters})
    verify = actions.add_parser("verify", help="verify the checksums, offsets and moves of a game store")
    verify.add_argument("store", metavar="STORE")
    exporter = actions.add_parser("export", help="write games of a store as lc0 training data or PGN")
    exporter.add_argument("store", metavar="STORE")
    exporter.add_argument("--to", required=True, choices=("lc0", "pgn"), help="what to write")
    exporter.add_argument(
        "--out",
        required=True,
        metavar="PATH",
        help="a new directory of game_*.gz (lc0), or a new file (PGN; .gz is packed)",
    )
    add_number(exporter, "--first", whole(0), "first game, from 0", 0)
    add_number(exporter, "--games", whole(1), "number of games (default: all)")


def run(args: argparse.Namespace) -> int:
    """Do one action; returns the exit code."""
    if args.action == "import":
        _import(args, given_path(args.store, "--store"))
    else:
        store = given_path(args.store, "STORE")
        {"info": _info, "verify": _verify, "export": _export}[args.action](args, store)
    return 0


def _import(args: argparse.Namespace, store: Path) -> None:
    sources = [given_path(text, "SRC") for text in args.sources]
    filters = GameFilters(**values_of_flags(GameFilters, vars(args)))
    workers = args.workers or count_processors()
    rescoring = Rescoring(Tablebases(args.rescore, RESCORE)) if args.rescore else None
    console = Console(True)
    try:
        with console.working("import") as work:
            report = import_games(
                sources,
                store,
                workers=workers,
                progress=work,
                filters=filters,
                rescoring=rescoring,
                say=console.say,
            )
    except KeyboardInterrupt:
        print("import interrupted, nothing of it is kept; the same command starts it again", file=sys.stderr)
        raise
    finally:
        console.close()
    print(import_text(report))


def amount(games: int, plies: int) -> str:
    """'1 game, 40 plies'."""
    return f"{counted(games, 'game')}, {counted(plies, 'ply', 'plies')}"


def import_text(report: ImportReport) -> str:
    """The result of an import."""
    manifest, store = report.manifest, printable(report.store)
    if report.was_there:
        return f"{store}: already holds these sources ({amount(manifest.games, manifest.plies)})"
    lines = [
        f"{store}: {amount(manifest.games, manifest.plies)}"
        f" in {counted(len(manifest.shards), 'shard')},"
        f" {report.seconds:.1f} s",
        f"games read {report.games_read} = imported {manifest.games}"
        f" + quarantined {manifest.quarantine.games}"
        + (f" + left out by filters {sum(manifest.filtered.values())}" if manifest.filters else ""),
        *(f"  {text}: removed {counted(count, 'game')}" for text, count in manifest.filtered.items()),
    ]
    if manifest.rescored_by:
        lines.append(f"rescored by {manifest.rescored_by}: {listed(manifest.rescored)}")
    if skipped := sum(source.skipped for source in manifest.sources):
        lines.append(f"skipped {counted(skipped, 'word')} that could not be moves")
    for kind, count in manifest.quarantined.items():
        lines.append(f"  {count} x {kind} (see {printable(report.store / 'quarantine.jsonl')})")
    return "\n".join(map(escaped, lines))


def listed(counts: Mapping[str, int]) -> str:
    """'1-0 -> 1/2-1/2 2, cut 1'."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _info(args: argparse.Namespace, path: Path) -> None:
    store = GameStore.open(path)
    summary = summarize(store)
    filters = SampleFilters(**values_of_flags(SampleFilters, vars(args)))
    window: Window | None = None
    if chosen_filters(filters):  # what a run with these filters trains on, with nothing held out
        window = with_filters(Window.of_stores([store]), filters)
        window = for_training(window, filters, seed=0, num_threads=count_processors())
    if args.json:
        if window is not None:
            counts = [dataclasses.asdict(count) for count in window.filtered]
            summary["filters"] = {
                "removed": counts,
                "games": window.num_games,
                "positions": window.num_samples,
            }
        print(json.dumps(summary, indent=1))
        return
    print(info_text(path, summary))
    if window is not None:
        left = f"{counted(window.num_games, 'game')}, {counted(window.num_samples, 'position')}"
        print("\n".join([*(f"filter        {count}" for count in window.filtered), f"left          {left}"]))


def info_text(store: Path, summary: Mapping[str, Any]) -> str:
    """The summary for people."""
    lines = [
        f"{printable(store)}: {summary['game']}, {amount(summary['games'], summary['plies'])},"
        f" {summary['size_bytes'] / 1e6:.1f} MB in {counted(summary['num_shards'], 'shard')}",
        f"mean length   {summary['mean_plies']:.1f} plies",
        f"results       {listed(summary['results'])}; against mate or stalemate on the board"
        f" {summary['contradictions']}",
        f"searches      {summary['searched_games']} games by a search, {summary['full_searches']} full"
        f" searches, targets {listed(summary['targets'])}",
        f"variants      {listed(summary['variants'])}",
        f"from a FEN    {summary['from_fen']}",
        f"Elo           {'-'.join(map(str, summary['elo_range'] or ('not given',)))}",
        f"comments      evaluations of {summary['evaluations']}, clocks of {summary['clocks']} plies",
        f"quarantined   {listed(summary['quarantined'])}",
        *(f"left out      {counted(count, 'game')} by {text}" for text, count in summary["filtered"].items()),
        *([f"rescored      {listed(summary['rescored'])}"] if summary["rescored_by"] else []),
        f"version       {summary['version']}, with {', '.join(summary['columns']) or 'no further columns'}",
        f"manifest      {summary['manifest_sha256']}",
        f"sources       {len(summary['sources'])}",
    ]
    lines += [
        f"  {source['name']}: {counted(source['games'], 'game')}, {source['imported']} imported,"
        f" {sum(source['quarantined'].values())} quarantined, {source['size_bytes']} bytes"
        for source in summary["sources"]
    ]
    return "\n".join(map(escaped, lines))


def _export(args: argparse.Namespace, path: Path) -> None:
    if args.out == "-":
        raise DataError("--out -: expected the name of a new file or directory, not standard output")
    out, store = given_path(args.out, "--out"), GameStore.open(path)
    if args.to == "pgn":
        games, plies = export_pgn(store, out, first=args.first, count=args.games)
        print(f"{printable(out)}: {amount(games, plies)}")
        return
    report = export_lc0(store, out, first=args.first, count=args.games)
    print(f"{printable(out)}: {counted(report.games, 'game')}, {counted(report.positions, 'position')}")
    for why, number in report.left_out.items():
        print(f"  {counted(number, 'game')} left out: {why}")


def _verify(args: argparse.Namespace, path: Path) -> None:
    store = GameStore.open(path)
    store.verify()
    print(
        f"{printable(path)}: {amount(store.num_games, store.num_plies)}: checksums match, every move is legal"
    )
