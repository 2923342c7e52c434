"""`alphazero doctor`: the environment for a bug report, and what this machine can do, as page or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_device_flag, add_number, add_ssh_flags, ssh_options
from alphazero.cluster.plan.hostfile import read_hostfile
from alphazero.measure.doctor import (
    MILLION,
    Examination,
    ExaminedHost,
    PresetSpeed,
    estimates,
    examine_hosts,
    examine_this_host,
)
from alphazero.settings.flags import seconds, whole
from alphazero.settings.load import preset_names

FORMAT, VERSION = "alphazero-doctor", 2
SECONDS = 4.0  # for the training of each preset, and again for its self-play
MOST_RANKS = 4096
HOST_LIMIT_S, PRESET_LIMIT_S, TIMES_LONGER = 300.0, 120.0, 20.0  # until a silent host is given up

GIB, MIB = 1 << 30, 1 << 20
NOT_MEASURED = "-"
HEAD = (
    *("preset", "network", "ranks", "precision", "trains on", "plays", "memory of a rank"),
    *("1 M positions", "energy"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """What to measure, and where."""
    parser.epilog = "Exit status: 0, or 2 where a host or a preset could not be measured."
    parser.add_argument("--quick", action="store_true", help="tell the environment alone, measure nothing")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/doctor.md has its keys)")
    parser.add_argument(
        "--presets",
        nargs="+",
        choices=preset_names(),
        default=preset_names(),
        help="what to measure (default: all that ship)",
    )
    add_number(
        parser,
        "--seconds",
        seconds(0.5),
        "to measure each preset's training, and as long its self-play",
        SECONDS,
        metavar="S",
    )
    add_number(
        parser,
        "--gpus",
        whole(0, MOST_RANKS),
        "ranks: one per GPU, or CPU ranks (default: as many as training would have)",
        0,
    )
    add_device_flag(parser, "where to compute")
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="whose disk is measured (default: runs)"
    )
    parser.add_argument(
        "--hostfile", type=Path, help="examine these hosts, each for itself, instead of this one"
    )
    add_ssh_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Examine this machine, or the hosts of a cluster, and print what was found."""
    presets = tuple(dict.fromkeys(args.presets))
    runs = str(args.runs_dir.absolute())
    asked = Examination(presets, runs, args.device, 0.0 if args.quick else args.seconds, args.gpus)
    if not args.quick:
        print(f"measuring {', '.join(presets)}: about half a minute for each preset", file=sys.stderr)
    found = _examine_hosts(args, asked) if args.hostfile else [examine_this_host(asked)]
    if args.json:
        hosts = [host.to_json() for host in found]
        print(json.dumps({"format": FORMAT, "version": VERSION, "hosts": hosts}, indent=1))
    else:
        print("\n\n".join(map(page, found)))
    is_whole = all(not host.fault and not any(one.fault for one in host.presets) for host in found)
    return 0 if is_whole else ConfigError.exit_code


def _examine_hosts(args: argparse.Namespace, asked: Examination) -> list[ExaminedHost]:
    if args.gpus:
        raise ConfigError("--gpus: not with --hostfile, whose slots are the ranks of each host")
    hosts = read_hostfile(args.hostfile)
    limit_s = HOST_LIMIT_S + (PRESET_LIMIT_S + TIMES_LONGER * args.seconds) * len(asked.presets)
    return examine_hosts(hosts, ssh_options(args), asked, limit_s)


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
    found = host.environment
    processor, memory, ports = found["processor"], found["memory"], found["ports"]
    state, cuda = found["git"], found["cuda"]
    changed = state["changed_files"]
    commit = f"{state['commit'][:12]} on {state['branch']}"
    rows = [
        ("commit", commit + (f", {counted(len(changed), 'changed file')}" if changed else "")),
        ("system", f"{found['platform']}, Python {found['python']}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in found["packages"].items())),
        ("CUDA", f"torch built for {cuda['torch_built_for']}; driver {cuda['driver']}; NCCL {cuda['nccl']}"),
        ("GPUs", _gpus(found["devices"])),
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
        lines += [*table([HEAD, *map(_row, sound)]), ""]
        for one in estimates(sound):
            energy = "" if one.kwh is None else f", {one.kwh:.3g} kWh"
            lines.append(f"{one.job}, {one.preset}: about {duration(one.hours)}{energy}")
        lines += ["", _energy(sound)]
    faults = [one for one in host.presets if one.fault]
    return [*lines, *(f"{one.preset}: could not be measured: {one.fault}" for one in faults)]


def _row(one: PresetSpeed) -> tuple[str, ...]:
    hours = one.hours(MILLION)
    kwh = one.kwh(hours)
    return (
        one.preset,
        f"{one.game} {one.network}",
        f"{one.ranks} x {one.device}",
        one.precision,
        f"{rate(one.trains)} positions/s",
        f"{rate(one.plays)} positions/s",
        f"{one.memory_bytes / GIB:.1f} GiB",
        duration(hours),
        NOT_MEASURED if kwh is None else f"{kwh:.3g} kWh",
    )


def _energy(measured: list[PresetSpeed]) -> str:
    by_preset = [f"{sum(one.watts.values()):.0f} W in {one.preset}" for one in measured if one.watts]
    if not by_preset:
        return "energy: not measured, this machine does not report its power"
    sources = ", ".join(sorted({name for one in measured for name in one.watts}))
    return (
        f"energy: {', '.join(by_preset)} ({sources}, while training; the rest of the machine is not included)"
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
