"""The gradients of a step: added up, averaged over ranks, clipped, and judged whether they are finite.

Where a rank keeps whole gradients (deepspeed_config.py) they lie in one piece of memory (FlatGradients) and
are judged at once; otherwise hooks look at each of them (GradientGuard).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

# A block of this kind stands around each exchange between ranks.
Timed = Callable[[], AbstractContextManager[None]]
NOT_TIMED: Timed = nullcontext

# Of DeepSpeed's TorchBackend (0.19.8): those that ZeRO calls.
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "broadcast",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
)


def time_collectives(timed: Timed) -> None:
    """Have `timed` around every collective that DeepSpeed calls from now on, instead of an earlier one.

    They are called deep within its passes and its step.

    A collective that DeepSpeed runs on a separate stream, beside the passes, is seen only while it is
    handed over: what the passes hide costs nothing.
    """
    from deepspeed.comm import comm

    for name in COLLECTIVES:
        original = getattr(type(comm.cdb), name)
        setattr(comm.cdb, name, partial(_call, timed, partial(original, comm.cdb)))


def _call(timed: Timed, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    with timed():
        return original(*args, **kwargs)


# Shapes: G numbers of all gradients, S sums of BatchNorm's statistics, R ranks.

# Keeps a norm of zero from dividing by zero, as in torch.nn.utils.clip_grad_norm_.
NORM_EPS = 1e-6


class FlatGradients:
    """The gradients of a network on one device, with room beside them for `num_statistics` sums.

    DeepSpeed would make and fill a new buffer at every step (engine.buffered_allreduce_fallback, 0.19.8) and
    clip parameter by parameter. In one buffer that stays they are averaged, judged and clipped by a few
    operations, and what else must cross between ranks travels with them.

    `add_gradients` after each backward pass, then `close`, `average` and `clip` make a step. `verdict` then
    holds, on the device, whether all was finite, and on which rank it was not. `statistics` [S] is for the
    caller to add to; `average` makes it the sum over ranks. gradients: [G].
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        num_statistics: int,
        sent_as: torch.dtype = torch.float32,
        paddings: Sequence[int] | None = None,
    ) -> None:
        """sent_as: the type in which gradients travel between ranks (communication_data_type). paddings: how
        many numbers stay zero behind each gradient.
        """
        self.timed: Timed = NOT_TIMED  # around the all-reduce
        self._parameters = list(parameters)
        self._num_ranks, self._rank = dist.get_world_size(), dist.get_rank()
        device = self._parameters[0].device
        paddings = paddings or [0] * len(self._parameters)
        self._has_padding = any(paddings)
        sizes = [own.numel() + free for own, free in zip(self._parameters, paddings, strict=True)]
        counts = [sum(sizes), num_statistics, self._num_ranks, 1]
        flat = torch.zeros(sum(counts), device=device)
        self.gradients, self.statistics, self._faults_R, self._norm_1 = torch.split(flat, counts)
        self._summed = flat[:-1]
        self._beside_gradients = flat[counts[0] : -1]
        # Not finite where something was not: of each rank's passes, and of the norm of the mean.
        self.verdict = flat[-1 - self._num_ranks :]
        narrow = sent_as is not flat.dtype and self._num_ranks > 1
        self._sent_G = torch.empty(counts[0], dtype=sent_as, device=device) if narrow else None
        self._is_empty = True
        # In each parameter's own layout (channels last), which the optimizer then walks through in step.
        self._views = [
            part.as_strided(own.shape, own.stride())
            for part, own in zip(torch.split(self.gradients, sizes), self._parameters, strict=True)
        ]
        # One norm of the whole is what a GPU likes. On the CPU torch's norm of 6 million numbers is off by
        # 2e-4, and that of the parameters' norms by 1e-7.
        self._measured = self._views if device.type == "cpu" else [self.gradients]

    def add_gradients(self) -> None:
        """Take the parameters' `grad`s away and add them up; a missing one counts as zeros.

        autograd would add those of a further pass one by one: as many launches as there are parameters.
        """
        pairs = list(zip(self._views, self._parameters, strict=True))
        given = [(view, parameter.grad) for view, parameter in pairs if parameter.grad is not None]
        views, gradients = [view for view, _ in given], [gradient for _, gradient in given]
        if self._is_empty:
            if len(given) < len(pairs) or self._has_padding:  # which bad steps scale by NaN
                self.gradients.zero_()
            torch._foreach_copy_(views, gradients)
        else:
            torch._foreach_add_(views, gradients)
        self._is_empty = False
        for parameter in self._parameters:
            parameter.grad = None

    def forget(self) -> None:
        """Begin the step again."""
        self._is_empty = True

    def close(self, scale: float, losses: torch.Tensor) -> None:
        """All passes are made: take out the loss scale, and note what is not finite here.

        losses: 0-d, the sum of the rank's losses, which may be infinite where no gradient shows it.
        """
        if self._is_empty:
            self.gradients.zero_()
        self._is_empty = True
        if scale != 1.0:
            self.gradients.div_(scale)  # a power of two: exact
        self._faults_R.zero_()
        # The largest number is as finite as all of them; times zero it is 0, or NaN, which survives any sum.
        largest = torch.linalg.vector_norm(self.gradients, float("inf")) + losses
        torch.mul(largest, 0.0, out=self._faults_R[self._rank])

    def average(self) -> None:
        """Make gradients their mean over ranks, and `statistics` their sum; collective."""
        if self._num_ranks == 1:
            return
        with self.timed():
            if self._sent_G is None:
                dist.all_reduce(self._summed)
            else:
                self._sent_G.copy_(self.gradients)
                dist.all_reduce(self._sent_G)
                self.gradients.copy_(self._sent_G)
                # Sums of squares and verdicts stay fp32: a few kilobytes.
                dist.all_reduce(self._beside_gradients)
        self.gradients.div_(float(self._num_ranks))

    def clip(self, max_norm: float) -> None:
        """Scale gradients down to `max_norm` (0: leave them) and make them the parameters' `grad`s."""
        norms = torch._foreach_norm(self._measured)
        norm = norms[0] if len(norms) == 1 else torch.stack(norms).square().sum().sqrt()
        self._norm_1.copy_(norm)
        if max_norm > 0:
            limit = torch.full_like(norm, max_norm)
            self.gradients.mul_(torch.clamp(limit / (norm + NORM_EPS), max=1.0))
        for view, parameter in zip(self._views, self._parameters, strict=True):
            parameter.grad = view

    def is_bad(self) -> torch.Tensor:
        """1.0 where the verdict is that something is not finite, else 0.0; 0-d, on the device."""
        return self.verdict.mul(0.0).sum().ne(0.0).float()


