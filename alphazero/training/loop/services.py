"""What a rank works with beside its data and its network, from the start of training to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from alphazero.host.memory import HostMemory
from alphazero.run.console import Console
from alphazero.run.heartbeat import HeartbeatWriter
from alphazero.run.metrics import AllWriters
from alphazero.training.alarms.job_alarms import JobAlarms
from alphazero.training.checkpoint.writer import CheckpointWriter
from alphazero.training.exchange import Exchange
from alphazero.training.loop.stop import StopRequest
from alphazero.training.usage.gpu_board import GpuBoard
from alphazero.training.usage.host_board import HostBoard


@dataclass(frozen=True)
class RankServices:
    """The services of a rank: how it reaches the other ranks, the user, the supervisor and the disk.

    metrics: without writers but on rank 0. writer: None on ranks that write no checkpoints. before_save:
    collective; returns when a checkpoint may be published, and calls what it is given while it waits. gpus:
    None where the job has none or does not watch them. hosts: None where nobody watches them. alarms: told on
    rank 0 alone.
    """

    exchange: Exchange
    console: Console
    metrics: AllWriters
    heartbeat: HeartbeatWriter
    stop: StopRequest
    host_memory: HostMemory
    writer: CheckpointWriter | None
    before_save: Callable[[Callable[[], None]], None] = lambda _: None
    gpus: GpuBoard | None = None
    hosts: HostBoard | None = None
    alarms: JobAlarms = field(default_factory=JobAlarms)

    @property
    def writes(self) -> bool:
        """True on the one rank of those sharing a run directory that writes there: checkpoints and games."""
        return self.writer is not None
