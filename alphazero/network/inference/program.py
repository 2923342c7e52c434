"""One evaluation of a padded batch on fixed buffers of a device: planes, network, softmax, gather.

It runs at once on the CPU, and as a captured graph on a CUDA stream.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from alphazero.base.log import program_line
from alphazero.games.core_types import Indices, Positions
from alphazero.games.registry import GameSpec
from alphazero.machine.memory import memory_error
from alphazero.network.inference.forward import Forward
from alphazero.network.model.heads import PROMOTION_PIECES
from alphazero.network.model.planes import float_planes
from alphazero.settings.sections import NetworkConfig


def policy_places(config: NetworkConfig, spec: GameSpec) -> tuple[int, tuple[int, ...]]:
    """How many numbers the policy head gives for a position, and the place of each policy index among them.

    Planes lie square by square there; spec.policy_map counts them plane by plane.
    """
    squares = spec.num_squares
    if not spec.policy_planes:
        return spec.policy_size, spec.policy_map
    if config.policy_head == "attention":
        return squares**2 + spec.board_width**2 * PROMOTION_PIECES, spec.attention_map
    planes = spec.policy_planes
    return squares * planes, tuple(at % squares * planes + at // squares for at in spec.policy_map)


# Shapes: B positions (the batch size, padding included), N bytes of a packed position, C planes,
# H x W board, Q = H * W squares, P bit planes or policy planes, S scalar planes, K legal moves over all
# positions, M the most of them.

BITS_A_BYTE = 8
SQUARES_A_WORD = 64
FEW_PLANES = 16
LARGEST_BYTE = 255


def byte_of_one(spec: GameSpec) -> int:
    """The byte of a plane that stands for 1: so large that the finest scalar plane keeps its values."""
    return min(LARGEST_BYTE, round(1 / min((1.0, *(scale for scale in spec.scalar_scale if scale > 0)))))


class PlaneExpander:
    """planes.expand_planes into one buffer, channels last, with the constants on the device.

    dtype: a float, or uint8, of which byte_of_one(spec) is 1.

    Many planes are transposed while a square is still a bit; of few, where that would leave the
    processor's vectors empty, each byte is looked up as eight squares. Measured: each twice as fast as
    the other where it is used.
    """

    def __init__(self, spec: GameSpec, batch_size: int, device: torch.device, dtype: torch.dtype) -> None:
        squares = spec.num_squares
        self.spec = spec
        self.bit_bytes = spec.packed_bytes - spec.num_scalar_planes
        self.unit = byte_of_one(spec) if dtype is torch.uint8 else 1
        self.scale_S = self.unit * torch.tensor(spec.scalar_scale, dtype=torch.float32, device=device)
        self.in_bytes = dtype is torch.uint8
        self.bit_of_byte = (1 << torch.arange(BITS_A_BYTE, device=device)).to(torch.uint8)
        planes_BQC = torch.zeros((batch_size, squares, spec.num_planes), dtype=dtype, device=device)
        num_seen = spec.num_bit_planes + spec.num_float_planes
        self.bit_planes_BQP = planes_BQC[:, :, :num_seen]
        self.scalar_planes_BQS = planes_BQC[:, :, num_seen:]
        self.planes_BQC = planes_BQC
        self.planes_BCHW = planes_BQC.view(batch_size, spec.board_height, spec.board_width, -1).permute(
            0, 3, 1, 2
        )
        self.few = spec.num_planes < FEW_PLANES and not spec.num_float_planes
        if self.few:
            byte_value = torch.arange(256, device=device).to(torch.uint8)[:, None]
            self.squares_of_byte = (byte_value & self.bit_of_byte).ne(0).to(dtype) * self.unit
            planes_BCX = torch.zeros(
                (batch_size, spec.num_planes, SQUARES_A_WORD), dtype=dtype, device=device
            )
            self.bit_planes_BPX = planes_BCX[:, : spec.num_bit_planes]
            self.scalar_planes_BSX = planes_BCX[:, spec.num_bit_planes :]
            self.gathered_BQC = planes_BCX.transpose(1, 2)[:, :squares]
        elif not spec.num_float_planes:
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
        elif self.spec.num_float_planes:
            self.bit_planes_BQP.copy_(float_planes(packed_BN, self.spec).transpose(1, 2))
            self.scalar_planes_BQS.copy_(scalars_BS[:, None])
        else:
            bytes_B8P = bytes_BX.reshape(len(packed_BN), -1, BITS_A_BYTE).transpose(1, 2).contiguous()
            torch.bitwise_and(bytes_B8P[:, :, None], self.bit_of_byte[:, None], out=self.bits_B8bP)
            torch.ne(self.bits_B8bP, 0, out=self.bits_B8bP)
            self.bit_planes_BQP.copy_(self.bits_BQP)
            if self.unit != 1:
                self.bit_planes_BQP.mul_(self.unit)
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
        places: tuple[int, tuple[int, ...]],
        spec: GameSpec,
        batch_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.forward = forward
        self.max_moves = batch_size * spec.max_legal_moves
        self.expand = PlaneExpander(spec, batch_size, device, dtype)
        self.policy_size, place_of_index = places
        self.place_A = torch.tensor(place_of_index, dtype=torch.int64, device=device)
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


Work = Callable[[], object]
WARM_UP_RUNS = 3  # before a recording, as torch.cuda.make_graphed_callables does
# In torch's own "global" mode a recording fails when any thread of the process allocates or copies, as the
# writer of checkpoints does.
CAPTURE_ERROR_MODE = "thread_local"


class CudaRecorder:
    """Records work on a device as CUDA graphs, to be done again on the same memory.

    Those after one warm-up share memory and run in the order of their recording.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Work) -> None:
        """Do the work a few times, so that kernels are chosen and libraries have their memory."""
        # Not one pool for all: torch cannot take up one whose graphs are gone.
        self._pool = torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_RUNS):
                work()
        current.wait_stream(self._stream)

    def record(self, work: Work) -> Work:
        """What does `work` again at little cost. Raises RuntimeError where it cannot be recorded."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode=CAPTURE_ERROR_MODE
            ):
                work()
        finally:
            torch.cuda.set_stream(current)  # torch leaves its own where the end of a capture fails
        replay: Work = graph.replay
        return replay


class BatchBuffers:
    """Host buffers of one batch in flight (pinned for CUDA), and the event that ends it."""

    def __init__(self, program: BatchProgram, pinned: bool) -> None:
        def like(tensor: Tensor) -> Tensor:
            return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)

        self.program = program
        self.packed_BN, self.index_M, self.offset_B1 = map(
            like, (program.packed_BN, program.index_M, program.offset_B1)
        )
        self.logits_M, self.wdl_B3 = like(program.logits_M), like(program.wdl_B3)
        self.event = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]
        self.busy = False
        self.num_positions = 0
        self.num_moves = 0

    def fill(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> None:
        """Take a batch: legal_offset begins with 0. The arrays are free afterwards."""
        self.num_positions, self.num_moves = len(packed), len(legal_index)
        self.packed_BN.numpy()[: self.num_positions] = packed
        self.index_M.numpy()[: self.num_moves] = legal_index
        offset_B1 = self.offset_B1.numpy()
        offset_B1[: self.num_positions + 1] = legal_offset
        offset_B1[self.num_positions + 1 :] = self.num_moves

    def send(self) -> None:
        """Copy what the batch fills to the device."""
        filled, moves = slice(self.num_positions), slice(self.num_moves)
        self.program.packed_BN[filled].copy_(self.packed_BN[filled], non_blocking=True)
        self.program.index_M[moves].copy_(self.index_M[moves], non_blocking=True)
        self.program.offset_B1.copy_(self.offset_B1, non_blocking=True)

    def fetch(self) -> None:
        """Copy the result of the batch back."""
        filled, moves = slice(self.num_positions), slice(self.num_moves)
        self.logits_M[moves].copy_(self.program.logits_M[moves], non_blocking=True)
        self.wdl_B3[filled].copy_(self.program.wdl_B3[filled], non_blocking=True)
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """Return when `fetch` is done."""
        if self.event is not None:
            self.event.synchronize()


@contextlib.contextmanager
def cudnn_by_rule() -> Iterator[None]:
    """cudnn chooses algorithms by rule: training lets it time them, and ranks would not choose alike.

    deterministic also keeps it from what it found by timing earlier: cudnn's cache knows the difference.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before


