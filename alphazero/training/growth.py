"""How many of the tower's residual blocks take part in training, step by step.

A small network learns its first lessons in less time, a large one goes further (Chen, Goodfellow and Shlens
2016, "Net2Net", arXiv:1511.05641: deeper by identity layers). All blocks are there from the start, so that
weights and checkpoints have one shape throughout; those that do not take part yet are the identity, as
resnet.initialise leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from alphazero.config import Config
from alphazero.errors import ConfigError

FLAG = "--grow"


@dataclass(frozen=True)
class Growth:
    """stages: (first step, blocks that take part from there on), both ascending; the first step is 0."""

    stages: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, config: Config) -> Growth:
        """The growth of a run's settings. Raises ConfigError, which every rank finds alike."""
        blocks, given = config.network.blocks, config.training.grow
        if not given:
            return cls(((0, blocks),))
        counts, steps = zip(*(map(int, entry.split("@")) for entry in given), strict=True)
        said = f"{FLAG} {' '.join(given)}"
        if config.training.init_weights:
            raise _wrong(f"{said}: --init-weights has blocks that are trained; expected one of the two")
        if steps[0] != 0:
            raise _wrong(f"{said}: nothing is said of step 0; expected {counts[0]}@0 first")
        if not all(one < other for numbers in (counts, steps) for one, other in pairwise(numbers)):
            raise _wrong(f"{said}: expected more blocks from each step to the next")
        if counts[-1] != blocks:
            raise _wrong(f"{said}: ends with {counts[-1]} blocks; expected --blocks, which is {blocks}")
        return cls(tuple(zip(steps, counts, strict=True)))

    def blocks_at(self, step: int) -> int:
        """Blocks that take part in step number `step`, from 0."""
        return [blocks for first, blocks in self.stages if first <= step][-1]


def _wrong(text: str) -> ConfigError:
    return ConfigError(text, found_by_all_ranks=True)
