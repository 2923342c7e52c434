"""Batched inference: packed positions in, logits of their legal moves and win, draw, loss out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from alphazero.games.spec import GameSpec
from alphazero.network.heads import ConvNorm
from alphazero.network.planes import csr_rows, expand_planes
from alphazero.network.precision import DTYPES
from alphazero.network.resnet import AlphaZeroNet

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.


class Evaluation(NamedTuple):
    """legal_logits f32 [K], not normalised; wdl f32 [B, 3], probabilities for the side to move."""

    legal_logits: npt.NDArray[np.float32]
    wdl: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pending:
    """An evaluation under way."""

    _evaluation: Evaluation

    def result(self) -> Evaluation:
        """The evaluation, when it is done."""
        return self._evaluation


class NetworkEvaluator:
    """A network frozen for inference: BatchNorm folded, whole network in one precision, channels last.

    Every forward pass has `batch_size` positions, padded with empty ones, so that a position's
    evaluation does not depend on how many others came along. The network given is left as it is.
    """

    def __init__(
        self, network: AlphaZeroNet, spec: GameSpec, device: torch.device, precision: str, batch_size: int
    ) -> None:
        self.spec = spec
        self.device = device
        self.batch_size = batch_size
        self.dtype = DTYPES[precision]
        self._config = network.config
        self.network = self._frozen(network)

    def _frozen(self, network: AlphaZeroNet) -> nn.Module:
        folded = fold_batch_norm(network).to(device=self.device, dtype=self.dtype)
        # A network this small per square gains from channels last on CPU and GPU alike.
        frozen: nn.Module = folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return frozen

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Play with other weights: all parameters and buffers of a network of the same shape, by name."""
        with torch.device("meta"):
            network = AlphaZeroNet(self._config, self.spec)
        network.load_state_dict(dict(tensors), assign=True)
        self.network = self._frozen(network)

    def submit(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Pending:
        """Begin to evaluate at most batch_size positions, as __call__ takes them."""
        return Pending(self(packed, legal_index, legal_offset))

    def __call__(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Evaluation:
        """Evaluate packed u8 [B, N] with legal_index i32 [K] and legal_offset i32 [B + 1], any B."""
        num_positions = len(packed)
        legal_logits = np.empty(len(legal_index), np.float32)
        wdl = np.empty((num_positions, 3), np.float32)
        for start in range(0, num_positions, self.batch_size):
            stop = min(start + self.batch_size, num_positions)
            first, last = int(legal_offset[start]), int(legal_offset[stop])
            legal_logits[first:last], wdl[start:stop] = self._evaluate(
                packed[start:stop], legal_index[first:last], legal_offset[start : stop + 1] - first
            )
        return Evaluation(legal_logits, wdl)

    @torch.inference_mode()
    def _evaluate(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Evaluation:
        num_positions = len(packed)
        padded_BN = torch.zeros((self.batch_size, self.spec.packed_bytes), dtype=torch.uint8)
        padded_BN[:num_positions] = torch.as_tensor(packed)
        planes_BCHW = expand_planes(padded_BN.to(self.device), self.spec, torch.channels_last)
        output = self.network(planes_BCHW.to(self.dtype))
        row_K = csr_rows(torch.as_tensor(legal_offset).to(self.device), len(legal_index))
        index_K = torch.as_tensor(legal_index).to(self.device, torch.int64)
        logits_K = output.policy_BA[row_K, index_K].float()
        wdl_B3 = output.wdl_B3[:num_positions].float().softmax(dim=1)
        return Evaluation(logits_K.cpu().numpy(), wdl_B3.cpu().numpy())


def fold_batch_norm(network: AlphaZeroNet) -> nn.Module:
    """A copy of the network in eval mode with every BatchNorm folded into its convolution."""
    folded = copy.deepcopy(network).eval().requires_grad_(False)
    for module in list(folded.modules()):
        if isinstance(module, ConvNorm):
            module.fold()
    return folded
