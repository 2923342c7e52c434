"""`alphazero import-weights`: an lc0 network (.pb.gz) as a weights file of this program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import WeightsError
from alphazero.base.text import table

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
    """The network in a few lines."""
    body = [("squeeze-excitation", f"yes, ratio {config.se_ratio}" if config.se_ratio else "no")]
    if config.body == "attention":
        body = [
            ("encoders' heads", str(config.heads)),
            ("feed-forward units", str(config.ffn_width)),
            ("embedding", config.embedding),
            ("smolgen", "yes" if config.smolgen_channels else "no"),
        ]
    heads = f"policy ({config.policy_head}), value (win/draw/loss)"
    kept = sorted({entry.rpartition("/")[0] for entry in config.other_heads.split()})
    steps = metadata.get("training_steps")
    rows = [
        ("body", config.body),
        ("blocks", str(config.blocks)),
        ("filters", str(config.filters)),
        *body,
        ("heads", heads + (", moves left" if config.moves_left else "")),
        ("parameters", f"{parameters:,}"),
        ("kept, not played", ", ".join(kept)),
        ("training steps", "" if steps is None else f"{steps:,}"),
        ("licence", str(metadata.get("license") or "")),
    ]
    return "\n".join([f"{source}:", *(f"  {line}" for line in table([row for row in rows if row[1]]))])
