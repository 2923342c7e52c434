"""train_distributed.py with one bit of one weight of one rank flipped after a step's update.

FLIPPED_RANK and FLIPPED_STEP say where and when. The bit is the lowest of the weight's 32, in the copy the
forward pass reads: above ZeRO 0 the next update would overwrite it with the master copy.
"""

import os
import sys

import torch
from deepspeed.runtime.engine import DeepSpeedEngine

from alphazero.cli.main import entry_point

TENSOR = "value.hidden.weight"
STEP = DeepSpeedEngine.step


def step(self: DeepSpeedEngine, *arguments: object, **named: object) -> None:
    """The engine's step; then the flip, if this was the update it follows."""
    before = self.global_steps
    STEP(self, *arguments, **named)
    if before < self.global_steps == int(os.environ["FLIPPED_STEP"]):
        (weight,) = (value for name, value in self.module.named_parameters() if name.endswith(TENSOR))
        weight.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1)


if os.environ["RANK"] == os.environ["FLIPPED_RANK"]:
    DeepSpeedEngine.step = step

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
