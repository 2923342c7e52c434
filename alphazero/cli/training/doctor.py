"""`alphazero doctor`: the environment for a bug report, and what this machine can do, as page or JSON."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_device_flag, add_number, add_ssh_flags, ssh_options
from alphazero.launch.plan.hostfile import read_hostfile
from alphazero.measure.doctor import (
    MILLION,
    Examination,
    ExaminedHost,
    PresetSpeed,
    estimates,
    examine_hosts,
    examine_this_host,
)
from alphazero.measure.short_run import visible_gpus
from alphazero.settings.flags import seconds, whole
from alphazero.settings.load import load_config, preset_names

FORMAT, VERSION = "alphazero-doctor", 2
SIZES_FORMAT = "alphazero-sizes"
SECONDS = 4.0  # for the training of each preset, and again for its self-play
MOST_RANKS = 4096
HOST_LIMIT_S, PRESET_LIMIT_S, TIMES_LONGER = 300.0, 120.0, 20.0  # until a silent host is given up

GIB, MIB = 1 << 30, 1 << 20
NOT_MEASURED = "-"
HEAD = (
    *("preset", "network", "ranks", "precision", "trains on", "plays", "memory of a rank"),
    *("of peak", "1 M positions", "energy"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """What to measure, and where."""
    parser.epilog = "Exit status: 0, or 2 where a host or a preset could not be measured."
    parser.add_argument("--quick", action="store_true", help="tell the environment alone, measure nothing")
    parser.add_argument(
        "--sizes",
        action="store_true",
        help="compute what the networks of presets cost and measure nothing: parameters, operations, memory",
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/doctor.md has its keys)")
    parser.add_argument(
        "--presets",
        nargs="+",
        choices=preset_names(),
        default=[],
        help="which to measure (default: all that this machine trains in a short run)",
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
    if args.sizes:
        return _show_sizes(args, presets or preset_names())
    runs = str(args.runs_dir.absolute())
    asked = Examination(presets, runs, args.device, 0.0 if args.quick else args.seconds, args.gpus)
    if not args.quick:
        named = ", ".join(presets) or "all presets that this machine trains in a short run"
        print(f"measuring {named}: about half a minute for each preset", file=sys.stderr)
    say = functools.partial(print, file=sys.stderr)
    found = _examine_hosts(args, asked) if args.hostfile else [examine_this_host(asked, say)]
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


def _show_sizes(args: argparse.Namespace, presets: Sequence[str]) -> int:
    if args.hostfile or args.quick:
        raise ConfigError("--sizes: not with --hostfile or --quick; expected one of them")
    ranks = args.gpus or len(visible_gpus(args.device)) or 1
    found = [preset_size(preset, ranks) for preset in presets]
    if args.json:
        entries = [dataclasses.asdict(one) for one in found]
        print(
            json.dumps({"format": SIZES_FORMAT, "version": 1, "ranks": ranks, "presets": entries}, indent=1)
        )
    else:
        print("\n".join(sizes_page(found, ranks)))
    return 0


@dataclass(frozen=True)
class PresetSize:
    """flop: of a position's forward pass. kept_bytes: of a position in training, by activation_checkpointing.

    rank_bytes: weights, gradients and optimizer state of a rank, by ZeRO stage.
    """

    preset: str
    game: str
    network: str
    parameters: int
    flop: int
    step_flop: int
    kept_bytes: Mapping[str, int]
    rank_bytes: Sequence[int]


def preset_size(preset: str, ranks: int) -> PresetSize:
    """The size of a preset's network, shared out over so many ranks."""
    from alphazero.measure.sizes import STAGES, on_meta_device, rank_bytes, size_of
    from alphazero.training.engine.optimizer import state_numbers

    config = load_config(preset, {})
    size, network = size_of(config.network), on_meta_device(config.network)
    moments = state_numbers(network, config.optimizer.optimizer)
    return PresetSize(
        preset=preset,
        game=config.network.game,
        network=f"{config.network.blocks}x{config.network.filters}",
        parameters=size.parameters,
        flop=size.flop,
        step_flop=size.step_flop,
        kept_bytes=size.kept_bytes,
        rank_bytes=[rank_bytes(network, moments, stage, ranks) for stage in STAGES],
    )


def sizes_page(found: Sequence[PresetSize], ranks: int) -> list[str]:
    """A row per preset."""
    kinds = list(dict.fromkeys(kind for one in found for kind in one.kept_bytes))
    stages = [f"ZeRO {stage}" for stage in range(len(found[0].rank_bytes))]
    head = ("preset", "network", "parameters", "FLOP", *kinds, *stages)
    rows = [
        (
            one.preset,
            f"{one.game} {one.network}",
            f"{one.parameters / 1e6:,.1f} M",
            f"{one.flop / 1e9:,.3g} G",
            *(f"{one.kept_bytes[kind] / MIB:.3g} MiB" if kind in one.kept_bytes else "-" for kind in kinds),
            *(f"{size / GIB:.3g} GiB" for size in one.rank_bytes),
        )
        for one in found
    ]
    return [
        *table([head, *rows], "ll" + "r" * (len(head) - 2)),
        "",
        "FLOP: of a position's forward pass; a training step takes three times as many.",
        f"{', '.join(kinds)}: memory of a position in training in bf16 on a GPU, "
        "by --activation-checkpointing.",
        f"ZeRO: weights, gradients and optimizer state of each of {counted(ranks, 'rank')}.",
    ]


def page(host: ExaminedHost) -> str:
    """Environment first, then what was measured."""
    lines = [f"{host.host}", ""]
    if host.fault:
        return "\n".join([*lines, f"could not be examined: {host.fault}"])
    lines += _environment(host)
    if host.presets or host.left_out:
        lines += ["", *_measured(host), *host.left_out]
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
        NOT_MEASURED if one.share_of_peak is None else f"{one.share_of_peak:.0%}",
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
