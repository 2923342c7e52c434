"""How long a run will still take, by what its steps and its pauses took lately."""

from __future__ import annotations

from dataclasses import dataclass

# Weight of all that came before, at each new log interval: a burst of load on the machine moves the estimate
# by a tenth, and one that stays is in it after some ten intervals.
MEMORY = 0.9


@dataclass
class _Mean:
    """A mean that forgets: seconds per unit."""

    seconds: float = 0.0
    units: float = 0.0

    def add(self, seconds: float, units: float = 1.0) -> None:
        self.seconds = MEMORY * self.seconds + seconds
        self.units = MEMORY * self.units + units

    @property
    def value(self) -> float:
        return self.seconds / self.units if self.units else 0.0


class TimeLeft:
    """Steps and pauses apart: self-play or a validation takes its time every so many steps."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._steps = _Mean()
        self._has_first = False
        self._pauses: dict[str, tuple[_Mean, int]] = {}

    def add_steps(self, count: int, seconds: float) -> None:
        """So many steps took `seconds`, without their pauses."""
        if not self._has_first:
            # The first stretch compiles and warms up: it counts until there is another one.
            self._has_first = True
            self._first = _Mean(seconds, count)
            return
        self._steps.add(seconds, count)

    def add_pause(self, name: str, seconds: float, every: int) -> None:
        """Something that is done every `every` steps took `seconds`."""
        mean, _ = self._pauses.get(name, (_Mean(), every))
        mean.add(seconds)
        self._pauses[name] = mean, every

    def seconds(self, step: int) -> float | None:
        """From `step` to the end; None before the first steps."""
        if not self._has_first:
            return None
        mean = self._steps if self._steps.units else self._first
        left = self._num_steps - step
        pauses = sum(
            pause.value * ((self._num_steps - 1) // every - (step - 1) // every)
            for pause, every in self._pauses.values()
        )
        return left * mean.value + pauses