class Runner:
    """Runs batches of a program one after the other, each at once. description: how, in words."""

    def __init__(self, program: BatchProgram) -> None:
        self.program = program
        self.description = program.forward.description

    @torch.inference_mode()
    def enqueue(self, buffers: BatchBuffers) -> None:
        """Begin the evaluation of the batch in `buffers`; `buffers.wait()` ends it."""
        buffers.send()
        self.program.run(buffers.num_moves)
        buffers.fetch()

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """New weights, for batches enqueued from now on."""
        self.program.forward.load(folded)


class CudaRunner(Runner):
    """Enqueues on a separate stream; the program is a graph where it can be captured.

    All batches share the device's buffers: the stream keeps them apart.
    """

    def __init__(self, program: BatchProgram, device: torch.device) -> None:
        super().__init__(program)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # Buffers and weights were made on the stream of the caller.
        self.stream.wait_stream(torch.cuda.current_stream(device))
        self.graph: torch.cuda.CUDAGraph | None = None
        how = "as a CUDA graph"
        with self._on_stream(), cudnn_by_rule():
            for _ in range(WARM_UP_RUNS):
                program.run(program.max_moves)
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, stream=self.stream, capture_error_mode=CAPTURE_ERROR_MODE):
                    program.run(program.max_moves)
                self.graph = graph
            except RuntimeError as error:
                if memory := memory_error(error):
                    raise memory from error
                how = f"without CUDA graph: {str(error).strip().splitlines()[0]}"
                print(program_line(f"evaluations on {device} {how}"), file=sys.stderr, flush=True)
        self.description += f", {how}"

    def enqueue(self, buffers: BatchBuffers) -> None:
        """See Runner."""
        with self._on_stream(), torch.inference_mode():
            buffers.send()
            if self.graph is not None:
                self.graph.replay()
            else:
                with cudnn_by_rule():
                    self.program.run(buffers.num_moves)
            buffers.fetch()

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See Runner; in stream order, so batches enqueued before keep the old weights."""
        caller = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(caller)
        with self._on_stream():
            self.program.forward.load(folded)
        # The caller may change its tensors afterwards.
        caller.wait_stream(self.stream)

    def _on_stream(self) -> contextlib.AbstractContextManager[None]:
        context: contextlib.AbstractContextManager[None] = torch.cuda.stream(self.stream)
        return context
