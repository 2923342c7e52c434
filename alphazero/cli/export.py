"""`alphazero export`: a network as lc0, ONNX or weights file."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import WeightsError
from alphazero.cli.flags import add_weights_flag, network_of
from alphazero.run.find import AT, BEST, find_weights, is_checkpoint

if TYPE_CHECKING:
    from alphazero.network.weights.weights import WeightsFile

# The suffixes of each format's files; the first is that of a file that is not named.
SUFFIXES = {"lc0": (".pb.gz", ".pb"), "onnx": (".onnx",), "safetensors": (".safetensors",), "pt": (".pt",)}


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser)
    parser.add_argument("--to", choices=tuple(SUFFIXES), required=True, help="format to write")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: named as W, here)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--license",
        default="",
        metavar="TEXT",
        help="with --to lc0: the licence that the file states",
    )


def run(args: argparse.Namespace) -> int:
    """Convert the network and print the file's name."""
    from alphazero.network.weights.open_network import open_weights

    if args.out is not None and not args.out.name.endswith(SUFFIXES[args.to]):
        suffixes = " or ".join(SUFFIXES[args.to])
        raise WeightsError(f"--out {args.out}: expected a name ending in {suffixes} with --to {args.to}")
    args.weights = network_of(args)
    weights = open_weights(args.weights)
    path: Path = args.out or Path(default_name(args.weights, weights) + SUFFIXES[args.to][0])
    if path.exists() and not args.force:
        raise WeightsError(f"{path}: already exists (--force replaces it)")
    if args.license and args.to != "lc0":
        raise WeightsError(f"--license: not with --to {args.to}; expected --to lc0")
    write(path, weights, args)
    print(f"wrote {path} ({path.stat().st_size:,} bytes)")
    return 0


def write(path: Path, weights: WeightsFile, args: argparse.Namespace) -> None:
    """Write the file. Raises WeightsError for networks that the format cannot hold."""
    from alphazero.network.inference.onnx_export import write_onnx
    from alphazero.network.weights.lc0_export import write_lc0
    from alphazero.network.weights.weights import network_of, write_weights

    if args.to == "lc0":
        licence = args.license or str(weights.metadata.get("license") or "")
        try:
            write_lc0(path, weights.config, weights.state_dict, training_steps(weights), licence)
        except WeightsError as error:
            raise WeightsError(f"{args.weights}: {error}") from None
    elif args.to == "onnx":
        write_onnx(path, network_of(weights.config, weights.state_dict))
    else:
        write_weights(path, weights)


def training_steps(weights: WeightsFile) -> int:
    """The training steps in the file's metadata, else 0."""
    steps = weights.metadata.get("step", weights.metadata.get("training_steps"))
    return steps if isinstance(steps, int) and 0 <= steps < 2**32 else 0


def default_name(asked: str, weights: WeightsFile) -> str:
    """As what was asked for: a file's name, or a run's with its step (`chess_cpu-1030`) or `best-METRIC`."""
    path = find_weights(asked)
    if not is_checkpoint(path):
        ending = next((suffix for suffix in chain(*SUFFIXES.values()) if path.name.endswith(suffix)), "")
        return path.name.removesuffix(ending)
    _, at, which = asked.rpartition(AT)
    step = which if at and which.startswith(BEST) else weights.metadata["step"]
    return f"{weights.metadata['run']}-{step}"
