"""What the ranks add up at the end of a step, in one piece of memory that stays: for ZeRO stage 0.

There DeepSpeed leaves gradients whole. Its own way is to make and fill a buffer anew at every step
(engine.buffered_allreduce_fallback, 0.19.8) and to clip parameter by parameter. In one buffer the gradients
are averaged, judged and clipped by a few operations; what else must cross between ranks travels with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from alphazero.training.engine.collectives import NOT_TIMED, Timed

# Shapes: G numbers of all gradients, S sums of BatchNorm's statistics, R ranks.

# Keeps a norm of zero from dividing by zero, as in torch.nn.utils.clip_grad_norm_.
NORM_EPS = 1e-6


@dataclass(frozen=True)
class Reduction:
    """How gradients become their mean over ranks, by DeepSpeed's keys for it.

    dtype: what travels (communication_data_type). prescale: divide by the ranks before the sum and not after
    it (prescale_gradients). predivide: else divide by so much before it and by the rest after it
    (gradient_predivide_factor).
    """

    dtype: torch.dtype = torch.float32
    prescale: bool = False
    predivide: float = 1.0

    def before(self, num_ranks: int) -> float:
        """What gradients are divided by before the sum."""
        return float(num_ranks) if self.prescale else self.predivide


PLAIN_MEAN = Reduction()


class FlatGradients:
    """The gradients of a network on one device, with room beside them for `num_statistics` sums.

    `add_gradients` after each backward pass, then `close`, `average` and `clip` make a step. `verdict` then
    says on the device whether all was finite, and on which rank it was not. `statistics` [S] is for the
    caller to add to; `average` makes it the sum over ranks.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        num_statistics: int,
        reduction: Reduction = PLAIN_MEAN,
    ) -> None:
        self.timed: Timed = NOT_TIMED  # around the all-reduce
        self._parameters = list(parameters)
        self._reduction = reduction
        self._num_ranks, self._rank = dist.get_world_size(), dist.get_rank()
        device = self._parameters[0].device
        sizes = [parameter.numel() for parameter in self._parameters]
        counts = [sum(sizes), num_statistics, self._num_ranks, 1]
        flat = torch.zeros(sum(counts), device=device)
        self._gradients_G, self.statistics, self._faults_R, self._norm_1 = torch.split(flat, counts)
        self._summed = flat[:-1]
        self._beside_gradients = flat[counts[0] : -1]
        # Not finite where something was not: of each rank's passes, and of the norm of the mean.
        self.verdict = flat[-1 - self._num_ranks :]
        narrow = reduction.dtype is not flat.dtype and self._num_ranks > 1
        self._sent_G = torch.empty(counts[0], dtype=reduction.dtype, device=device) if narrow else None
        self._is_empty = True
        # In each parameter's own layout (channels last), which the optimizer then walks through in step.
        self._views = [
            part.as_strided(own.shape, own.stride())
            for part, own in zip(torch.split(self._gradients_G, sizes), self._parameters, strict=True)
        ]
        # One norm of the whole is what a GPU likes. On the CPU torch's norm of 6 million numbers is off by
        # 2e-4, and that of the parameters' norms by 1e-7 (docs/decisions.md).
        self._measured = self._views if device.type == "cpu" else [self._gradients_G]

    def add_gradients(self) -> None:
        """Take the parameters' `grad`s away and add them up; a missing one counts as zeros.

        autograd would add those of a further pass one by one: as many launches as there are parameters.
        """
        pairs = list(zip(self._views, self._parameters, strict=True))
        given = [(view, parameter.grad) for view, parameter in pairs if parameter.grad is not None]
        views, gradients = [view for view, _ in given], [gradient for _, gradient in given]
        if self._is_empty:
            if len(given) < len(pairs):
                self._gradients_G.zero_()
            torch._foreach_copy_(views, gradients)
        else:
            torch._foreach_add_(views, gradients)
        self._is_empty = False
        for parameter in self._parameters:
            parameter.grad = None

    def forget(self) -> None:
        """Begin the step anew."""
        self._is_empty = True

    def close(self, scale: float, losses: torch.Tensor) -> None:
        """All passes are made: take out the loss scale, and note what is not finite here.

        losses: 0-d, the sum of the rank's losses, which may be infinite where no gradient shows it.
        """
        if self._is_empty:
            self._gradients_G.zero_()
        self._is_empty = True
        if scale != 1.0:
            self._gradients_G.div_(scale)  # a power of two: exact
        self._faults_R.zero_()
        # The largest number is as finite as all of them; times zero it is 0, or NaN, which survives any sum.
        largest = torch.linalg.vector_norm(self._gradients_G, float("inf")) + losses
        torch.mul(largest, 0.0, out=self._faults_R[self._rank])

    def average(self) -> None:
        """Make gradients their mean over ranks, and `statistics` their sum; collective."""
        if self._num_ranks == 1:
            return
        before = self._reduction.before(self._num_ranks)
        if before != 1.0:
            self._gradients_G.div_(before)
        with self.timed():
            self._add_up()
        if before != self._num_ranks:
            self._gradients_G.div_(self._num_ranks / before)

    def _add_up(self) -> None:
        if self._sent_G is None:
            dist.all_reduce(self._summed)
            return
        self._sent_G.copy_(self._gradients_G)
        dist.all_reduce(self._sent_G)
        self._gradients_G.copy_(self._sent_G)
        # Sums of squares and verdicts stay fp32: a few kilobytes.
        dist.all_reduce(self._beside_gradients)

    def clip(self, max_norm: float) -> None:
        """Scale gradients down to `max_norm` (0: leave them) and make them the parameters' `grad`s."""
        norms = torch._foreach_norm(self._measured)
        norm = norms[0] if len(norms) == 1 else torch.stack(norms).square().sum().sqrt()
        self._norm_1.copy_(norm)
        if max_norm > 0:
            limit = torch.full_like(norm, max_norm)
            self._gradients_G.mul_(torch.clamp(limit / (norm + NORM_EPS), max=1.0))
        for view, parameter in zip(self._views, self._parameters, strict=True):
            parameter.grad = view

    def is_bad(self) -> torch.Tensor:
        """1.0 where the verdict is that something is not finite, else 0.0; 0-d, on the device."""
        return self.verdict.mul(0.0).sum().ne(0.0).float()
