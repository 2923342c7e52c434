"""Opens the services of a rank in the run's directory: metrics, heartbeat, checkpoint writer, watcher."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from alphazero.machine.findings import Finding, load_thresholds
from alphazero.machine.memory import HostMemory
from alphazero.machine.watcher import HealthWatcher, UsageMeter
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters
from alphazero.run.rank import JOB_VARIABLE, HeartbeatWriter, Phase
from alphazero.show.viewers import open_writers
from alphazero.training.loop.alarm_rules import health_alarm
from alphazero.training.loop.alarms import AlarmDesk, JobAlarms
from alphazero.training.loop.job import Job, RankServices
from alphazero.training.loop.usage import GpuBoard, HostBoard, host_reader
from alphazero.training.loop.writer import CheckpointWriter
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.start.run_start import Found, Rank, write_best, write_newest


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


def open_services(
    found: Found, rank: Rank, before_save: Callable[[Callable[[], None]], None]
) -> RankServices:
    """The services of this rank, with a first heartbeat. Collective. before_save: as in RankServices."""
    job, start, runtime = found.job, found.start, rank.runtime
    exchange, console = rank.exchange, rank.console
    heartbeat = HeartbeatWriter(job.run.heartbeats, runtime.rank, runtime.host)
    heartbeat.beat(Phase.START, start.step)

    def open_metrics() -> AllWriters:
        if not runtime.is_main:
            return AllWriters([])
        return open_writers(job.run, job.config, start.step, runtime.world_size, console.say)

    metrics = exchange.on_each(open_metrics)
    writer = None
    if start.writes:
        writer = CheckpointWriter(
            job.run.checkpoints,
            job.config.training.keep_checkpoints,
            # First: a run killed between the two finds its checkpoint and makes both again.
            before=partial(write_newest, job),
            say=console.say,
            is_best=partial(write_best, job),
        )
    hosts = HostBoard(exchange, runtime.host, runtime.local_rank, host_reader(runtime.host, job.run.path))
    desk = AlarmDesk(console.warn, metrics.event, job.config.run.mute) if runtime.is_main else AlarmDesk()
    return RankServices(
        exchange=exchange,
        console=console,
        metrics=metrics,
        heartbeat=heartbeat,
        stop=rank.stop,
        host_memory=HostMemory(host=runtime.host),
        before_save=before_save,
        writer=writer,
        gpus=open_gpu_board(runtime, exchange) if job.config.run.health_interval else None,
        hosts=hosts,
        alarms=JobAlarms(desk, job.num_steps, hosts.hosts_R),
    )


def open_gpu_board(runtime: Runtime, exchange: Exchange) -> GpuBoard | None:
    """The GPUs of all hosts, which their watchers read; None for ranks on a CPU. Collective."""
    if runtime.device.type != "cuda":
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(runtime.device).uuid}"
    return GpuBoard(exchange, runtime.host, runtime.local_rank, uuid, UsageMeter())


@contextlib.contextmanager
def in_service(job: Job, services: RankServices) -> Iterator[None]:
    """The host is watched within the block; after it all that was written is on disk."""
    watcher = make_watcher(job, services)
    failed = True
    try:
        if watcher:
            watcher.start()
        yield
        failed = False
    finally:
        if watcher:
            watcher.stop()
        services.metrics.close(failed)
        if services.writer:
            services.writer.wait()


def make_watcher(job: Job, services: RankServices) -> HealthWatcher | None:
    """Watches this host and its GPUs beside training, on one rank per host; None for the other ranks.

    Figures and faults of rank 0's host go to the metrics; faults of every host to the console.
    """
    runtime, interval_s = job.runtime, job.config.run.health_interval
    if runtime.local_rank or not interval_s:
        return None

    def say(finding: Finding) -> None:
        alarm = health_alarm(finding)
        if runtime.is_main:
            services.alarms.desk.report(alarm)
        elif alarm.cause not in job.config.run.mute:
            services.console.alarm(finding.line())

    return HealthWatcher(
        interval_s,
        partial(services.metrics.write_beside, "health"),
        say,
        thresholds=load_thresholds(),
        directory=job.run.path,
        device=runtime.device.type,
        take_usage=services.gpus.meter.add if services.gpus else None,
    )
