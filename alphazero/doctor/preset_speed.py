"""What one preset reaches on this machine: its real training step and its real self-play, for a few seconds.

Everything here runs on every rank of a small job, as training does.
"""

from __future__ import annotations

import dataclasses
import itertools
import time

import torch

from alphazero.base.text import counted
from alphazero.doctor.energy import read_counters, watts_between
from alphazero.doctor.figures import PresetFigures
from alphazero.doctor.trainer_bench import Bench, StepTimes, train
from alphazero.games.registry import get_spec
from alphazero.machine.memory import HostMemory
from alphazero.network.inference.purpose import evaluator_for_self_play
from alphazero.network.model.precision import evaluation_precision, fast_precisions
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, lanes_of, new_lane, play
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config, load_config
from alphazero.training.engine.planner import choose_plan
from alphazero.training.engine.probe import (
    CPU_SHARE,
    CPU_SIZES,
    LEAST_POSITIONS,
    bytes_per_position,
    fastest_precision,
    fits,
    largest_that_fits,
    positions_of_a_pass,
    reserve_bytes,
    seconds_per_pass,
)
from alphazero.training.ranks.batch import BatchPlan, fix_batch, plan_batches
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime, apply_device_settings

# Whole steps are measured where this many fit into the time; else passes of fewer positions.
LEAST_STEPS = 4
# A forward and a backward pass take about as long as three forward passes.
PASSES_IN_FORWARDS = 3
# Batches of self-play that must fit into the time, so that a rate comes of it.
LEAST_BATCHES = 4
MICRO_BATCHES = tuple(2**power for power in range(17))


def measure_preset(
    preset: str, runtime: Runtime, exchange: Exchange, seconds: float, *, plays: bool
) -> PresetFigures:
    """Measure for about twice `seconds`, set-up apart. Collective.

    plays: self-play too. The time is what a person has to wait: steps and games that need longer are measured
    by smaller ones.
    """
    settings = DeepSpeedSettings()
    config = load_config(preset, {})
    config, _ = fix_batch(config, runtime.world_size, None, {})
    apply_device_settings(config.training, runtime.device)
    spec = get_spec(config.network.game)
    network = AlphaZeroNet(config.network, spec, torch.Generator().manual_seed(0))
    config, per_position_s = _with_precision(config, network, runtime, exchange)
    before = read_counters()
    largest = _largest_micro_batch(config, network, settings, runtime, exchange)
    plan, _ = choose_plan(config, runtime, network, settings, None, exchange)
    trains, how_trains = _training_speed(config, plan, runtime, exchange, seconds, per_position_s)
    watts = watts_between(before, read_counters())
    evaluations = positions = 0.0
    how = {"trains": how_trains, "largest_micro_batch": _how_memory(runtime)}
    batch_s = config.self_play.evaluation_batch * per_position_s / PASSES_IN_FORWARDS
    if not plays:
        how["plays"] = "not measured"
    elif batch_s * LEAST_BATCHES > seconds:
        how["plays"] = (
            f"not measured: a batch of {config.self_play.evaluation_batch} takes {batch_s:.0f} s here"
        )
    else:
        positions, evaluations, how["plays"] = _play_speed(config, network, runtime, exchange, seconds)
    return PresetFigures(
        preset=preset,
        game=spec.name,
        network=f"{config.network.blocks}x{config.network.filters}",
        mode=config.self_play.mode,
        ranks=runtime.world_size,
        device=runtime.device.type,
        precision=config.training.precision,
        batch_size=config.training.batch_size,
        trains=trains,
        largest_micro_batch=largest,
        plays=positions,
        evaluations=evaluations,
        watts=watts,
        how=how,
    )


def _with_precision(
    config: Config, network: AlphaZeroNet, runtime: Runtime, exchange: Exchange
) -> tuple[Config, float]:
    """`auto` as a run chooses it; and seconds for each position of a pass on the slowest rank."""
    asked, is_gpu = config.training.precision, runtime.device.type == "cuda"
    names = fast_precisions(runtime.device) if asked == "auto" else (asked,)
    if is_gpu:
        chosen, per_position_s = names[0], 0.0  # a GPU makes whole steps in the time
    else:
        exchange.barrier()
        timed = exchange.gather(seconds_per_pass(network, config, names, runtime.world_size))
        chosen = fastest_precision(timed) if asked == "auto" and len(names) > 1 else names[0]
        share = config.training.batch_size // runtime.world_size
        per_position_s = max(rank[chosen] for rank in timed) / positions_of_a_pass(network, share)
    training = dataclasses.replace(config.training, precision=chosen)
    return dataclasses.replace(config, training=training), per_position_s


