"""What a start finds out in place of `auto`, of numbers left open, and of a preset's shape."""

from __future__ import annotations

from dataclasses import replace

from alphazero.network.model.precision import evaluation_precision
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config, decided, places
from alphazero.settings.outside.chosen import lanes_over
from alphazero.settings.scope import Kept, kept_settings
from alphazero.settings.self_play import Rounds, as_begun, settled
from alphazero.training.engine.deepspeed_config import Recipe
from alphazero.training.engine.planner import PrecisionChoice, choose_kernels, choose_precision
from alphazero.training.engine.probe import seconds_per_pass
from alphazero.training.ranks.batch import BatchSizes, fix_batch
from alphazero.training.ranks.runtime import apply_device_settings
from alphazero.training.start.run_start import RankContext, RunStart
from alphazero.training.start.starting_network import StartingNetwork, starting_network


def settle_settings(
    config: Config, settings: DeepSpeedSettings, start: RunStart, rank: RankContext
) -> tuple[Config, StartingNetwork, list[str]]:
    """The settings of the run, but for a precision of `auto`; what builds its network; lines. Collective."""
    saved, num_ranks = start.saved, rank.runtime.world_size
    kept = kept_settings(saved.config, saved.micro_batch_size, config) if saved else Kept(config)
    config, own = kept.config, kept.config.self_play
    starting, lines = starting_network(config, start.resumed, rank.exchange)
    batch = BatchSizes(saved.batch_size, saved.micro_batch_size) if saved else None
    sizes, batch_lines = fix_batch(config, num_ranks, batch, places(settings))
    if saved:
        rounds = as_begun(own, config.asked, saved.config.get("self_play", {}))
    else:
        rounds = Rounds(lanes_over(config, num_ranks), own.simulations_per_round)
        if own.mode != "supervised":
            rounds = settled(rounds.of(own), config.search, sizes.batch_size, num_ranks)
    device_lines = apply_device_settings(config.training, rank.runtime.device)
    training = replace(config.training, batch_size=sizes.batch_size, micro_batch_size=sizes.micro_batch_size)
    config = replace(config, network=starting.config, training=training, self_play=rounds.of(own))
    decisions = decided(config, settings)
    return config, starting, [*kept.lines(), *lines, *decisions, *batch_lines, *device_lines]


def settle_precision(
    config: Config, recipe: Recipe, network: AlphaZeroNet, start: RunStart, rank: RankContext
) -> tuple[PrecisionChoice, list[str]]:
    """A precision in place of `auto`; kernels for the evaluations of self-play, with lines for the banner."""
    device, world_size = rank.runtime.device, rank.runtime.world_size
    saved, games = start.saved, config.self_play
    chosen = choose_precision(
        config.training,
        recipe.deepspeed.precisions_off,
        device,
        saved.precision if saved else "",
        lambda names: seconds_per_pass(network, recipe, names, world_size),
        rank.exchange,
        keep_saved="precision" not in config.asked,
    )
    if games.mode == "supervised":
        return chosen, []
    body, game = config.network.body, config.network.game
    of_games = rank.exchange.on_each(
        lambda: evaluation_precision(games.evaluation_precision, chosen.precision, device, body, game)
    )
    batch_size = games.evaluation_batch
    return chosen, choose_kernels(config.network, of_games, batch_size, device, saved, rank.exchange)
