"""Flags of the commands that evaluate positions: the network, its device and its arithmetic."""

from __future__ import annotations

import argparse

WEIGHTS_HELP = (
    "a weights file (.pt, .safetensors, lc0's .pb.gz), a run (runs/x is its newest checkpoint, "
    "runs/x@best-policy_top1 its best, runs/x@12000 that step), or a checkpoint"
)


def add_network_flags(parser: argparse.ArgumentParser) -> None:
    """--device and --precision."""
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="device to use (default: auto)",
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16", "int8"),
        default="fp32",
        help="arithmetic of the network; int8 is for the CPU (default: fp32)",
    )


def add_weights_flag(parser: argparse.ArgumentParser, role: str = "", *, several: bool = False) -> None:
    """--weights: whatever any_weights.open_network understands, one or `several`. role: for the help."""
    parser.add_argument(
        "--weights",
        nargs="+" if several else None,
        required=True,
        metavar="W",
        help=f"{role}: {WEIGHTS_HELP}" if role else WEIGHTS_HELP,
    )
