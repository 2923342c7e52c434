"""What a run tells people at its start and at its end."""

from __future__ import annotations

from collections.abc import Sequence

from alphazero.config import TrainingConfig
from alphazero.data.sampler import Window
from alphazero.network.resnet import AlphaZeroNet
from alphazero.network.weights import weights_file_name
from alphazero.run_directory import read_metrics
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.job import Job

RULE = "=" * 78


def banner(
    job: Job,
    plan: BatchPlan,
    network: AlphaZeroNet,
    window: Window,
    held_out: Window,
    notices: Sequence[str],
    devices: Sequence[str],
    threads: str,
) -> str:
    """What people want to see before hours of training: who, where, what, on which data."""
    training, shape = job.config.training, job.config.network
    kind = f"DeepSpeed ZeRO-{training.zero_stage}, {job.runtime.backend}"
    squeeze = f", squeeze-excitation 1/{shape.se_ratio}" if shape.se_ratio else ""
    lines = [
        RULE,
        *notices,
        f"run directory     {job.run.path}",
        f"distributed type  {kind}",
        f"processes         {len(devices)}",
        *(f"  rank {rank}: {device}" for rank, device in enumerate(devices)),
        f"threads a rank    {threads}",
        f"precision         {training.precision}{_extras(training)}",
        f"network           {shape.game} {shape.blocks}x{shape.filters}{squeeze}, "
        f"{network.parameter_count() / 1e6:.1f} M parameters",
        f"data              {window.num_games:,} games, {window.num_samples:,} positions "
        f"(window {window.id[:12]}); {held_out.num_games:,} games held out",
        f"batch             {plan}",
        f"length            {job.num_steps:,} steps, {job.num_steps * job.batch_size:,} positions "
        f"({job.num_steps * job.batch_size / window.num_samples:.2f} epochs)",
        RULE,
    ]
    return "\n".join(lines)


def _extras(training: TrainingConfig) -> str:
    """What goes with the precision."""
    parts = [
        (training.precision == "fp16", f"loss scale from {training.loss_scale:g}"),
        (training.compile, "compiled"),
        (training.deterministic, "deterministic"),
        (bool(training.ema_decay), f"moving average {training.ema_decay:g} of the weights"),
    ]
    return "".join(f", {text}" for holds, text in parts if holds)


def summary(job: Job, seconds: float) -> str:
    """Where the result is, how good it is, what to do next."""
    weights = job.run.path / weights_file_name(job.config.network)
    validations = read_metrics(job.run, "validation")
    lines = [RULE, f"finished          {job.num_steps:,} steps; this start took {seconds / 60:.1f} minutes"]
    for when, figures in (("first", validations[:1]), ("last", validations[-1:])):
        lines += [
            f"validation {when:<6} step {int(line['step']):,}: top-1 {line['policy_top1']:.2%}, "
            f"top-5 {line['policy_top5']:.2%}, policy loss {line['policy_loss']:.4f}, "
            f"value mse {line['value_mse']:.4f}"
            for line in figures
        ]
    lines += [
        f"weights           {weights}",
        "next:",
        f"  .venv/bin/alphazero analyse --weights {weights}",
        f"  .venv/bin/alphazero eval --weights {weights} --data YOUR.pgn",
        f"  .venv/bin/tensorboard --logdir {job.run.path.parent}",
        RULE,
    ]
    return "\n".join(lines)
