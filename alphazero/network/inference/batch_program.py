"""One evaluation of a padded batch on fixed buffers of a device: planes, network, softmax, gather."""

from __future__ import annotations

import torch
from torch import Tensor

from alphazero.games.spec import GameSpec
from alphazero.network.inference.forward import Forward
from alphazero.network.inference.policy_places import PolicyPlaces

# Shapes: B positions (the batch size, padding included), N bytes of a packed position, C planes,
# H x W board, Q = H * W squares, P bit planes or policy planes, S scalar planes, K legal moves over all
# positions, M the most of them.

BITS_A_BYTE = 8
SQUARES_A_WORD = 64
FEW_PLANES = 16
LARGEST_BYTE = 255


def byte_of_one(spec: GameSpec) -> int:
    """What the byte of a plane says for 1: so much that the finest scalar plane keeps its values."""
    return min(LARGEST_BYTE, round(1 / min((1.0, *(scale for scale in spec.scalar_scale if scale > 0)))))


class PlaneExpander:
    """planes.expand_planes into a buffer of its own, channels last, with the constants on the device.

    dtype: a float, or uint8, of which byte_of_one(spec) is 1.

    Many planes are transposed while a square is still a bit; of few, where that would leave the
    processor's vectors empty, each byte is looked up as eight squares. Measured: each twice as fast as
    the other where it is used.
    """

    def __init__(self, spec: GameSpec, batch_size: int, device: torch.device, dtype: torch.dtype) -> None:
        squares = spec.board_height * spec.board_width
        self.bit_bytes = BITS_A_BYTE * spec.num_bit_planes
        self.one = byte_of_one(spec) if dtype is torch.uint8 else 1
        self.scale_S = self.one * torch.tensor(spec.scalar_scale, dtype=torch.float32, device=device)
        self.in_bytes = dtype is torch.uint8
        self.bit_of_byte = (1 << torch.arange(BITS_A_BYTE, device=device)).to(torch.uint8)
        planes_BQC = torch.zeros((batch_size, squares, spec.num_planes), dtype=dtype, device=device)
        self.bit_planes_BQP = planes_BQC[:, :, : spec.num_bit_planes]
        self.scalar_planes_BQS = planes_BQC[:, :, spec.num_bit_planes :]
        self.planes_BQC = planes_BQC
        self.planes_BCHW = planes_BQC.view(batch_size, spec.board_height, spec.board_width, -1).permute(
            0, 3, 1, 2
        )
        self.few = spec.num_planes < FEW_PLANES
        if self.few:
            byte_value = torch.arange(256, device=device).to(torch.uint8)[:, None]
            self.squares_of_byte = (byte_value & self.bit_of_byte).ne(0).to(dtype) * self.one
            planes_BCX = torch.zeros(
                (batch_size, spec.num_planes, SQUARES_A_WORD), dtype=dtype, device=device
            )
            self.bit_planes_BPX = planes_BCX[:, : spec.num_bit_planes]
            self.scalar_planes_BSX = planes_BCX[:, spec.num_bit_planes :]
            self.gathered_BQC = planes_BCX.transpose(1, 2)[:, :squares]
        else:
            bits_B8bP = torch.zeros(
                (batch_size, BITS_A_BYTE, BITS_A_BYTE, spec.num_bit_planes), dtype=torch.uint8, device=device
            )
            self.bits_B8bP = bits_B8bP
            self.bits_BQP = bits_B8bP.view(batch_size, SQUARES_A_WORD, -1)[:, :squares]

    def __call__(self, packed_BN: Tensor) -> Tensor:
        """Packed positions u8 [B, N] to planes [B, C, H, W], valid until the next call."""
        # Byte i of a little-endian u64 holds bits 8i to 8i + 7.
        bytes_BX = packed_BN[:, : self.bit_bytes]
        scalars_BS = packed_BN[:, self.bit_bytes :] * self.scale_S
        if self.in_bytes:
            scalars_BS = scalars_BS.round_().clamp_(max=LARGEST_BYTE)
        if self.few:
            squares_X8 = self.squares_of_byte.index_select(0, bytes_BX.flatten().to(torch.int32))
            self.bit_planes_BPX.copy_(squares_X8.view(self.bit_planes_BPX.shape))
            self.scalar_planes_BSX.copy_(scalars_BS[:, :, None])
            self.planes_BQC.copy_(self.gathered_BQC)
        else:
            bytes_B8P = bytes_BX.reshape(len(packed_BN), -1, BITS_A_BYTE).transpose(1, 2).contiguous()
            torch.bitwise_and(bytes_B8P[:, :, None], self.bit_of_byte[:, None], out=self.bits_B8bP)
            torch.ne(self.bits_B8bP, 0, out=self.bits_B8bP)
            self.bit_planes_BQP.copy_(self.bits_BQP)
            if self.one != 1:
                self.bit_planes_BQP.mul_(self.one)
            self.scalar_planes_BQS.copy_(scalars_BS[:, None])
        return self.planes_BCHW


class BatchProgram:
    """Fixed buffers in, fixed buffers out: `run` can be captured as a CUDA graph.

    In: packed_BN u8; index_M i32, legal policy indices; offset_B1 i32 [B + 1], where each position's
    begin, the count for padding. Out: logits_M f32, wdl_B3 f32 (probabilities). Buffers beyond what a
    batch fills keep what an earlier one left there, which is valid and of no effect.
    """

    def __init__(
        self,
        forward: Forward,
        places: PolicyPlaces,
        spec: GameSpec,
        batch_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.forward = forward
        self.max_moves = batch_size * spec.max_legal_moves
        self.expand = PlaneExpander(spec, batch_size, device, dtype)
        self.policy_size = places.size
        self.place_A = torch.tensor(places.place, dtype=torch.int64, device=device)
        self.number_M = torch.arange(self.max_moves, dtype=torch.int32, device=device)
        self.last_row = batch_size - 1
        self.packed_BN = torch.zeros((batch_size, spec.packed_bytes), dtype=torch.uint8, device=device)
        self.index_M = torch.zeros(self.max_moves, dtype=torch.int32, device=device)
        self.offset_B1 = torch.zeros(batch_size + 1, dtype=torch.int32, device=device)
        self.logits_M = torch.zeros(self.max_moves, dtype=torch.float32, device=device)
        self.wdl_B3 = torch.zeros((batch_size, 3), dtype=torch.float32, device=device)

    @torch.inference_mode()
    def run(self, num_moves: int) -> None:
        """Evaluate what is in the buffers; of the legal moves the first `num_moves`."""
        policy_BL, wdl_logits_B3 = self.forward(self.expand(self.packed_BN))
        torch.softmax(wdl_logits_B3.float(), dim=1, out=self.wdl_B3)
        # Move k belongs to the position whose moves end after k, moves beyond the last to any.
        row_K = torch.searchsorted(self.offset_B1[1:], self.number_M[:num_moves], right=True)
        place_K = row_K.clamp_(max=self.last_row).mul_(self.policy_size)
        place_K += self.place_A.index_select(0, self.index_M[:num_moves])
        self.logits_M[:num_moves].copy_(policy_BL.view(-1).index_select(0, place_K))
