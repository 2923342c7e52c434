"""train_distributed.py with something wrong on purpose: DISTURBANCE names it, on rank DISTURBED_RANK.

memory:N   the device's memory holds micro-batches of N positions at most
nan:A-B    the loss is NaN in data steps A to B (counted from 0)
none       nothing
WEIGHTS as 2,1 gives rank r the r-th number as its host's weight.
"""

import os
import sys

import torch

from alphazero.cli.main import main
from alphazero.games.batch import MicroBatch
from alphazero.network.model.loss import LossTerms
from alphazero.training.engine.engine import Engine
from alphazero.training.engine.training_module import TrainingModule

KIND, _, ARGUMENT = os.environ.get("DISTURBANCE", "none").partition(":")
IS_HERE = os.environ.get("RANK", "0") == os.environ.get("DISTURBED_RANK", "0")
ENGINE_ACCUMULATE = Engine.accumulate
MODULE_FORWARD = TrainingModule.forward


def accumulate(self: Engine, micro_batch: MicroBatch, count: int) -> LossTerms:
    """Note which data step the next forward pass belongs to."""
    TrainingModule.data_step = micro_batch.step
    return ENGINE_ACCUMULATE(self, micro_batch, count)


def forward(self: TrainingModule, batch: object) -> torch.Tensor:
    """The real forward pass, with the fault."""
    if KIND == "memory" and len(batch.wdl_B3) > int(ARGUMENT):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB (a test)")
    loss = MODULE_FORWARD(self, batch)
    if KIND == "nan":
        first, last = map(int, ARGUMENT.split("-"))
        if first <= self.data_step <= last:
            return loss * float("nan")
    return loss


if "WEIGHTS" in os.environ:
    os.environ["ALPHAZERO_HOST_WEIGHT"] = os.environ["WEIGHTS"].split(",")[int(os.environ["RANK"])]
if IS_HERE:
    Engine.accumulate = accumulate
    TrainingModule.forward = forward

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
