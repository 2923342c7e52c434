"""The network that a stretch of training begins with: drawn at random, given, or of a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from alphazero.base.errors import ConfigError
from alphazero.base.files import sha256_of
from alphazero.base.section import flag_of
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, Tensors
from alphazero.network.weights.open_network import open_weights
from alphazero.run.checkpoint_files import MANIFEST
from alphazero.run.find import find_weights, is_checkpoint
from alphazero.settings.load import Config
from alphazero.settings.sections import NetworkConfig
from alphazero.training.ranks.exchange import Exchange, Json

FLAG = "--init-weights"


@dataclass(frozen=True)
class StartingNetwork:
    """Builds the network, the same on every rank.

    given: the weights of --init-weights, on the CPU; None where a run begins at random. source: what
    settings/started-*.json tells of them.
    """

    config: NetworkConfig
    seed: int
    given: Tensors | None = None
    source: Mapping[str, Json] | None = None

    def build(self, resumed: Checkpoint | None) -> AlphaZeroNet:
        """The network with its first weights, or those of the checkpoint."""
        generator = torch.Generator().manual_seed(self.seed)
        network = AlphaZeroNet(self.config, get_spec(self.config.game), generator)
        if weights := resumed.weights if resumed else self.given:
            network.load_state_dict(weights)
        return network

    def told(self) -> list[str]:
        """A line for people, or none."""
        if self.source is None:
            return []
        return [f"first weights     {self.source['weights']} (sha256 {str(self.source['sha256'])[:12]})"]


def starting_network(
    config: Config, resumed: Checkpoint | None, exchange: Exchange
) -> tuple[Config, StartingNetwork, list[str]]:
    """The settings with the network's shape, what builds the network, and lines for people. Collective.

    The shape is that of --init-weights where a run begins with them: rank 0 reads them and sends them to the
    others, so that no other host needs the file. Raises ConfigError, WeightsError and CheckpointError on all
    ranks.
    """
    name, seed = config.training.init_weights, config.training.seed
    if resumed or not name:
        lines = []
        if resumed and "init_weights" in config.asked and name:
            lines = [f"{FLAG} {name}: not read: this run goes on from its own weights"]
        return config, StartingNetwork(config.network, seed), lines
    tensors: Tensors = {}

    def read() -> Json:
        path = find_weights(name, FLAG)
        weights = open_weights(name, FLAG)
        check_shape(weights.config, config)
        tensors.update(weights.state_dict)
        digest = sha256_of(path / MANIFEST if is_checkpoint(path) else path)
        source = {"weights": name, "file": str(path.absolute()), "sha256": digest}
        return {"network": dataclasses.asdict(weights.config), "source": source}

    found = exchange.on_main(read)
    network = NetworkConfig(**found["network"])
    lines = told_shape(network, config.network)
    given = exchange.tensors_from(0, tensors)
    starting = StartingNetwork(network, seed, given, found["source"])
    return dataclasses.replace(config, network=network), starting, [*lines, *starting.told()]


def check_shape(shape: NetworkConfig, config: Config) -> None:
    """Raise ConfigError for a field of the network that somebody asked for and the weights do not have."""
    for entry in dataclasses.fields(NetworkConfig):
        asked, given = getattr(config.network, entry.name), getattr(shape, entry.name)
        if entry.name in config.asked and asked != given:
            place = flag_of(entry.name) if entry.name in config.set_by_flag else entry.name
            raise ConfigError(
                f"{place} {asked}: the network of {FLAG} {config.training.init_weights} has {given}; "
                f"expected {given}, or nothing said of it"
            )


def told_shape(shape: NetworkConfig, preset: NetworkConfig) -> list[str]:
    """A line about what the weights have otherwise than the preset, or none."""
    listed = [
        f"{entry.name} {getattr(shape, entry.name)} (not {getattr(preset, entry.name)})"
        for entry in dataclasses.fields(NetworkConfig)
        if getattr(shape, entry.name) != getattr(preset, entry.name)
    ]
    return [f"as in {FLAG}: {', '.join(listed)}"] if listed else []
