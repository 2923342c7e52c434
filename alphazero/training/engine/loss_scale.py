"""The dynamic loss scale of fp16: grows while gradients stay finite, shrinks where they overflow.

Micikevicius et al. 2018 (arXiv:1710.03740) section 3.2, with the numbers of torch.amp.GradScaler: double
after a window of good steps in a row, halve at an overflow. Pure arithmetic, the same on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from alphazero.errors import CheckpointError
from alphazero.settings import MOST
from alphazero.text import quoted

MINIMUM = 1.0
# Above, a loss of 1 is out of fp16's reach by itself, and the search for the edge costs steps.
MAXIMUM = 2.0**24


class LossScale:
    """The factor the loss is multiplied by before backward, and its rule.

    start: the first scale, from 1 to MAXIMUM; rounded down to a power of two, so that scaling changes
    exponents alone. window: steps in a row without overflow after which the scale doubles.
    """

    def __init__(self, start: float, window: int) -> None:
        assert start >= MINIMUM and window >= 1, f"loss scale {start}, window {window}"
        self.scale = min(power_of_two_below(start), MAXIMUM)
        self._window = window
        self._good_steps = 0
        self._is_fixed = False

    @classmethod
    def fixed(cls) -> LossScale:
        """A scale of 1 that never moves: fp32 and bf16 have the exponents they need."""
        loss_scale = cls(1.0, 1)
        loss_scale._is_fixed = True
        return loss_scale

    @property
    def at_minimum(self) -> bool:
        """True where an overflow cannot be the scale's fault any more."""
        return self.scale <= MINIMUM

    def update(self, overflow: bool) -> None:
        """After each step: overflow is True where a gradient was not finite (and the step skipped)."""
        if self._is_fixed:
            return
        if overflow:
            self.scale = max(self.scale / 2, MINIMUM)
            self._good_steps = 0
            return
        self._good_steps += 1
        if self._good_steps == self._window:
            self.scale = min(self.scale * 2, MAXIMUM)
            self._good_steps = 0

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"scale": self.scale, "good_steps": float(self._good_steps)}

    def load(self, state: Mapping[str, float]) -> None:
        """Go on from `state()`; a fixed scale stays 1. Raises CheckpointError where it cannot be one."""
        if self._is_fixed:
            return
        scale, good_steps = state.get("scale", 0.0), state.get("good_steps", -1.0)
        is_scale = MINIMUM <= scale <= MAXIMUM and scale == power_of_two_below(scale)
        if not is_scale or not 0 <= good_steps <= MOST:
            raise CheckpointError(
                f"loss scale {quoted(dict(state))}: expected a power of two from 1 to {MAXIMUM:.0f} as "
                "'scale' and steps as 'good_steps'"
            )
        self.scale = float(scale)
        # A smaller window than the one of the saved run must still be met exactly once.
        self._good_steps = min(int(good_steps), self._window - 1)


def power_of_two_below(value: float) -> float:
    """The largest power of two that is at most `value` (a finite number of at least 1)."""
    return 2.0 ** (int(value).bit_length() - 1)
