"""`alphazero import-weights`: an lc0 network (.pb.gz) as a weights file of this program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import WeightsError
from alphazero.base.text import escaped

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
    body = [f"squeeze-excitation   {f'yes, ratio {config.se_ratio}' if config.se_ratio else 'no'}"]
    if config.body == "attention":
        body = [
            f"encoders' heads      {config.heads}",
            f"feed-forward units   {config.ffn_width}",
            f"embedding            {config.embedding}",
            f"smolgen              {'yes' if config.smolgen_channels else 'no'}",
        ]
    policy = {"convolution": "convolutional", "attention": "attention"}[config.policy_head]
    heads = f"policy ({policy}), value (win/draw/loss)" + (", moves left" if config.moves_left else "")
    lines = [
        f"{source}:",
        f"  body                 {config.body}",
        f"  blocks               {config.blocks}",
        f"  filters              {config.filters}",
        *(f"  {line}" for line in body),
        f"  heads                {heads}",
        f"  parameters           {parameters:,}",
    ]
    if config.other_heads:
        kept = sorted({entry.rpartition("/")[0] for entry in config.other_heads.split()})
        lines.append(f"  kept, not played     {', '.join(kept)}")
    if "training_steps" in metadata:
        lines.append(f"  training steps       {metadata['training_steps']:,}")
    if metadata.get("license"):
        lines.append(f"  licence              {metadata['license']}")
    return "\n".join(map(escaped, lines))
