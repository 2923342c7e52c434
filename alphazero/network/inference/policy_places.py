"""Where a policy index lies among the numbers that a Forward gives for a position, by its policy head."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.config import NetworkConfig
from alphazero.games.spec import GameSpec
from alphazero.network.model.attention_policy import PROMOTION_PIECES


@dataclass(frozen=True)
class PolicyPlaces:
    """size: numbers of a position. place: of each policy index, among them."""

    size: int
    place: tuple[int, ...]


def policy_places(config: NetworkConfig, spec: GameSpec) -> PolicyPlaces:
    """Planes lie square by square there; spec.policy_map counts them plane by plane."""
    squares = spec.board_height * spec.board_width
    if config.policy_head == "attention":
        return PolicyPlaces(squares**2 + spec.board_width**2 * PROMOTION_PIECES, spec.attention_map)
    planes = spec.policy_planes
    return PolicyPlaces(
        squares * planes, tuple(at % squares * planes + at // squares for at in spec.policy_map)
    )
