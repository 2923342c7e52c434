"""What a start finds out in place of `auto`, of numbers left open, and of a preset's shape."""

from __future__ import annotations

from dataclasses import replace

from alphazero.settings.chosen import lanes_over
from alphazero.settings.load import Config, decided
from alphazero.settings.scope import kept_line, kept_settings
from alphazero.settings.self_play import settled
from alphazero.training.engine.planner import choose_precision
from alphazero.training.ranks.batch import BatchSizes, fix_batch
from alphazero.training.ranks.runtime import apply_device_settings
from alphazero.training.start.run_start import RankContext, RunStart
from alphazero.training.start.starting_network import StartingNetwork, starting_network


def settle_settings(
    config: Config, start: RunStart, rank: RankContext
) -> tuple[Config, StartingNetwork, list[str]]:
    """The settings of the run, from here on fixed; what builds its network; lines. Collective."""
    saved, num_ranks, device = start.saved, rank.runtime.world_size, rank.runtime.device
    asked = config
    if saved:
        config = kept_settings(saved.config, saved.micro_batch_size, asked)
    own = config.self_play
    starting, lines = starting_network(config, start.resumed, rank.exchange)
    batch = BatchSizes(saved.batch_size, saved.micro_batch_size) if saved else None
    sizes, batch_lines = fix_batch(config, num_ranks, batch)
    if not saved and own.mode != "supervised":
        own = replace(own, lanes=lanes_over(config, num_ranks))
        own = settled(own, config.search, sizes.batch_size, num_ranks)
    device_lines = apply_device_settings(config.training, device)
    precision, precision_lines = choose_precision(
        config, device, saved.precision if saved else "", rank.exchange
    )
    training = replace(
        config.training,
        batch_size=sizes.batch_size,
        micro_batch_size=sizes.micro_batch_size,
        precision=precision,
    )
    config = replace(config, network=starting.config, training=training, self_play=own)
    kept = kept_line(asked, config) if saved else []
    lines = [*kept, *lines, *decided(config), *batch_lines]
    return config, starting, [*lines, *device_lines, *precision_lines]
