"""Flags of several commands: numbers, the network, its device and its arithmetic."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path, plain_path
from alphazero.run.find import RUNS, WEIGHTS_VARIABLE, default_weights
from alphazero.settings.cluster import MOST_PROCESSES
from alphazero.settings.flags import whole
from alphazero.settings.load import preset_names

if TYPE_CHECKING:
    import torch

    import alphazero._core as _core

WEIGHTS_HELP = (
    "a weights file (.pt, .safetensors, lc0's .pb.gz), a run (runs/x is its newest checkpoint, "
    "runs/x@best-policy_top1 its best, runs/x@12000 that step), or a checkpoint"
)


def add_number(
    parser: argparse._ActionsContainer,
    flag: str,
    kind: Callable[[str], float],
    text: str,
    default: float | None = None,
    *,
    metavar: str = "N",
) -> None:
    """A flag with a number; its help names the default, unless `text` says what it stands for."""
    if default is not None and "default:" not in text:
        text = f"{text} (default: {default:g})"
    parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=text)


def add_paths(
    parser: argparse._ActionsContainer, flag: str, text: str, metavar: str = "FILE", *, several: bool = False
) -> None:
    """A flag with the path of a file or directory, or with `several`, [] where it is not given."""
    kind = partial(given_path, flag=flag)
    if several:
        parser.add_argument(flag, type=kind, nargs="+", default=[], metavar=metavar, help=text)
    else:
        parser.add_argument(flag, type=kind, metavar=metavar, help=text)


def add_plain_file(parser: argparse._ActionsContainer, flag: str, text: str, example: str) -> None:
    """A flag with a file that text is written to. example: of its name, for errors."""
    kind = partial(plain_path, flag=flag, example=example)
    parser.add_argument(flag, type=kind, metavar="FILE", help=text)


def add_device_flag(
    parser: argparse._ActionsContainer, what: str = "device to use", default: str = "auto"
) -> None:
    """--device. what: for the help."""
    text = f"{what} (default: {default})"
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default=default, help=text)


def device_of(asked: str) -> torch.device:
    """The device that --device means in this process. Raises LaunchError."""
    from alphazero.network.model.precision import choose_device

    return choose_device(asked, 0, os.environ)


def add_network_flags(parser: argparse.ArgumentParser) -> None:
    """--device and --precision."""
    add_device_flag(parser)
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16", "int8"),
        default="fp32",
        help="arithmetic of the network; int8 is for the CPU (default: fp32)",
    )


def add_gpus_flag(parser: argparse.ArgumentParser) -> None:
    """--gpus: of the commands whose work several processes share."""
    add_number(
        parser,
        "--gpus",
        process_count,
        "processes that share the work, each with a separate GPU; -1: one for each GPU; without a GPU "
        "they share the cores",
        1,
    )


def process_count(text: str) -> int:
    """A number of processes of this machine, or -1."""
    number = whole(-1, MOST_PROCESSES)(text)
    if number == 0:
        raise argparse.ArgumentTypeError("'0': expected a whole number from 1, or -1 for all GPUs")
    return number


def add_config_flag(parser: argparse._ActionsContainer, more: str = "") -> None:
    """--config. more: for the help."""
    text = f"preset ({', '.join(preset_names())}) or TOML file{more}"
    parser.add_argument("--config", default="", metavar="NAME|FILE", help=text)


def add_weights_flag(parser: argparse._ActionsContainer, role: str = "", *, several: bool = False) -> None:
    """W or --weights, one or `several`, which network_of reads. role: for the help."""
    text = f"{role}: {WEIGHTS_HELP}" if role else WEIGHTS_HELP
    parser.add_argument(
        "network",
        nargs="*" if several else "?",
        metavar="W",
        help=f"{text}; without it ${WEIGHTS_VARIABLE}, else the only run of {RUNS}/",
    )
    parser.add_argument("--weights", nargs="+" if several else None, metavar="W", help="the same as W")


def named_network(args: argparse.Namespace) -> str | None:
    """What W or --weights names, None where neither is given. Raises ConfigError where both are."""
    _refuse_both(args)
    named: str | None = args.network or args.weights
    return named


def network_of(args: argparse.Namespace) -> str:
    """What W or --weights names, else the network that is found. Raises ConfigError and WeightsError."""
    return named_network(args) or default_weights()


def networks_of(args: argparse.Namespace) -> list[str]:
    """As network_of, where several may be named."""
    _refuse_both(args)
    named: list[str] = args.network or args.weights
    return named or [default_weights()]


def _refuse_both(args: argparse.Namespace) -> None:
    if args.network and args.weights:
        raise ConfigError(f"W {args.network} and --weights {args.weights}: expected one of the two")


def make_solver(table_mib: int) -> _core.Connect4Solver:
    """A solver with this much memory. Raises ConfigError where less is free."""
    import alphazero._core as _core
    from alphazero.machine.memory import read_memory

    available_mib = read_memory().available_bytes >> 20
    if not 1 <= table_mib <= available_mib:
        raise ConfigError(f"--table-mib {table_mib}: expected 1 to {available_mib}, the free memory")
    return _core.Connect4Solver(table_mib)