def _training_speed(
    config: Config,
    plan: BatchPlan,
    runtime: Runtime,
    exchange: Exchange,
    seconds: float,
    per_position_s: float,
) -> tuple[float, str]:
    """Positions per second over all ranks, and how that was got."""
    per_rank = max(plan.passes) * plan.micro_batch_size
    if per_rank * per_position_s * LEAST_STEPS <= seconds:
        step_s = _seconds_per_step(config, plan, runtime, exchange, seconds)
        return plan.batch_size / step_s, f"whole steps of {plan.batch_size:,} positions"
    # Two steps of one and of two passes tell a pass from what comes once a step.
    affordable = int(seconds / (per_position_s * 2 * 3 * LEAST_STEPS))
    positions = min(plan.micro_batch_size, max(LEAST_POSITIONS, affordable))
    steps_s = [
        _seconds_per_step(
            config,
            plan_batches(positions * passes * runtime.world_size, positions, plan.weights, "cpu"),
            runtime,
            exchange,
            seconds / 2,
        )
        for passes in (1, 2)
    ]
    pass_s = max(steps_s[1] - steps_s[0], 0.25 * steps_s[0])
    step_s = per_rank / positions * pass_s + max(0.0, steps_s[0] - pass_s)
    how = (
        f"steps of one and two passes of {counted(positions, 'position')}, reckoned up to {plan.batch_size:,}"
    )
    return plan.batch_size / step_s, how


def _seconds_per_step(
    config: Config, plan: BatchPlan, runtime: Runtime, exchange: Exchange, seconds: float
) -> float:
    """Of the real trainer on positions that are there already; the same on all ranks."""
    training = dataclasses.replace(config.training, batch_size=plan.batch_size)
    bench = Bench.make(dataclasses.replace(config, training=training), runtime, plan, exchange)
    engine = bench.make_engine()
    # On a GPU the first steps record graphs and choose kernels.
    warm_up = 1 if runtime.device.type == "cpu" else 5
    times = StepTimes(warm_up_steps=warm_up, least_steps=2, seconds=seconds * 0.7)
    train(bench, engine, times if runtime.is_main else StepTimes.endless())
    engine.close()
    return float(exchange.from_main(times.mean_s() if runtime.is_main else 0.0))


def _largest_micro_batch(
    config: Config,
    network: AlphaZeroNet,
    settings: DeepSpeedSettings,
    runtime: Runtime,
    exchange: Exchange,
) -> int:
    """Positions that fit into the memory of every rank; 0 where not one does."""
    training, spec = config.training, network.spec
    reserve = reserve_bytes(network, training, config.optimizer, runtime.world_size, settings)
    if runtime.device.type == "cuda":
        found = largest_that_fits(
            MICRO_BATCHES,
            lambda size: fits(network, spec, training, config.loss, runtime.device, size, reserve),
        )
        return min(exchange.numbers(found or 0))
    budget = CPU_SHARE * HostMemory().check().available_bytes / runtime.local_world_size - reserve
    least = positions_of_a_pass(network, CPU_SIZES[1])
    sizes = CPU_SIZES if least == CPU_SIZES[1] else (least, 3 * least)
    per_position = bytes_per_position(network, spec, training, config.loss, sizes)
    return max(0, min(exchange.numbers(int(budget / per_position))))


def _how_memory(runtime: Runtime) -> str:
    if runtime.device.type == "cuda":
        return "tried on the GPU, powers of two"
    return f"memory of two passes, reckoned up to {CPU_SHARE:.0%} of what is available per rank"


def _play_speed(
    config: Config, network: AlphaZeroNet, runtime: Runtime, exchange: Exchange, seconds: float
) -> tuple[float, float, str]:
    """Positions to train on and evaluations per second over all ranks, and how the first was got."""
    own = config.self_play
    precision = evaluation_precision(own.evaluation_precision, config.training.precision, runtime.device)
    evaluator = evaluator_for_self_play(network.eval(), runtime.device, precision, own.evaluation_batch)
    lanes = [new_lane(number) for number in lanes_of(runtime.rank, runtime.world_size, own.lanes)]
    search = self_play_settings(config.search, own, config.training.seed)

    def play_for(least_s: float, least_batches: int) -> tuple[Played, float]:
        batches, began = itertools.count(1), time.perf_counter()

        def goes_on(moves: int, games: int) -> bool:
            return next(batches) < least_batches or time.perf_counter() - began < least_s

        threads = torch.get_num_threads()
        played = play(
            network.spec.name, search, lanes, 1 << 30, evaluator, num_threads=threads, on_progress=goes_on
        )
        return played, time.perf_counter() - began

    play_for(0.0, 2)  # kernels are chosen and memory is taken in the first batches
    exchange.barrier()
    played, elapsed = play_for(seconds, LEAST_BATCHES)
    evaluations = float(sum(exchange.gather(played.evaluations / elapsed)))
    share = own.full_search_share
    per_move = share * config.search.simulations + (1 - share) * own.fast_simulations
    how = f"evaluations of an untrained network, {per_move:,.0f} for each move as it has simulations"
    return share * evaluations / per_move, evaluations, how
