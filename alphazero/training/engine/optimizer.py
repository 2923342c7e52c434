"""The optimizers of the settings, any step of which can be left out, and the loss scale of fp16.

The scale grows while gradients stay finite and shrinks where they overflow (Micikevicius et al. 2018,
arXiv:1710.03740, section 3.2, with the numbers of torch.amp.GradScaler): it doubles after a window of good
steps in a row, and halves at an overflow, or at as many of them as DeepSpeed's hysteresis. It is pure
arithmetic, the same on every rank.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from alphazero.base.errors import CheckpointError
from alphazero.base.section import MOST
from alphazero.base.text import quoted
from alphazero.settings.sections import OptimizerConfig, TrainingConfig
from alphazero.training.engine.gradients import NOT_TIMED, Timed

# What optimizers keep for a parameter; `step` is a counter apart.
MOMENTS = ("exp_avg", "exp_avg_sq")
MOMENTUM = ("momentum_buffer",)
# Of names of parameters: where a body's matrices are, between the embedding and the heads.
BODIES = ("blocks.", "body.encoders.", "body.scores.")

# As a count of steps it leaves nothing of a bias: a decay rate below 1 to the power of it is 0.
MANY_STEPS = 1e9


class NeverCompiled(torch.optim.Optimizer):
    """torch's methods, less the wrappers that import its compiler at their first call: a second or more."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


adam_step, sgd_step = (
    torch.no_grad()(inspect.unwrap(kind.step)) for kind in (torch.optim.Adam, torch.optim.SGD)
)


class SkippableAdam(NeverCompiled, torch.optim.Adam):
    """Adam and AdamW (decoupled_weight_decay) that leave weights and moments alone while `skips` is set.

    DeepSpeed's engine calls `step` itself, in parts above ZeRO 0, and must do all else it does after a
    step: clear gradients and count. So a step over bad gradients is made and changes nothing. `found_inf`
    is the same for fused kernels, on the device: 1.0 skips a step, 0.0 makes it.
    """

    skips = False
    found_inf: torch.Tensor | None = None
    corrects_bias = True

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        if self.skips:
            return None
        with _counts_of(self):
            return adam_step(self, closure)


# Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the step of a matrix is its momentum, made
# nearly orthogonal by a Newton-Schulz iteration, times sqrt(max(1, rows / columns)). A convolution is the
# matrix [channels out, the rest]. Shapes: N matrices of R rows and C columns.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
EPS = 1e-7
BUCKET = 1 << 24  # numbers of the matrices that are made orthogonal at a time: 64 MiB in fp32


@dataclass(frozen=True)
class Piece:
    """The part of a matrix in a rank's flat tensor.

    shape: of the whole matrix. Its numbers [start, start + size) are in the flat tensor from `at` on; size: 0
    where the rank has none.
    """

    shape: tuple[int, int]
    start: int
    size: int
    at: int


def make_orthogonal_together(
    update: torch.Tensor, pieces: Sequence[Piece], device: torch.device, timed: Timed
) -> None:
    """Replace this rank's pieces in a flat `update` by those of the orthogonal matrices; collective.

    pieces: all matrices of the group, in an order that the ranks share. device: where they exchange.
    """
    for bucket in _buckets(pieces):
        sizes = [rows * columns for rows, columns in (piece.shape for piece in bucket)]
        numbers = torch.zeros(sum(sizes), device=device)
        matrices = torch.split(numbers, sizes)
        for piece, matrix in zip(bucket, matrices, strict=True):
            matrix[piece.start : piece.start + piece.size] = update[piece.at : piece.at + piece.size]
        with timed():
            dist.all_reduce(numbers)  # the other ranks have zeros there: exact
        own = [(piece, matrix) for piece, matrix in zip(bucket, matrices, strict=True) if piece.size]
        make_orthogonal([matrix.view(piece.shape) for piece, matrix in own])
        for piece, matrix in own:
            update[piece.at : piece.at + piece.size] = matrix[piece.start : piece.start + piece.size]


