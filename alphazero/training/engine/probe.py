"""Trial passes before the DeepSpeed engine exists: what fits into the memory of a GPU, what is fast there.

Everything here is local to one rank and without collectives; the ranks then choose together (planner.py).
"""

from __future__ import annotations

import copy
import gc
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from alphazero.games.batch import Batch
from alphazero.games.registry import GameSpec, get_spec
from alphazero.machine.memory import memory_error
from alphazero.network.inference.kernels import MakePass, Pass, probe_network
from alphazero.network.model.layers import SqueezeExcitation
from alphazero.network.model.planes import expand_planes, to_device
from alphazero.network.model.precision import DTYPES, autocast
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.load import Config
from alphazero.training.engine.deepspeed_config import DEFAULT_BUCKET, keeps_gradients
from alphazero.training.engine.optimizer import state_numbers
from alphazero.training.engine.training_module import TrainingModule

FLOAT_BYTES = 4  # parameters, gradients and optimizer state are fp32 in every precision
# Legal moves of a random position for the probe: above the mean of real chess games (about 35).
MOVES_PER_POSITION = 48
# NCCL's buffers and what cuBLAS and cudnn take aside: a few hundred MiB on 8 devices.
LIBRARY_BYTES = 512 << 20
TRIAL_BOARDS = 512


