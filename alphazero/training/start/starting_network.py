"""The network that a stretch of training begins with: drawn at random, given, or of a checkpoint.

It is made where memory can hold it while it trains, and refused before it is made where not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch

from alphazero.base.errors import ConfigError
from alphazero.base.files import sha256_of
from alphazero.base.section import flag_of
from alphazero.base.text import counted
from alphazero.games.registry import get_spec
from alphazero.machine.memory import read_memory
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.model.sizes import FLOAT_BYTES, STAGES, on_meta_device, rank_bytes
from alphazero.network.weights.checkpoint import Checkpoint, Tensors
from alphazero.network.weights.open_network import open_weights
from alphazero.run.checkpoint_files import MANIFEST
from alphazero.run.find import find_weights, is_checkpoint
from alphazero.settings.deepspeed_file import SET_FLAG
from alphazero.settings.load import Config
from alphazero.settings.sections import NetworkConfig
from alphazero.training.engine.deepspeed_config import LIMITS_OF_WEIGHTS, deepspeed_stage
from alphazero.training.engine.optimizer import state_numbers
from alphazero.training.engine.probe import LIBRARY_BYTES
from alphazero.training.ranks.exchange import Exchange, Json
from alphazero.training.ranks.runtime import Runtime

FLAG = "--init-weights"
# Of the memory a CPU rank may use, what the network may fill: loader and checkpoints grow beside it.
CPU_SHARE = 0.8


def available_to_rank(runtime: Runtime) -> int:
    """Bytes that a network may take: of its GPU, or its part of the memory that its host has available."""
    if runtime.device.type == "cuda":
        return int(torch.cuda.mem_get_info(runtime.device)[0]) - LIBRARY_BYTES
    return int(CPU_SHARE * read_memory().available_bytes) // runtime.local_world_size


@dataclass(frozen=True)
class StartingNetwork:
    """Builds the network, the same on every rank.

    given: the weights of --init-weights, on the CPU; None where a run begins at random. source: what
    started-*.json records of them.
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


def starting_network(
    config: Config, resumed: Checkpoint | None, exchange: Exchange
) -> tuple[StartingNetwork, list[str]]:
    """What builds the network, and lines for the banner. Collective.

    Its shape is that of --init-weights where a run begins with them: rank 0 reads them and sends them to the
    others, so that no other host needs the file. Raises ConfigError, WeightsError and CheckpointError on all
    ranks.
    """
    network, asked = config.network, config.asked
    name, seed = config.training.init_weights, config.training.seed
    if resumed or not name:
        lines = []
        if resumed and "init_weights" in asked and name:
            lines = [f"{FLAG} {name}: not read: this run resumes with its own weights"]
        return StartingNetwork(network, seed), lines
    tensors: Tensors = {}

    def read() -> Json:
        path = find_weights(name, FLAG)
        weights = open_weights(name, FLAG)
        # What an import kept beside the heads that play would no longer fit the network that is trained.
        given = dataclasses.replace(weights.config, other_heads="")
        check_shape(given, network, asked, name)
        tensors.update(
            (key, t) for key, t in weights.state_dict.items() if not key.startswith("other_heads.")
        )
        digest = sha256_of(path / MANIFEST if is_checkpoint(path) else path)
        source = {"weights": name, "file": str(path.absolute()), "sha256": digest}
        return {"network": dataclasses.asdict(given), "source": source}

    record = exchange.on_main(read)
    shape, source = NetworkConfig(**record["network"]), record["source"]
    given = exchange.tensors_from(0, tensors)
    changed = [
        f"{entry.name} {getattr(shape, entry.name)} (not {getattr(network, entry.name)})"
        for entry in dataclasses.fields(NetworkConfig)
        if getattr(shape, entry.name) != getattr(network, entry.name)
    ]
    changed = [f"as in {FLAG}: {', '.join(changed)}"] if changed else []
    line = f"first weights     {name} (sha256 {source['sha256'][:12]})"
    return StartingNetwork(shape, seed, given, source), [*changed, line]


def require_memory(
    config: Config,
    runtime: Runtime,
    exchange: Exchange,
    available_bytes: Callable[[Runtime], int] = available_to_rank,
) -> None:
    """Raise ConfigError where a rank's memory cannot hold the network while it trains. Collective.

    It asks before any of it is made; activations are not counted. Where ds_config.json keeps parts of it
    elsewhere, how much is not known.
    """
    options = config.deepspeed.zero_options_at(config.training.zero_stage)
    if not any(name.startswith("offload_") for name in options):
        exchange.on_each(lambda: _require_here(config, runtime, available_bytes(runtime)))


def _require_here(config: Config, runtime: Runtime, available: int) -> None:
    network, given, num_ranks = on_meta_device(config.network), config.training.zero_stage, runtime.world_size
    count, moments = network.parameter_count(), state_numbers(network, config.optimizer.optimizer)

    def needed_at(stage: int) -> int:
        # Every rank begins with the whole network, which ZeRO 3 shares out later.
        return max(count * FLOAT_BYTES, rank_bytes(network, moments, stage, num_ranks))

    if (needed := needed_at(deepspeed_stage(config))) <= available:
        return
    ways = {}
    for stage in STAGES[given + 1 :]:
        training = replace(config.training, zero_stage=stage)
        ways[f"--zero-stage {stage}"] = needed_at(deepspeed_stage(replace(config, training=training)))
    limits = " ".join(f"zero_optimization.{name}={count // 10}" for name in LIMITS_OF_WEIGHTS)
    ways[f"--zero-stage 3 {SET_FLAG} {limits}"] = needed_at(3)
    fitting = [f"{way} ({size:,} bytes)" for way, size in ways.items() if size <= available]
    more = "more GPUs or hosts" + ("" if given == 3 else " and a higher --zero-stage")
    raise ConfigError(
        f"{runtime.host} {runtime.device}: {count:,} parameters with gradients and optimizer state take "
        f"{needed:,} bytes of a rank's memory at ZeRO stage {given} on {counted(num_ranks, 'rank')}, "
        f"{available:,} are available; expected {fitting[0] if fitting else more}, or a smaller network"
    )


def check_shape(shape: NetworkConfig, network: NetworkConfig, asked: Collection[str], name: str) -> None:
    """Raise ConfigError for a requested field of the network that the weights do not have."""
    for entry in dataclasses.fields(NetworkConfig):
        wanted, given = getattr(network, entry.name), getattr(shape, entry.name)
        if entry.name in asked and wanted != given:
            raise ConfigError(
                f"{flag_of(entry.name)} {wanted}: the network of {FLAG} {name} has {given}; "
                f"expected {given}, or no such setting"
            )
