"""Opens the services of a rank in the run's directory: metrics, heartbeat, checkpoint writer, watcher."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from alphazero.machine.judge import Finding
from alphazero.machine.watcher import HealthWatcher
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters
from alphazero.run.rank import JOB_VARIABLE, HeartbeatWriter, Phase
from alphazero.show.alarms import Alarms
from alphazero.show.console import Console
from alphazero.show.observer import GpuMeter, Observer
from alphazero.show.viewers import open_writers
from alphazero.training.loop.job import Job, RankServices
from alphazero.training.loop.part_clock import PartClock
from alphazero.training.loop.profile import StepProfile
from alphazero.training.loop.writer import CheckpointWriter
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.start.run_start import RankContext, Setup, publish


def beat_of_start(run: RunDirectory, runtime: Runtime) -> Callable[[], None]:
    """For long work before the services are open: each call shows an agent that this rank moves.

    Without an agent it does nothing: a start that fails leaves no directory behind.
    """
    numbers = itertools.count(1)
    writer = cache(lambda: HeartbeatWriter(run.heartbeats, runtime.rank, runtime.host))

    def beat() -> None:
        if JOB_VARIABLE in os.environ:
            writer().beat(Phase.START, -1, next(numbers))

    return beat


@contextlib.contextmanager
def open_services(
    setup: Setup, rank: RankContext, before_save: Callable[[Callable[[], None]], None]
) -> Iterator[RankServices]:
    """The services of this rank, with a first heartbeat; the host is watched within the block. Collective.

    After it all that was written is on disk. before_save: as in RankServices.
    """
    job, start, runtime = setup.job, setup.start, rank.runtime
    exchange, console = rank.exchange, rank.console
    heartbeat = HeartbeatWriter(job.run.heartbeats, runtime.rank, runtime.host)
    heartbeat.beat(Phase.START, start.step)

    def open_metrics() -> AllWriters:
        if not runtime.is_main:
            return AllWriters([])
        return open_writers(job.run, job.config, start.step, console.say)

    metrics = exchange.on_each(open_metrics)
    writer = None
    if start.writes:
        keep = job.config.training.keep_checkpoints
        writer = CheckpointWriter(job.run.checkpoints, keep, partial(publish, job), console.say)
    clock = PartClock.on(runtime.device)
    watched = bool(job.config.run.health_interval)
    meter = GpuMeter(lambda: clock.work) if watched and runtime.device.type == "cuda" else None
    observer = Observer(
        exchange.gather,
        runtime.rank,
        runtime.host,
        runtime.local_rank,
        job.run.path,
        Alarms(console.warn, metrics.event, job.config.run.mute),
        gpu=f"GPU-{torch.cuda.get_device_properties(runtime.device).uuid}" if meter else "",
        meter=meter,
        gradients_look_busy=runtime.backend == "nccl",
    )
    services = RankServices(
        exchange=exchange,
        console=console,
        metrics=metrics,
        heartbeat=heartbeat,
        stop=rank.stop,
        clock=clock,
        start_clock=rank.start_clock,
        writer=writer,
        before_save=before_save,
        observer=observer,
        profile=profile_of(job, clock, console.say),
    )
    failed = True
    try:
        with contextlib.ExitStack() as stack:
            if watched and not runtime.local_rank:
                watcher = make_watcher(job, metrics, console, observer, meter)
                watcher.start()
                stack.callback(watcher.stop)
            yield services
        failed = False
    finally:
        if services.profile:
            services.profile.end()
        metrics.close(failed)
        if writer:
            writer.wait()


def profile_of(job: Job, clock: PartClock, say: Callable[[str], None]) -> StepProfile | None:
    """What --profile asks of this rank."""
    rank = job.runtime.rank
    steps, _, ranks = job.config.run.profile.partition("@")
    if not steps or (ranks != "all" and str(rank) not in (ranks or "0").split(",")):
        return None
    first, last = sorted(map(int, steps.split("-")))
    path = job.run.path / "profile" / f"rank{rank}.{first}-{last}"
    return StepProfile((first, last), path, clock, job.runtime.device, say)


def make_watcher(
    job: Job, metrics: AllWriters, console: Console, observer: Observer, meter: GpuMeter | None
) -> HealthWatcher:
    """Watches this host and its GPUs beside training.

    Figures and faults of rank 0's host go to the metrics; faults of every host to the console.
    """
    runtime, run = job.runtime, job.config.run

    def say(finding: Finding) -> None:
        if runtime.is_main:
            observer.report(finding)
        elif "health" not in run.mute:
            console.alarm(finding.line())

    return HealthWatcher(
        run.health_interval,
        partial(metrics.write, "health", None),
        say,
        directory=job.run.path,
        device=runtime.device.type,
        take_usage=meter.add if meter else None,
    )
