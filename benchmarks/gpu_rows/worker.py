"""A process that measures rows: orders on stdin, answers on what was stdout, both JSON by the line.

`python -m benchmarks.gpu_rows.worker`. A row that fails answers with its error; one that takes the process
with it costs that row alone (crew.py).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from alphazero.base.errors import AlphaZeroError
from alphazero.base.text import reason

Measure = Callable[[Mapping[str, Any]], Mapping[str, object]]


def measures() -> dict[str, Measure]:
    """Who measures which kind of row. Imported here: the parent names rows without torch."""
    from benchmarks.gpu_rows import ceilings, machine, others, training

    return {
        "machine": machine.measure,
        "matmul": ceilings.measure_matmul,
        "convolutions": ceilings.measure_convolutions,
        "training": training.measure,
        "checkpoint": training.measure_checkpoint,
        "evaluator": others.measure_evaluator,
        "selfplay": others.measure_selfplay,
        "loader": others.measure_loader,
    }


def main() -> None:
    """Answer every order until stdin ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # libraries print to stdout as they like
        known = measures()
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            print(json.dumps(answer(known[order["kind"]], order["settings"])), file=answers, flush=True)
    # As alphazero.cli.main.end_process: threads of gloo and CUDA may not outlive the interpreter's parts.
    os._exit(0)


def answer(measure: Measure, settings: Mapping[str, Any]) -> dict[str, object]:
    """Figures of one row, or the error that ended it."""
    try:
        return {"figures": dict(measure(settings))}
    except AlphaZeroError as error:
        return {"error": reason(error)}
    except Exception as error:  # of whatever kind: it is this row's result
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {reason(error)}"}


if __name__ == "__main__":
    main()