def make_orthogonal(updates: Sequence[torch.Tensor]) -> None:
    """Replace each by its nearest semi-orthogonal matrix, nearly, times sqrt(max(1, rows / columns))."""
    alike: dict[tuple[int, ...], list[torch.Tensor]] = defaultdict(list)
    for update in updates:
        alike[tuple(update.shape)].append(update)
    for same in alike.values():
        at_a_time = max(1, BUCKET // same[0].numel())
        for first in range(0, len(same), at_a_time):
            part = same[first : first + at_a_time]
            stacked_NRC = torch.stack([update.reshape(len(update), -1) for update in part])
            for update, matrix_RC in zip(part, orthogonal(stacked_NRC), strict=True):
                update.copy_(matrix_RC.reshape(update.shape))


def orthogonal(matrices_NRC: torch.Tensor) -> torch.Tensor:
    """[N, R, C] -> for each U S V^T the matrix U S' V^T, S' about 0.7 to 1.2, scaled. GPUs use bf16."""
    rows, columns = matrices_NRC.shape[1:]
    first, second, third = COEFFICIENTS
    wide = matrices_NRC.mT if rows > columns else matrices_NRC
    current = wide / (torch.linalg.matrix_norm(wide, keepdim=True) + EPS)
    if current.is_cuda:
        current = current.bfloat16()
    for _ in range(NUM_ITERATIONS):
        gram = current @ current.mT
        current = first * current + (second * gram + third * (gram @ gram)) @ current
    orthogonal_NRC = current.mT if rows > columns else current
    scaled: torch.Tensor = orthogonal_NRC.to(matrices_NRC.dtype) * max(1.0, rows / columns) ** 0.5
    return scaled


def _buckets(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """All pieces, in order, matrices of at most BUCKET numbers together; a larger one comes alone."""
    bucket: list[Piece] = []
    numbers = 0
    for piece in pieces:
        size = piece.shape[0] * piece.shape[1]
        if bucket and numbers + size > BUCKET:
            yield bucket
            bucket, numbers = [], 0
        bucket.append(piece)
        numbers += size
    if bucket:
        yield bucket


def pieces_of(zero: Any, stage: int) -> dict[torch.Tensor, list[Piece]]:  # noqa: ANN401 - DeepSpeed has no types
    """Where DeepSpeed's ZeRO optimizer (0.19.8) keeps the parameters of each group on this rank."""
    if stage == 0:
        return {}
    if stage < 3:
        return {
            flat: [_piece_of_partition(parameter) for parameter in parameters]
            for flat, parameters in zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True)
        }
    return {
        flat: list(_pieces_of_sub_group(parameters))
        for flat, parameters in zip(zero.fp32_partitioned_groups_flat, zero.fp16_groups, strict=True)
    }


def _piece_of_partition(parameter: Any) -> Piece:  # noqa: ANN401
    """At stages 1 and 2 a rank has a range of all numbers of a group, which may begin or end in a matrix."""
    shape = (len(parameter), parameter[0].numel())
    mapping = parameter._hp_mapping
    if mapping is None:
        return Piece(shape, 0, 0, 0)
    there, here = mapping.lp_fragment_address, mapping.hp_fragment_address
    return Piece(shape, there.start, there.numel, here.start)


def _pieces_of_sub_group(parameters: Sequence[Any]) -> Iterator[Piece]:
    """At stage 3 a rank has an equal part of every parameter, the last ones padded."""
    at = 0
    for parameter in parameters:
        part, total = parameter.partition_numel(), parameter.ds_numel
        start = min(dist.get_rank() * part, total)
        rows = parameter.ds_shape[0]
        yield Piece((rows, total // rows), start, min(part, total - start), at)
        at += part


class SkippableMuon(SkippableAdam):
    """Muon for the groups of parameters with `is_muon`, AdamW for the others; see SkippableAdam.

    Gradients are clipped before. DeepSpeed 0.19.8 has a Muon that above ZeRO stage 0 clips the orthogonal
    matrices instead, and so trains otherwise than at stage 0. Weight decay is decoupled, as Muon's authors
    have it. pieces: what the flat tensors hold that ZeRO 1 to 3 have in the place of parameters. device:
    where ranks exchange. timed: around each exchange.
    """

    pieces: Mapping[torch.Tensor, Sequence[Piece]] = {}
    device = torch.device("cpu")
    timed: Timed = NOT_TIMED

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """A step of every group, or nothing. Collective above ZeRO stage 0."""
        if self.skips:
            return
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group["is_muon"]]
        if self.param_groups:
            super().step(closure)
        self.param_groups = groups
        for group in groups:
            if group["is_muon"]:
                self._step_matrices(group)

    @torch.no_grad()
    def _step_matrices(self, group: Mapping[str, Any]) -> None:
        momentum, rate = group["momentum"], group["lr"]
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        updates: list[torch.Tensor] = []
        for parameter in parameters:
            buffer = self.state[parameter]["momentum_buffer"]
            self._replace(buffer, buffer.lerp(parameter.grad, 1 - momentum))
            updates.append(parameter.grad.lerp(buffer, momentum))  # Nesterov's
        if not self.pieces:
            make_orthogonal(updates)
        for parameter, update in zip(parameters, updates, strict=True):
            if self.pieces:
                make_orthogonal_together(update, self.pieces[parameter], self.device, self.timed)
            decayed = parameter * (1 - rate * group["weight_decay"])
            self._replace(parameter, decayed.sub_(update, alpha=rate))

    def _replace(self, old: torch.Tensor, new: torch.Tensor) -> None:
        """old = new, unless the device knows that the step is skipped; new may be NaN then."""
        old.copy_(new if self.found_inf is None else torch.where(self.found_inf == 0, new, old))


class SkippableSGD(NeverCompiled, torch.optim.SGD):
    """SGD that leaves weights and momentum alone while `skips` is set; see SkippableAdam."""

    skips = False
    found_inf: torch.Tensor | None = None

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        return None if self.skips else sgd_step(self, closure)


@contextlib.contextmanager
def _counts_of(optimizer: SkippableAdam) -> Iterator[None]:
    """Where the bias is not to be corrected, a step within sees very many steps behind it.

    torch's Adam always corrects; so its own kernels do without, and the true counts stay in the state.
    """
    if optimizer.corrects_bias:
        yield
        return
    # DeepSpeed leaves one group at a time in param_groups, and steps each.
    updated = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    counts = [optimizer.state[own]["step"] for own in updated if "step" in optimizer.state.get(own, {})]
    before = [count.clone() for count in counts]
    for count in counts:
        count.fill_(MANY_STEPS)
    yield
    left_out = 0.0 if optimizer.found_inf is None else optimizer.found_inf
    for count, known in zip(counts, before, strict=True):
        count.copy_(known + 1 - left_out)


def runs_fused(network: nn.Module) -> bool:
    """True on a GPU. torch's fused kernels for the CPU would round differently from existing runs."""
    return next(network.parameters()).device.type == "cuda"


def state_keys(network: nn.Module, optimizer: str) -> dict[str, tuple[str, ...]]:
    """The tensors that an optimizer of the settings keeps for each parameter, by the parameter's name."""
    keys = MOMENTUM if optimizer == "sgd" else MOMENTS
    return {
        name: MOMENTUM if optimizer == "muon" and is_body_matrix(name, parameter) else keys
        for name, parameter in network.named_parameters()
    }


def state_numbers(network: nn.Module, optimizer: str) -> int:
    """How many numbers such an optimizer keeps."""
    keys = state_keys(network, optimizer)
    return sum(len(keys[name]) * parameter.numel() for name, parameter in network.named_parameters())


def is_body_matrix(name: str, parameter: nn.Parameter) -> bool:
    """True for what Muon moves: matrices and convolutions of the body, not of embedding, gates and heads."""
    return parameter.ndim > 1 and name.startswith(BODIES)


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> SkippableAdam | SkippableSGD:
    """The optimizer of the settings; no decay on biases and norms (all vectors), nor on the gates.

    On a GPU one kernel does a whole step, and skips it where `found_inf` on the device is 1.0.
    """
    fused = runs_fused(network)
    matrices: list[nn.Parameter] = []
    decaying: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if config.optimizer == "muon" and is_body_matrix(name, parameter):
            matrices.append(parameter)
        elif parameter.ndim > 1 and ".gate." not in name:
            decaying.append(parameter)
        else:
            others.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decaying, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if config.optimizer == "sgd":
        nesterov = config.nesterov and config.momentum > 0  # torch refuses the one without the other
        return SkippableSGD(
            groups, lr=config.learning_rate, momentum=config.momentum, nesterov=nesterov, fused=fused
        )
    kind = SkippableAdam
    if config.optimizer == "muon":
        kind = SkippableMuon
        for group in groups:
            group["is_muon"] = False
        muon = {
            "is_muon": True,
            "weight_decay": config.weight_decay,
            "momentum": config.muon_momentum,
            # The schedule is that of learning_rate.
            "rate_share": config.muon_learning_rate / config.learning_rate if config.learning_rate else 0.0,
        }
        groups.append({"params": matrices, **muon})
    optimizer = kind(
        groups,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        decoupled_weight_decay=config.optimizer != "adam",
        fused=fused,
    )
    optimizer.corrects_bias = config.adam_bias_correction
    return optimizer


MINIMUM = 1.0
# Above, a loss of 1 is out of fp16's reach by itself, and the search for the edge costs steps.
MAXIMUM = 2.0**24


class LossScale:
    """The factor the loss is multiplied by before backward, and its rule.

    start: the first scale, from 1 to MAXIMUM; rounded down to a power of two, so that scaling changes
    exponents alone. window: steps in a row without overflow after which the scale doubles. minimum: it does
    not go below. hysteresis: overflows at which it halves; the count restarts when it doubles, and
    with `consecutive` at each step without one (as DeepSpeed counts them).
    """

    def __init__(
        self,
        start: float,
        window: int,
        *,
        minimum: float = MINIMUM,
        hysteresis: int = 1,
        consecutive: bool = False,
    ) -> None:
        assert start >= MINIMUM and window >= 1, f"loss scale {start}, window {window}"
        self._minimum = min(power_of_two_below(minimum), MAXIMUM)
        self.scale = min(max(power_of_two_below(start), self._minimum), MAXIMUM)
        self._window = window
        self._good_steps = 0
        self._hysteresis = hysteresis
        self._overflows_left = hysteresis
        self._is_consecutive = consecutive
        self._is_fixed = False

    @classmethod
    def fixed(cls, scale: float = 1.0) -> LossScale:
        """A scale that never moves: 1 for fp32 and bf16, which have the exponents they need."""
        loss_scale = cls(1.0, 1)
        loss_scale.scale = scale
        loss_scale._is_fixed = True
        return loss_scale

    @classmethod
    def of(cls, config: TrainingConfig) -> LossScale:
        """That of the settings."""
        if config.precision != "fp16":
            return cls.fixed()
        if config.fixed_loss_scale:
            return cls.fixed(config.fixed_loss_scale)
        return cls(
            config.loss_scale,
            config.loss_scale_window,
            minimum=config.loss_scale_minimum,
            hysteresis=config.loss_scale_hysteresis,
            consecutive=config.loss_scale_consecutive,
        )

    @property
    def at_minimum(self) -> bool:
        """True where the scale cannot shrink: an overflow is then no step on the way to a better one."""
        return self._is_fixed or self.scale <= self._minimum

    def update(self, overflow: bool) -> None:
        """After each step: overflow is True where a gradient was not finite (and the step skipped)."""
        if self._is_fixed:
            return
        if overflow:
            if self._overflows_left > 1:
                self._overflows_left -= 1
            else:
                self.scale = max(self.scale / 2, self._minimum)
            self._good_steps = 0
            return
        if self._is_consecutive:
            self._overflows_left = self._hysteresis
        self._good_steps += 1
        if self._good_steps == self._window:
            self.scale = min(self.scale * 2, MAXIMUM)
            self._good_steps = 0
            self._overflows_left = self._hysteresis

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; nothing where a user fixed the scale."""
        if self._is_fixed and self.scale != MINIMUM:
            return {}
        return {
            "scale": self.scale,
            "good_steps": float(self._good_steps),
            "overflows_left": float(self._overflows_left),
        }

    def load(self, state: Mapping[str, float]) -> None:
        """Continue from `state()`; a fixed scale stays. Raises CheckpointError where it cannot be one."""
        if self._is_fixed:
            return
        scale, good_steps = state.get("scale", 0.0), state.get("good_steps", -1.0)
        left = state.get("overflows_left", 0.0)
        is_scale = MINIMUM <= scale <= MAXIMUM and scale == power_of_two_below(scale)
        if not is_scale or not 0 <= good_steps <= MOST or not 1 <= left <= MOST:
            raise CheckpointError(
                f"loss scale {quoted(dict(state))}: expected a power of two from 1 to {MAXIMUM:.0f} as "
                "'scale' and steps as 'good_steps'"
            )
        self.scale = max(float(scale), self._minimum)
        # A smaller window than the one of the saved run must still be met exactly once.
        self._good_steps = min(int(good_steps), self._window - 1)
        self._overflows_left = min(int(left), self._hysteresis)


def power_of_two_below(value: float) -> float:
    """The largest power of two that is at most `value` (a finite number of at least 1)."""
    return 2.0 ** (int(value).bit_length() - 1)
