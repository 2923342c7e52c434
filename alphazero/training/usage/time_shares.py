"""What a job's time goes into: shares of the training time, of all ranks and of the slowest one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

import torch

from alphazero.training.usage.part_clock import Part


class Cause(Enum):
    """What a device waits for, in words for people."""

    DATA = "data"
    COMMUNICATION = "communication"
    HOST = "host launches"
    CHECKPOINT = "checkpoints"
    SELF_PLAY = "self-play"


@dataclass(frozen=True)
class TimeShares:
    """Parts of the training time that add up to 1 (docs/metrics.md defines each)."""

    compute: float
    data_wait: float
    communication: float
    checkpoint: float
    host_overhead: float

    def figures(self) -> dict[str, float]:
        """By name."""
        return asdict(self)

    def causes(self) -> dict[Cause, float]:
        """What keeps a device from computing."""
        return {
            Cause.DATA: self.data_wait,
            Cause.COMMUNICATION: self.communication,
            Cause.HOST: self.host_overhead,
            Cause.CHECKPOINT: self.checkpoint,
        }

    def describe(self) -> str:
        """What is not computing and at least one percent, for a log line; "" where there is nothing."""
        named = {"data": self.data_wait, "communication": self.communication}
        named |= {"checkpoint": self.checkpoint, "host": self.host_overhead}
        return ", ".join(f"{name} {share:.0%}" for name, share in named.items() if share >= 0.01)


@dataclass(frozen=True)
class JobShares:
    """The mean over ranks; and the shares of the rank that communicates least, for which the others wait."""

    mean: TimeShares
    slowest_rank: int
    slowest: TimeShares
    # Of the mean: what NCCL's kernels do, which a driver takes for work.
    gradients: float


def job_shares(seconds_RP: torch.Tensor, idle: float | None = None) -> JobShares | None:
    """From each rank's seconds by Part; None where no rank has trained yet.

    idle: the share of the time in which the GPUs did not compute, where it is known. What of it no other part
    explains is time in which kernels were not launched fast enough: it moves from compute to host_overhead.
    """
    seconds_RP = seconds_RP.clone()
    seconds_RP[:, Part.APART] = 0.0
    if not bool((seconds_RP.sum(1) > 0).all()):
        return None
    shares_RP = seconds_RP / seconds_RP.sum(1, keepdim=True)
    mean_P = shares_RP.mean(0)
    gaps = 0.0
    if idle is not None:
        explained = 1.0 - float(mean_P[Part.COMPUTE])
        gaps = max(0.0, idle - explained) / max(float(mean_P[Part.COMPUTE]), 1e-9)
    communication_R = shares_RP[:, Part.MESSAGES] + shares_RP[:, Part.GRADIENTS]
    slowest = int(communication_R.argmin())
    return JobShares(
        mean=_shares(mean_P, gaps),
        slowest_rank=slowest,
        slowest=_shares(shares_RP[slowest], gaps),
        gradients=float(mean_P[Part.GRADIENTS]),
    )


def _shares(parts_P: torch.Tensor, gaps: float) -> TimeShares:
    """gaps: the part of compute in which the device waited for launches."""
    share = parts_P.tolist()
    launching = share[Part.COMPUTE] * min(1.0, gaps)
    return TimeShares(
        compute=share[Part.COMPUTE] - launching,
        data_wait=share[Part.DATA],
        communication=share[Part.MESSAGES] + share[Part.GRADIENTS],
        checkpoint=share[Part.CHECKPOINT],
        host_overhead=share[Part.HOST] + launching,
    )
