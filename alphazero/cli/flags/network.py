"""The flags of every command that evaluates positions with a network: its device and its arithmetic."""

from __future__ import annotations

import argparse


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
        choices=("fp32", "bf16", "fp16"),
        default="fp32",
        help="arithmetic of the network (default: fp32)",
    )
