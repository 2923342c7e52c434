"""The attention policy head of lc0's newer networks: how well two squares go together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from alphazero.config import NetworkConfig
from alphazero.games.spec import GameSpec

# Shapes: B positions, C channels, H x W board, Q = H * W squares, A policy indices.

PROMOTION_PIECES = 3  # queen, rook, bishop; a knight is the plain move
NUM_OFFSETS = PROMOTION_PIECES + 1


class AttentionPolicyHead(nn.Module):
    """Every square asks (query) and answers (key); a move's logit is query(from) . key(to) / sqrt(C).

    A promotion's logit is that of the plain move and an offset that the key of the square it goes to gives
    for the piece, and one for any piece. Structure: lc0 src/neural/backends/blas/network_blas.cc
    (attn_policy_), lczero-training tf/tfprocess.py, POLICY_ATTENTION; embedding and keys are as wide as the
    tower.
    """

    policy_map_A: Tensor

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        self.embed = nn.Linear(config.filters, config.filters)
        self.query = nn.Linear(config.filters, config.filters)
        self.key = nn.Linear(config.filters, config.filters)
        self.promotion = nn.Linear(config.filters, NUM_OFFSETS, bias=False)
        self.width = spec.board_width
        # See PolicyHead.
        policy_map_A = torch.tensor(spec.attention_map, dtype=torch.int64, device="cpu")
        self.register_buffer("policy_map_A", policy_map_A, persistent=False)

    def forward(self, tower_BCHW: Tensor) -> Tensor:
        """[B, filters, H, W] -> logits [B, A]."""
        return self.all_moves(tower_BCHW).index_select(1, self.policy_map_A)

    def all_moves(self, tower_BCHW: Tensor) -> Tensor:
        """Logits of every from and to, then of promotions, as GameSpec.attention_map counts them: [B, N]."""
        tokens_BQC = tower_BCHW.flatten(2).transpose(1, 2)
        embedded_BQC = functional.selu(self.embed(tokens_BQC))
        return logits_of_moves(
            self.query(embedded_BQC), self.key(embedded_BQC), self.promotion.weight, self.width
        )


def logits_of_moves(query_BQC: Tensor, key_BQC: Tensor, promotion_OC: Tensor, width: int) -> Tensor:
    """[B, Q * Q + W * W * 3], contiguous: from each square to each, from file to file with each promotion.

    promotion_OC: AttentionPolicyHead.promotion's weight.
    """
    plain_BQQ = query_BQC @ key_BQC.transpose(1, 2) * query_BQC.shape[-1] ** -0.5
    offset_BOW = promotion_OC @ key_BQC[:, -width:].transpose(1, 2)
    offset_B3W = offset_BOW[:, :PROMOTION_PIECES] + offset_BOW[:, PROMOTION_PIECES:]
    # From the rank before the last one to the last one.
    pushed_BWW = plain_BQQ[:, -2 * width : -width, -width:]
    promoted_BWW3 = pushed_BWW[:, :, :, None] + offset_B3W.transpose(1, 2)[:, None]
    return torch.cat([plain_BQQ.flatten(1), promoted_BWW3.flatten(1)], dim=1)
