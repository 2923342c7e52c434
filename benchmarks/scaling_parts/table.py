"""The document of `bench scaling` as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.measuring.page import markdown_table, percent, shown
from benchmarks.scaling_parts.model import PUBLISHED

Document = Mapping[str, Any]


def text(document: Document) -> str:
    """All of it in Markdown."""
    return "\n\n".join(
        part for part in (measured(document), modelled(document), assumptions(document)) if part
    )


def measured(document: Document) -> str:
    """Measured scaling beside the model's."""
    if not document.get("scaling"):
        return ""
    machine, job = document["machine"], document["job"]
    place = (
        f"{machine['device_name']}, {machine['cores']} CPU cores, torch {machine['versions']['torch']}; "
        f"commit {machine['commit']}. {job['blocks']}x{job['filters']} in {job['precision']}, "
        f"{job['positions']} positions a rank (weak) or in all (strong)."
    )
    header = ["scaling", "ranks", "positions a rank", "step, ms", "predicted, ms", "measured / predicted"]
    header += ["speed-up", "predicted"]
    rows = [
        [
            row["kind"],
            str(row["ranks"]),
            str(row["positions_per_rank"]),
            shown(1000 * row["measured_s"]),
            shown(1000 * row["predicted_s"]),
            f"{row['measured_to_predicted']:.2f}",
            f"{row['speedup']:.2f}",
            f"{row['predicted_speedup']:.2f}",
        ]
        for row in sorted(document["scaling"], key=lambda row: (row["kind"] == "strong", row["ranks"]))
    ]
    return f"{place}\n\n{markdown_table(header, rows)}"


def modelled(document: Document) -> str:
    """The model for many GPUs, beside what others published."""
    if not document.get("model"):
        return str(document.get("no_model", ""))
    names = list(dict.fromkeys(row["link"] for row in document["model"]))
    header = ["GPUs", *(f"{name}: weak, strong (exchange)" for name in names), "published"]
    by_count: dict[int, list[str]] = {}
    for row in document["model"]:
        cell = f"{row['weak']:.2f}, {row['strong']:.2f} ({percent(row['exchange_share'])})"
        by_count.setdefault(row["gpus"], []).append(cell)
    rows = [[str(gpus), *cells, published(gpus)] for gpus, cells in by_count.items()]
    basis = document["model_basis"]
    place = (
        f"Modelled from the steps of {basis['source']}: {basis['weak_positions']} positions a GPU (weak), "
        f"{basis['strong_positions']} in all (strong); {shown(basis['gradient_bytes'] / 1e6)} MB exchanged."
    )
    return f"{place}\n\n{markdown_table(header, rows)}"


def published(gpus: int) -> str:
    """What other programs state for so many GPUs."""
    low, high = PUBLISHED.get(gpus, (0, 0))
    return f"{low}-{high}" if high else "-"


def assumptions(document: Document) -> str:
    """What the model takes for granted."""
    return "The model assumes:\n\n" + "\n".join(f"- {line}" for line in document["assumptions"])
