"""Panels of machines: GPUs while training and while playing, memory and load of the first rank's host."""

from __future__ import annotations

from collections.abc import Sequence

from alphazero.report.panels.curves import CurvePanel, Figure
from alphazero.report.panels.figures import RunFigures
from alphazero.report.panels.panel import Curve, Panel, curve

GROUP = "Machines"
NO_GPU = "No GPU took part, or none was watched (--health-interval 0): ranks on a CPU have no such figures."
NO_WATCH = "The host was not watched (--health-interval 0), or the run has only begun."
_GPU = (
    ("utilisation_percent", "gpu_utilisation", "GPU utilisation", "percent"),
    ("memory_used_gib", "gpu_memory", "GPU memory in use", "GiB"),
)
_GPU_IF_KNOWN = (
    ("temperature_c", "gpu_temperature", "GPU temperature", "degrees Celsius"),
    ("power_w", "gpu_power", "GPU power", "W"),
)
_HOST = (
    CurvePanel(
        "host_memory",
        GROUP,
        "Memory of the host",
        "GiB",
        (
            Figure("health", "host/memory_available_gib", "available"),
            Figure("health", "host/swap_used_gib", "swap in use"),
        ),
        NO_WATCH,
        is_from_zero=True,
    ),
    CurvePanel(
        "host_load",
        GROUP,
        "Load of the host",
        "processes",
        (Figure("health", "host/load", "load"),),
        NO_WATCH,
        is_from_zero=True,
    ),
    CurvePanel(
        "disk_free",
        GROUP,
        "Free disk space",
        "GiB",
        (Figure("health", "host/disk_free_gib", "free"),),
        NO_WATCH,
        is_from_zero=True,
    ),
)


def device_panels(runs: Sequence[RunFigures]) -> list[Panel]:
    """GPUs of all hosts, then the host of rank 0."""
    panels = [_gpu_panel(runs, *entry) for entry in _GPU]
    panels += [panel for entry in _GPU_IF_KNOWN if (panel := _gpu_panel(runs, *entry)).marks]
    return panels + [panel.of(runs) for panel in _HOST]


def _gpu_panel(runs: Sequence[RunFigures], figure: str, name: str, title: str, unit: str) -> Panel:
    """The figure of every GPU, a curve each for training and for self-play."""
    curves: list[Curve] = []
    for number, run in enumerate(runs):
        place = 0
        for kind, prefix, while_ in (("gpu", "", ""), ("self_play", "gpu/", " in self-play")):
            lines = run.of(kind)
            for column in sorted(lines.columns):
                if column.startswith(prefix) and column.endswith(f"/{figure}"):
                    device = column[len(prefix) : -len(figure) - 1].replace("/", " ")
                    found = curve(f"{device}{while_}", number, place, run, lines.known(column))
                    curves += [found] if found else []
                    place += 1
    return Panel(name, GROUP, title, unit, tuple(curves), NO_GPU, is_from_zero=True)
