"""The one JSON document of `bench gpu`: what was measured where, and the shares of the ceilings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_rows.budget import Budget, summary
from benchmarks.gpu_rows.plan import Sizes
from benchmarks.gpu_rows.row import Result

FORMAT = 1


def document(
    machine: Mapping[str, object], sizes: Sizes, results: Sequence[Result], budget: Budget, *, rehearsal: bool
) -> dict[str, object]:
    """rehearsal: of tiny sizes, whose figures say nothing."""
    rows = [result.as_json() for result in results]
    add_shares(rows)
    return {
        "format": FORMAT,
        "rehearsal": rehearsal,
        "machine": dict(machine),
        "sizes": dataclasses.asdict(sizes),
        "summary": summary(results, budget),
        "ceilings": found_ceilings(rows),
        "rows": rows,
    }


def found_ceilings(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """TFLOP/s of the products by precision, and of the fastest chain of convolutions in bf16."""
    products = {
        f"matmul_{row['settings']['precision']}_tflops": row["figures"]["tflops"]
        for row in rows
        if row["kind"] == "matmul" and row["figures"]
    }
    chains = [row["figures"]["tflops"] for row in rows if row["kind"] == "convolutions" and row["figures"]]
    return {**products, **({"convolutions_bf16_tflops": max(chains)} if chains else {})}


def add_shares(rows: Sequence[dict[str, Any]]) -> None:
    """Beside each training row's TFLOP/s its share of the bf16 product and of the convolutions in bf16."""
    ceilings = found_ceilings(rows)
    for row in rows:
        if row["kind"] != "training" or not row["figures"]:
            continue
        for share, ceiling in (
            ("share_of_bf16_matmul", "matmul_bf16_tflops"),
            ("share_of_bf16_convolutions", "convolutions_bf16_tflops"),
        ):
            if ceiling in ceilings:
                row["figures"][share] = row["figures"]["tflops"] / ceilings[ceiling]
