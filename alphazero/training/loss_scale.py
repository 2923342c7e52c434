"""The dynamic loss scale of fp16 training (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2)."""

from __future__ import annotations

LARGEST = 2.0**24


class LossScale:
    """A factor on the loss that keeps small fp16 gradients from vanishing.

    Doubles after `window` steps in a row without overflow, halves at each overflow, between 1 and 2**24.
    """

    def __init__(self, first: float, window: int) -> None:
        """first: rounded down to a power of two, so that taking the scale out again is exact."""
        self.scale = 1.0
        while self.scale * 2 <= first:
            self.scale *= 2
        self._window = window
        self._good_steps = 0

    @classmethod
    def fixed(cls) -> LossScale:
        """1 for ever: fp32 and bf16 need none."""
        return cls(1.0, 0)

    def update(self, overflow: bool) -> None:
        """After every step."""
        if not self._window:
            return
        self._good_steps = 0 if overflow else self._good_steps + 1
        if overflow:
            self.scale = max(1.0, self.scale / 2)
        elif self._good_steps == self._window:
            self.scale = min(LARGEST, self.scale * 2)
            self._good_steps = 0

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; empty for a fixed scale."""
        return {"scale": self.scale, "good_steps": float(self._good_steps)} if self._window else {}

    def load(self, state: dict[str, float]) -> None:
        """Take up what `state` gave; a fixed scale stays as it is."""
        if self._window:
            self.scale = state["scale"]
            self._good_steps = int(state["good_steps"])
