"""Positions on the device: packed bytes to input planes, a loader's batch to tensors, CSR rows to dense."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from alphazero.games.batch import Batch
from alphazero.games.registry import GameSpec

# Shapes: B positions, N bytes of a packed position, C planes, H x W board, K legal moves over all B
# positions, A policy indices, 3 = win, draw, loss of the mover.


@dataclass(frozen=True)
class DeviceBatch:
    """A games.batch.Batch as tensors on one device; legal moves as (row, index) pairs.

    packed_BN uint8; row_K and legal_index_K int64 (move k belongs to position row_K[k]); policy_K,
    wdl_B3, moves_left_B float32 as in Batch.
    """

    packed_BN: Tensor
    row_K: Tensor
    legal_index_K: Tensor
    policy_K: Tensor
    wdl_B3: Tensor
    moves_left_B: Tensor


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch to `device`; to CUDA through pinned memory, without waiting for the copy."""

    def move(array: object) -> Tensor:
        tensor: Tensor = torch.as_tensor(array)
        if device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=True)

    num_moves = len(batch.legal_index)
    return DeviceBatch(
        packed_BN=move(batch.packed),
        row_K=csr_rows(move(batch.legal_offset), num_moves),
        legal_index_K=move(batch.legal_index).to(torch.int64),
        policy_K=move(batch.policy),
        wdl_B3=move(batch.wdl),
        moves_left_B=move(batch.moves_left),
    )


def expand_planes(packed_BN: Tensor, spec: GameSpec) -> Tensor:
    """Packed positions [B, packed_bytes] uint8 to input planes [B, num_planes, H, W] float32.

    Bit planes become 0 and 1, scalar plane i byte * scalar_scale[i] on every square. The planes lie
    channels last, on the device of packed_BN.
    """
    num_positions = packed_BN.shape[0]
    height, width = spec.board_height, spec.board_width
    squares = height * width
    device = packed_BN.device
    bit_bytes = spec.packed_bytes - spec.num_scalar_planes
    bit_of_byte, scale_S = plane_constants(spec.scalar_scale, device)
    scalars_BS = packed_BN[:, bit_bytes:].to(torch.float32) * scale_S
    planes_BQC = torch.empty((num_positions, squares, spec.num_planes), device=device)
    if spec.num_float_planes:
        floats_BPQ = float_planes(packed_BN, spec)
        planes_BQC[:, :, : spec.num_float_planes] = floats_BPQ.transpose(1, 2)
        planes_BQC[:, :, spec.num_float_planes :] = scalars_BS[:, None, :]
        return planes_BQC.view(num_positions, height, width, spec.num_planes).permute(0, 3, 1, 2)
    # Byte i of a little-endian u64 holds bits 8i to 8i + 7.
    bytes_BP8 = packed_BN[:, :bit_bytes].reshape(num_positions, spec.num_bit_planes, 8)
    # Transpose while a square is still a bit: 32 times less to move.
    bits_B8bP = bytes_BP8.transpose(1, 2).contiguous()[:, :, None, :] & bit_of_byte[:, None]
    bits_BQP = bits_B8bP.reshape(num_positions, 64, spec.num_bit_planes)[:, :squares]
    planes_BQC[:, :, : spec.num_bit_planes] = bits_BQP != 0
    planes_BQC[:, :, spec.num_bit_planes :] = scalars_BS[:, None, :]
    return planes_BQC.view(num_positions, height, width, spec.num_planes).permute(0, 3, 1, 2)


def float_planes(packed_BN: Tensor, spec: GameSpec) -> Tensor:
    """The float planes of packed positions, f32 [B, planes, squares]."""
    num_bytes = 4 * spec.num_float_planes * spec.num_squares
    # A copy, for rows of packed positions begin anywhere.
    bytes_BN = packed_BN[:, :num_bytes].clone(memory_format=torch.contiguous_format)
    return bytes_BN.view(torch.float32).view(len(packed_BN), -1, spec.num_squares)


@functools.lru_cache(maxsize=64)
def plane_constants(scalar_scale: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The eight bits of a byte, and the scales [S], made once per device: a copy there waits for it."""
    # No inference tensors, which training could not use, whoever asks first.
    with torch.inference_mode(False):
        bit_of_byte = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)
        return bit_of_byte, torch.tensor(scalar_scale, dtype=torch.float32, device=device)


def csr_rows(offset: Tensor, num_moves: int) -> Tensor:
    """Offsets [B + 1] to the row of each of the num_moves entries, int64 [K]; no wait for the device."""
    rows_B = torch.arange(offset.shape[0] - 1, device=offset.device)
    return torch.repeat_interleave(rows_B, torch.diff(offset).to(torch.int64), output_size=num_moves)


def dense_target(batch: DeviceBatch, policy_size: int) -> Tensor:
    """The target policy [B, A] float32: each legal move's share, 0 elsewhere."""
    target_BA = batch.policy_K.new_zeros((batch.packed_BN.shape[0], policy_size))
    target_BA[batch.row_K, batch.legal_index_K] = batch.policy_K
    return target_BA


def legal_mask(batch: DeviceBatch, policy_size: int) -> Tensor:
    """Which policy indices are legal moves, bool [B, A]."""
    mask_BA = torch.zeros(
        (batch.packed_BN.shape[0], policy_size), dtype=torch.bool, device=batch.row_K.device
    )
    mask_BA[batch.row_K, batch.legal_index_K] = True
    return mask_BA
