"""What the doctor says of a host, for people."""

from __future__ import annotations

from alphazero.base.text import counted, table
from alphazero.doctor.estimates import Estimate, energy_kwh, estimates, training_hours
from alphazero.doctor.examined_host import MILLION, ExaminedHost
from alphazero.doctor.figures import PresetFigures

GIB, MIB = 1 << 30, 1 << 20
NOT_MEASURED = "-"
HEAD = (
    *("preset", "network", "ranks", "precision", "trains on", "plays", "largest micro-batch"),
    *("1 M positions", "energy"),
)


def page(host: ExaminedHost) -> str:
    """Environment first, then what was measured."""
    lines = [f"{host.host}", ""]
    if host.fault:
        return "\n".join([*lines, f"could not be examined: {host.fault}"])
    lines += _environment(host)
    if host.presets:
        lines += ["", *_measured(host)]
    return "\n".join(lines)


def _environment(host: ExaminedHost) -> list[str]:
    told = host.environment
    processor, memory, ports = told["processor"], told["memory"], told["ports"]
    state, cuda = told["git"], told["cuda"]
    changed = state["changed_files"]
    commit = f"{state['commit'][:12]} on {state['branch']}"
    rows = [
        ("commit", commit + (f", {counted(len(changed), 'changed file')}" if changed else "")),
        ("system", f"{told['platform']}, Python {told['python']}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in told["packages"].items())),
        ("CUDA", f"torch built for {cuda['torch_built_for']}; driver {cuda['driver']}; NCCL {cuda['nccl']}"),
        ("GPUs", _gpus(told["devices"])),
        (
            "processor",
            f"{processor['name']}, {counted(processor['cores'], 'core')}, "
            f"{counted(processor['processors'], 'hardware thread')}: {' '.join(processor['instructions'])}",
        ),
        (
            "memory",
            f"{memory['available_bytes'] / GIB:.1f} of {memory['total_bytes'] / GIB:.1f} GiB available, "
            f"{memory['swap_bytes'] / GIB:.1f} GiB of swap",
        ),
        ("disk", _disk(host)),
        (
            "ports",
            f"{ports['default']} (of rank 0) is {'free' if ports['default_is_free'] else 'in use'}; "
            f"listening: {', '.join(map(str, ports['listening'])) or 'none'}",
        ),
    ]
    return table(rows)


def _gpus(devices: list[dict[str, object]]) -> str:
    if not devices:
        return "none"
    return "; ".join(
        str(one.get("fault") or f"{one['index']}: {one['name']} {one['uuid']}") for one in devices
    )


def _disk(host: ExaminedHost) -> str:
    if host.disk is None:
        return host.disk_fault or "not measured"
    disk = host.disk
    return f"{disk.directory}: writes {disk.write / MIB:,.0f} MiB/s, reads {disk.read / MIB:,.0f} MiB/s"


def _measured(host: ExaminedHost) -> list[str]:
    sound = [one for one in host.presets if not one.fault]
    lines = []
    if sound:
        lines += table([HEAD, *map(_row, sound)])
        lines += ["", *(_estimate(one) for one in estimates(sound)), ""]
        lines += ["How each figure was got:"]
        lines += [
            f"  {one.preset}: trains on: {one.how['trains']}; plays: {one.how['plays']}; "
            f"largest micro-batch: {one.how['largest_micro_batch']}"
            for one in sound
        ]
        watts = _watts(sound)
        lines += [
            f"  energy: {watts}" if watts else "  energy: not measured, this machine does not tell its power"
        ]
    return [
        *lines,
        *(f"{one.preset}: could not be measured: {one.fault}" for one in host.presets if one.fault),
    ]


def _row(one: PresetFigures) -> tuple[str, ...]:
    hours = training_hours(one, MILLION)
    kwh = energy_kwh(one, hours)
    return (
        one.preset,
        f"{one.game} {one.network}",
        f"{one.ranks} x {one.device}",
        one.precision,
        f"{rate(one.trains)} positions/s",
        f"{rate(one.plays)} positions/s" if one.plays else NOT_MEASURED,
        f"{one.largest_micro_batch:,}" if one.largest_micro_batch else "none fits",
        duration(hours),
        NOT_MEASURED if kwh is None else f"{kwh:.3g} kWh",
    )


def _estimate(one: Estimate) -> str:
    energy = "" if one.kwh is None else f", {one.kwh:.3g} kWh"
    return f"{one.job}, {one.preset}: about {duration(one.hours)}{energy}"


def _watts(measured: list[PresetFigures]) -> str:
    by_preset = [(one.preset, sum(one.watts.values())) for one in measured if one.watts]
    sources = sorted({name for one in measured for name in one.watts})
    told = ", ".join(f"{watts:.0f} W in {preset}" for preset, watts in by_preset)
    return (
        f"{told} ({', '.join(sources)}, while training; the rest of the machine is not in it)" if told else ""
    )


def rate(value: float) -> str:
    """Three digits where it is small."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(hours: float | None) -> str:
    """For people: seconds to years."""
    if hours is None:
        return "not measured"
    for unit, length in (("years", 365 * 24.0), ("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= 2 * length or (unit == "minutes" and hours >= length):
            return f"{hours / length:.1f} {unit}" if hours < 10 * length else f"{hours / length:,.0f} {unit}"
    return f"{hours * 3600:.0f} seconds"
