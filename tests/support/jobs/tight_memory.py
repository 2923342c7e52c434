"""A trainer's rank whose GPU is nearly full from step 3 on: the allocator itself then refuses.

SPARE_MIB, in the environment, is what it may take beyond what is in use at that moment.
"""

import os
import sys

import torch

from alphazero.cli.main import entry_point
from alphazero.games.batch import MicroBatch
from alphazero.training.engine.engine import Engine

FULL_FROM_STEP = 3
ACCUMULATE = Engine.accumulate


def accumulate(self: Engine, micro_batch: MicroBatch, count: int) -> object:
    """The real pass, under a limit set once."""
    if micro_batch.step == FULL_FROM_STEP and Engine.accumulate is accumulate:
        Engine.accumulate = ACCUMULATE
        torch.cuda.empty_cache()
        allowed = torch.cuda.memory_allocated() + (int(os.environ["SPARE_MIB"]) << 20)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(allowed / total)
    return ACCUMULATE(self, micro_batch, count)


Engine.accumulate = accumulate

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
