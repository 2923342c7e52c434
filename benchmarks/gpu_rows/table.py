"""The document of `bench gpu` as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.measuring.page import markdown_table, percent, shown

Document = Mapping[str, Any]
Row = Mapping[str, Any]


def text(document: Document) -> str:
    """All of it in Markdown."""
    parts = [heading(document), ceilings(document), training(document), inference(document), rest(document)]
    return "\n\n".join(part for part in parts if part)


def heading(document: Document) -> str:
    """Where and with what it was measured."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"{machine['device_name']}, {machine['cores']} CPU cores; commit {machine['commit']}.",
        f"{versions}.",
        f"{document['summary']['told']}; {shown(document['summary']['spent_s'])} s.",
    ]
    if document["rehearsal"]:
        lines.insert(0, "**A rehearsal at tiny sizes: the figures say nothing.**")
    return "\n".join(lines)


def ceilings(document: Document) -> str:
    """What the device can do at best."""
    rows = [
        [row["name"], shown(row["figures"]["tflops"])]
        for row in of_kinds(document, "matmul", "convolutions")
        if row["figures"]
    ]
    return markdown_table(["ceiling", "TFLOP/s"], rows) if rows else ""


def training(document: Document) -> str:
    """Speed, shares of the ceilings, memory, idle time."""
    header = ["training", "positions/s", "micro-batch", "TFLOP/s", "of the bf16 product"]
    header += ["of bf16 convolutions", "step, ms", "idle", "peak GiB", "first step, s"]
    rows = []
    for row in of_kinds(document, "training"):
        found = row["figures"]
        if not found:
            if row.get("error"):
                rows.append([row["name"], row["error"], *["-"] * (len(header) - 2)])
            continue
        rows.append(
            [
                row["name"].removeprefix("training "),
                shown(found["positions_per_s"]),
                str(found["micro_batch"]),
                shown(found["tflops"]),
                percent(found.get("share_of_bf16_matmul")),
                percent(found.get("share_of_bf16_convolutions")),
                shown(found["step_ms"]),
                percent(found.get("device_idle_share")),
                shown(found.get("peak_allocated_gib")),
                shown(found["first_step_s"]),
            ]
        )
    return markdown_table(header, rows) if rows else ""


def inference(document: Document) -> str:
    """The evaluator against its bare forward pass, self-play against the bare network."""
    rows = [
        [
            row["name"],
            shown(row["figures"]["evaluations_per_s"]),
            shown(row["figures"]["forward_per_s"]),
            percent(row["figures"]["efficiency"]),
            "-",
        ]
        for row in of_kinds(document, "evaluator")
        if row["figures"]
    ]
    rows += [
        [
            row["name"],
            shown(row["figures"]["self_play_evaluations_per_s"]),
            shown(row["figures"]["bare_evaluations_per_s"]),
            percent(row["figures"]["share_steady"]),
            percent(row["figures"].get("device_idle_share_steady")),
        ]
        for row in of_kinds(document, "selfplay")
        if row["figures"]
    ]
    header = ["inference", "evaluations/s", "bare network, evaluations/s", "share", "idle"]
    return markdown_table(header, rows) if rows else ""


def rest(document: Document) -> str:
    """Checkpoints and the loader; rows that failed or were left out, by name."""
    rows = []
    for row in of_kinds(document, "checkpoint", "loader"):
        for name, value in row["figures"].items():
            if isinstance(value, (int, float)):
                rows.append([row["name"], name, shown(value)])
    summary = document["summary"]
    lines = [markdown_table(["row", "figure", "value"], rows)] if rows else []
    for row in document["rows"]:
        if row.get("error"):
            lines.append(f"Failed: {row['name']}: {row['error']}")
    if summary["rows_dropped"]:
        lines.append(f"Left out for time: {', '.join(summary['rows_dropped'])}.")
    return "\n\n".join(lines)


def of_kinds(document: Document, *kinds: str) -> Iterator[Row]:
    """The rows of these kinds, in their order."""
    yield from (row for row in document["rows"] if row["kind"] in kinds)