class PartsOfZeroOne:
    """Gradients in the order in which DeepSpeed's optimizer of ZeRO 1 (0.19.8) has its flat groups.

    Its hooks, a call for each parameter in each pass, its copies and its norms are left out: it gets the part
    that this rank updates as one tensor a group.
    """

    def __init__(self, zero: Any) -> None:  # noqa: ANN401 - DeepSpeed has no types
        self._zero = zero
        self.parameters: list[nn.Parameter] = []
        self.paddings: list[int] = []
        groups = (zero.round_robin_bit16_groups, zero.round_robin_bit16_offsets, zero.bit16_groups_flat)
        for parameters, offsets, flat in zip(*groups, strict=True):
            self.parameters += parameters
            ends = [*offsets[1:], flat.numel()]
            places = zip(parameters, offsets, ends, strict=True)
            self.paddings += [end - begin - own.numel() for own, begin, end in places]
        for hook in zero._grad_acc_hooks:
            hook.remove()

    def hand_over(self, gradients: torch.Tensor) -> None:
        """Give this rank's parts of the averaged and clipped gradients [G] to the step that comes."""
        groups = torch.split(gradients, [flat.numel() for flat in self._zero.bit16_groups_flat])
        parts = [group.chunk(dist.get_world_size())[dist.get_rank()] for group in groups]
        self._zero.averaged_gradients = {number: [part] for number, part in enumerate(parts)}


class GradientGuard:
    """Hooks on the parameters of a network.

    DeepSpeed's own overflow checks differ by stage and precision; a hook on the leaf sees each gradient
    before DeepSpeed does.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.scale = 1.0  # what the loss was multiplied by; a power of two, so taking it out is exact
        self._sums: list[torch.Tensor] = []
        for parameter in parameters:
            parameter.register_hook(self._look)  # type: ignore[no-untyped-call]

    def _look(self, gradient: torch.Tensor) -> torch.Tensor:
        # A sum is infinite or NaN where an element is: one pass, no copy, no wait for the device.
        self._sums.append(gradient.sum(dtype=torch.float32))
        return gradient if self.scale == 1.0 else gradient / self.scale

    def take(self, losses: torch.Tensor) -> bool:
        """True if `losses` and all gradients since the last call were finite. Waits for the device.

        losses: the sum of the rank's losses; where only its value is infinite, gradients may not show it.
        """
        sums, self._sums = [*self._sums, losses], []
        return bool(torch.isfinite(torch.stack(sums)).all().item())


@dataclass(frozen=True)
class StepVerdict:
    """is_bad: the step was left out. ranks: whose passes were at fault; none where only their sum is.

    gradient_norm: of the mean over the batch, before it is clipped. Where DeepSpeed measures it a 0-d tensor,
    which the host reads with the figures of other steps; None where it is not known.
    """

    is_bad: bool
    ranks: tuple[int, ...] = ()
    gradient_norm: float | torch.Tensor | None = field(default=None, compare=False)


GOOD = StepVerdict(False)


class VerdictReader:
    """Copies FlatGradients' verdict to the host; sending it blocks neither side."""

    def __init__(self, num_numbers: int, device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        self._numbers = torch.zeros(num_numbers, pin_memory=on_cuda)
        self._arrived = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]

    def send(self, numbers: torch.Tensor) -> None:
        """Begin the copy; `read` ends it."""
        self._numbers.copy_(numbers, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()

    def read(self) -> StepVerdict:
        """The verdict sent last; waits for it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        *faults, norm = self._numbers.tolist()
        ranks = tuple(rank for rank, fault in enumerate(faults) if not math.isfinite(fault))
        return StepVerdict(bool(ranks) or not math.isfinite(norm), ranks, norm)


def is_told_late(device: torch.device) -> bool:
    """True where the host runs ahead of the device, and waiting for a verdict would leave it idle."""
    return device.type == "cuda"
