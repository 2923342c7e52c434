"""Self-play that has stopped looking around: policies to learn from that are nearly a single move."""

from __future__ import annotations

from alphazero.training.alarms.alarm import Alarm

CAUSE = "entropy"
# Of the largest mean entropy of a generation since this start. Chess from zero went from 2.42 to 1.77 nats in
# an hour (docs/performance.md).
LEAST_SHARE = 0.2
# In nats: a move that gets 98.5 % of the visits and one that gets the rest.
LEAST_NATS = 0.08


class PolicyEntropy:
    """Remembers the most varied generation."""

    def __init__(self) -> None:
        self._most = 0.0

    def look(self, nats: float) -> list[Alarm]:
        """Judge one more generation by the mean entropy of the policies it is trained on."""
        self._most = max(self._most, nats)
        limit = max(LEAST_NATS, LEAST_SHARE * self._most)
        if nats >= limit:
            return []
        return [
            Alarm(
                CAUSE,
                f"the policies of self-play have {nats:.3f} nats of entropy, below {limit:.3f} (the most was "
                f"{self._most:.3f}): nearly all visits go to one move, and games repeat themselves",
                "more --noise-epsilon or --dirichlet-alpha, a larger --c-init, a longer --temperature-plies, "
                "more --opening-plies, or a smaller --learning-rate",
            )
        ]
