"""One rank of the doctor's job: measures the presets that it is told, and rank 0 writes what came of it.

`python -m alphazero.doctor.rank ORDER RESULT`: two files of JSON, beside torchrun's variables.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import torch

from alphazero.base.errors import AlphaZeroError
from alphazero.base.files import write_json
from alphazero.doctor.preset_speed import measure_preset
from alphazero.machine.memory import keep_freed_memory
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.ranks.runtime import default_threads, read_runtime


def main() -> int:
    """Measure one preset after the other; a fault of one is noted and the next begins."""
    order_path, result_path = map(Path, sys.argv[1:])
    order = json.loads(order_path.read_text(encoding="utf-8"))
    runtime = read_runtime(os.environ, order["device"])
    torch.set_num_threads(default_threads(runtime.local_world_size))
    if runtime.device.type == "cpu":
        keep_freed_memory()
    exchange = start_process_group(runtime)
    found: list[object] = []
    for preset in order["presets"]:
        try:
            figures = measure_preset(preset, runtime, exchange, order["seconds"], plays=order["plays"])
            found.append(dataclasses.asdict(figures))
        except AlphaZeroError as error:
            found.append({"preset": preset, "fault": str(error)})
        if runtime.is_main:
            write_json(result_path, found)
    exchange.barrier()
    end_process_group()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # as alphazero.cli.main.end_process
