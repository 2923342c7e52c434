"""What the rest of the program must know about a game: sizes, planes, policy (GameSpec)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GameSpec:
    """Sizes of a game's encoding.

    A packed position is num_bit_planes little-endian u64 (bit = rank * board_width + file, from the
    mover's side) followed by num_scalar_planes bytes. The network sees
    num_bit_planes + num_scalar_planes planes of board_height x board_width; scalar plane i is
    filled with byte * scalar_scale[i].

    policy_planes / policy_map: the convolutional policy head makes policy_planes planes; entry a of
    policy_map (length policy_size) is the flat index plane * height * width + square that holds
    policy index a. attention_map: where the attention policy head has it (AttentionPolicyHead), with Q
    squares on a board W wide: from * Q + to, or Q * Q + (from file * W + to file) * 3 + piece for promotions
    to queen, rook and bishop; empty for games whose moves are none from a square to a square.
    num_symmetries: ways to turn the board that change nothing of the game, 1 for none.
    """

    name: str
    board_height: int
    board_width: int
    num_bit_planes: int
    num_scalar_planes: int
    scalar_scale: tuple[float, ...]
    policy_size: int
    policy_planes: int
    policy_map: tuple[int, ...]
    attention_map: tuple[int, ...]
    max_legal_moves: int
    num_symmetries: int

    @property
    def num_planes(self) -> int:
        """Input planes of the network."""
        return self.num_bit_planes + self.num_scalar_planes

    @property
    def packed_bytes(self) -> int:
        """Bytes of one packed position."""
        return 8 * self.num_bit_planes + self.num_scalar_planes
