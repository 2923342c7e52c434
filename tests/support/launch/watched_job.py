"""A job that does nothing but be watched: prints what the watcher tells, until a line comes on stdin."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from alphazero.machine import watcher as watcher_module
from alphazero.machine.judge import Finding
from alphazero.machine.nvml import GpuReading
from alphazero.machine.watcher import HealthWatcher


def tell(kind: str, value: object) -> None:
    """One JSON line."""
    print(json.dumps([kind, value]), flush=True)


def tell_usage(gpus: Sequence[GpuReading]) -> None:
    """The GPUs that answer."""
    tell("usage", [[gpu.uuid, gpu.utilisation_percent] for gpu in gpus if not gpu.lost])


def main(interval_s: str, fault: str, device: str) -> None:
    """Watch; `fault` is report or say, which then raises, or usage, which reads it often, or none."""

    def report(figures: dict[str, float]) -> None:
        tell("figures", dict(figures))
        if fault == "report":
            raise OSError("disk full")

    def say(finding: Finding) -> None:
        tell("said", finding.line())
        if fault == "say":
            raise OSError("disk full")

    watcher_module.judge_host = lambda *_, **__: []  # whatever runs beside the tests
    watcher = HealthWatcher(
        float(interval_s),
        report,
        say,
        directory=Path(),
        device=device,
        take_usage=tell_usage if fault == "usage" else None,
        tick_s=0.05,
    )
    watcher.start()
    sys.stdin.readline()
    watcher.stop()
    tell("stopped", None)


if __name__ == "__main__":
    main(*sys.argv[1:])
