"""The network's forward pass for inference, from the modules as they are: CUDA, or a CPU without oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from alphazero.network.inference.folding import fold_batch_norm
from alphazero.network.model.attention_policy import AttentionPolicyHead
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, C channels, H x W board, L numbers of the policy head, 3 = win, draw, loss.


class Forward(Protocol):
    """A network with BatchNorm folded, in one precision, that can take new weights."""

    @property
    def description(self) -> str:
        """How it computes, for people."""

    def __call__(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Planes, channels last, to what the policy head gives, [B, L] contiguous, and logits of WDL [B, 3].

        policy_places.py says where in L a policy index is.
        """

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """Take new weights, as folding.fold_tensors gives them."""


class ModuleForward:
    """The modules themselves, channels last. New weights keep the addresses of the old ones.

    compiled: through torch.compile, which then chooses its kernels by rule, not by timing, so that
    equal devices compute the same. remark: for the description.
    """

    def __init__(
        self,
        network: AlphaZeroNet,
        device: torch.device,
        dtype: torch.dtype,
        *,
        compiled: bool,
        remark: str = "",
    ) -> None:
        folded = fold_batch_norm(network)
        folded.moves_left = None
        folded.to(device=device, dtype=dtype)
        self.network = folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        by_rule: dict[str, str | int | bool | Callable[..., Any]] = {"deterministic": True}
        self._forward = torch.compile(self._plain, options=by_rule) if compiled else self._plain
        how = "compiled" if compiled else "operators"
        self.description = f"PyTorch {how} on {device.type}, {dtype}{remark}"

    def __call__(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """See Forward."""
        return self._forward(planes_BCHW)

    def _plain(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        network = self.network
        tower_BCHW = network.blocks(network.input(planes_BCHW, rectifies=True))
        # The policy head without its gather: that comes with the one of the legal moves.
        if isinstance(network.policy, AttentionPolicyHead):
            return network.policy.all_moves(tower_BCHW), network.value(tower_BCHW)
        policy_BPHW = network.policy.output(network.policy.hidden(tower_BCHW, rectifies=True))
        return policy_BPHW.permute(0, 2, 3, 1).flatten(1).contiguous(), network.value(tower_BCHW)

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See Forward."""
        own = dict(self.network.named_parameters())
        for name, tensor in folded.items():
            own[name].copy_(tensor)