def largest_that_fits(sizes: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The largest of the ascending `sizes` that fits, by bisection; None where none does.

    What does not fit is taken to be too large: `fits` is asked about log2 of their number.
    """
    number = bisect_left(sizes, True, key=lambda size: not fits(size))
    return sizes[number - 1] if number else None


def fits(
    network: AlphaZeroNet, config: Config, device: torch.device, micro_batch_size: int, reserve_bytes: int
) -> bool:
    """True where forward, loss and backward of so many positions run on `device` beside the reserve.

    Tried on a copy with random positions, twice: the second backward finds the gradients of the first
    in place, as accumulation does. `network`, its buffers and torch's generators stay as they are. Runs
    eagerly: a compiled network needs less.
    """
    try:
        _try_passes(network, config, device, micro_batch_size, reserve_bytes)
    except (RuntimeError, MemoryError) as error:
        if not memory_error(error):
            raise
        return False
    finally:
        # Outside the except clauses: their traceback holds the frames that hold the tensors.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return True


def _try_passes(
    network: AlphaZeroNet, config: Config, device: torch.device, micro_batch_size: int, reserve_bytes: int
) -> None:
    reserve = torch.empty(reserve_bytes, dtype=torch.uint8, device=device)
    twin = copy.deepcopy(network).to(device).train()
    if config.training.zero_stage == 0:
        twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module = TrainingModule(twin, config.loss, config.training, compiles=False)
    batch = to_device(random_batch(network.spec, micro_batch_size), device)
    for _ in range(2):
        module(batch).backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    del reserve


def random_batch(spec: GameSpec, num_positions: int) -> Batch:
    """Packed positions of random bits with random legal moves and targets; always the same ones.

    numpy draws them: torch's generators are not touched.
    """
    chance = np.random.default_rng(0)
    num_moves = min(MOVES_PER_POSITION, spec.max_legal_moves, spec.policy_size)
    packed = chance.integers(256, size=(num_positions, spec.packed_bytes), dtype=np.uint8)
    num_bytes = 4 * spec.num_float_planes * spec.num_squares
    packed[:, :num_bytes] = chance.random((num_positions, num_bytes // 4), np.float32).view(np.uint8)
    first = chance.integers(spec.policy_size - num_moves + 1, size=(num_positions, 1))
    return Batch(
        packed=packed,
        legal_offset=np.arange(num_positions + 1, dtype=np.int32) * np.int32(num_moves),
        legal_index=(first + np.arange(num_moves)).astype(np.int32).reshape(-1),
        policy=np.full(num_positions * num_moves, 1 / num_moves, np.float32),
        wdl=np.full((num_positions, 3), 1 / 3, np.float32),
        moves_left=np.full(num_positions, 40.0, np.float32),
        sample_id=np.arange(num_positions, dtype=np.int64),
    )


def reserve_bytes(network: AlphaZeroNet, config: Config, world_size: int) -> int:
    """Bytes that training needs beside parameters, gradients and activations, from DeepSpeed's source.

    `fits` has the parameters and their gradients in its copy, so they are not in here.
    """
    training, options = config.training, config.deepspeed.zero_options
    size = network.parameter_count() * FLOAT_BYTES
    shards = world_size if training.zero_stage else 1
    total = state_numbers(network, config.optimizer.optimizer) * FLOAT_BYTES // shards
    # torch's foreach optimizers and gradient clipping hold one more tensor per parameter for a moment.
    total += size // shards
    if keeps_gradients(config):
        total += size  # FlatGradients
    else:
        # One bucket of gradients, two where overlap_comm keeps one in flight; allocated whole, however small
        # the network.
        buckets = 2 if training.zero_stage == 2 and options.get("overlap_comm") else 1
        total += buckets * int(options.get("reduce_bucket_size", DEFAULT_BUCKET)) * FLOAT_BYTES
    if training.zero_stage:
        # The flat fp32 partition and its gradients (stage_1_and_2 and stage3 in deepspeed/runtime/zero), and
        # a bucket of gathered weights.
        total += 2 * size // shards
        total += min(size, int(options.get("allgather_bucket_size", DEFAULT_BUCKET)) * FLOAT_BYTES)
    if training.ema_decay:
        total += size
    return total + LIBRARY_BYTES


def squeeze_passes(config: Config, device: torch.device) -> MakePass:
    """The end of a residual block and its gradients, by what trains squeeze-excitation."""
    network, spec, precision = config.network, get_spec(config.network.game), config.training.precision
    shape = 3, TRIAL_BOARDS, spec.board_height, spec.board_width, network.filters
    chance = torch.Generator(device).manual_seed(0)
    numbers = torch.randn(shape, generator=chance, device=device).to(DTYPES[precision])
    numbers[0] += 8 * numbers[0].sign()  # else rounding would decide what ReLU lets pass
    skip_BCHW, branch_BCHW, gradient_BCHW = numbers.permute(0, 1, 4, 2, 3)

    def make_pass(kernels: str, dtype: torch.dtype) -> Pass:
        own = probe_network(network).to(device, torch.promote_types(dtype, torch.float32)).train()
        end = next(module for module in own.modules() if isinstance(module, SqueezeExcitation))
        inputs = [tensor.to(dtype).detach().requires_grad_() for tensor in (skip_BCHW, branch_BCHW)]
        wanted, given_BCHW = [*inputs, *end.parameters()], gradient_BCHW.to(dtype)

        def run() -> Sequence[Tensor]:
            SqueezeExcitation.trained_by = kernels
            with autocast(device, precision, keep_casts=False):
                output_BCHW = end.added_to(*inputs)
            return [output_BCHW.detach(), *torch.autograd.grad(output_BCHW, wanted, given_BCHW)]

        return run

    return make_pass


def attention_passes(config: Config, device: torch.device) -> MakePass:
    """A shallow attention body and its heads with their gradients, by what trains it."""
    network, precision = probe_network(config.network), config.training.precision
    batch = to_device(random_batch(network.spec, TRIAL_BOARDS), device)
    planes_BCHW = expand_planes(batch.packed_BN, network.spec)

    def make_pass(kernels: str, dtype: torch.dtype) -> Pass:
        own = copy.deepcopy(network).to(device, torch.promote_types(dtype, torch.float32)).train()
        own.body.checkpointing = config.training.activation_checkpointing
        run_parts, weights = own.body.run_by(kernels), list(own.body.parameters())
        own_BCHW = planes_BCHW.to(dtype)

        def run() -> Sequence[Tensor]:
            with autocast(device, precision, keep_casts=False):
                output = own(own_BCHW, run_parts)
            sums = output.policy_BA.float().logsumexp(1).sum() + output.wdl_B3.float().square().sum()
            gradients = torch.autograd.grad(sums, weights)
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            return [output.policy_BA.detach(), output.wdl_B3.detach(), flat]

        return run

    return make_pass
