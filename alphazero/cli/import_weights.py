"""`alphazero import-weights`: an lc0 network (.pb.gz) as a weights file of this program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import WeightsError
from alphazero.base.text import escaped
from alphazero.run.overview import network_text

if TYPE_CHECKING:
    from alphazero.network.weights.weights import Metadata
    from alphazero.settings.sections import NetworkConfig


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "source", type=Path, metavar="SRC", help="lc0 network (.pb.gz), or a weights file of this program"
    )
    parser.add_argument(
        "destination", type=Path, metavar="DST", help="weights file to write (.pt or .safetensors)"
    )
    parser.add_argument("--force", action="store_true", help="replace DST if it exists")


def run(args: argparse.Namespace) -> int:
    """Read, describe, write."""
    import torch

    from alphazero.network.weights.open_network import open_network
    from alphazero.network.weights.weights import save_weights

    destination: Path = args.destination
    if destination.exists() and not args.force:
        raise WeightsError(f"{destination}: already exists (--force replaces it)")
    network, metadata = open_network(args.source, torch.device("cpu"), "source")
    save_weights(destination, network, {**metadata, "imported_from": args.source.name})
    print(describe(args.source, network.config, network.parameter_count(), metadata))
    print(f"wrote {destination}")
    return 0


def describe(source: Path, config: NetworkConfig, parameters: int, metadata: Metadata) -> str:
    """The network's shape, and what its file says of it."""
    kept = sorted({entry.rpartition("/")[0] for entry in config.other_heads.split()})
    facts = {
        "network": f"{network_text(vars(config))}, {parameters:,} parameters",
        "kept, not played": ", ".join(kept),
        "training steps": metadata.get("training_steps"),
        "licence": metadata.get("license"),
    }
    lines = [f"  {name:18}{value}" for name, value in facts.items() if value]
    return "\n".join(map(escaped, [f"{source}:", *lines]))
