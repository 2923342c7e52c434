"""train_distributed.py with something wrong on purpose: DISTURBANCE names it, on rank DISTURBED_RANK.

memory:N     the device's memory holds micro-batches of N positions at most
backward:N   the same, and it runs out at the end of the backward pass
nan:A-B      the loss is NaN in data steps A to B (counted from 0)
none         nothing
WEIGHTS as 2,1 gives rank r the r-th number as its host's weight. TOLD_LATE=1 has steps judged on the device,
and the host told later, as on a GPU.
"""

import os
import sys
from typing import NoReturn

import torch

from alphazero.cli.main import entry_point
from alphazero.games.batch import MicroBatch
from alphazero.network.model.loss import LossTerms
from alphazero.training.engine import engine, optimizer
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
    is_too_much = KIND in ("memory", "backward") and len(batch.wdl_B3) > int(ARGUMENT)
    if is_too_much and KIND == "memory":
        run_out_of_memory()
    loss = MODULE_FORWARD(self, batch)
    if is_too_much:
        # The first layer's gradient is the last one made: those of all others are there by then.
        hook = self.network.input.conv.weight.register_hook(
            lambda gradient: (hook.remove(), run_out_of_memory())
        )
    if KIND == "nan":
        first, last = map(int, ARGUMENT.split("-"))
        if first <= self.data_step <= last:
            return loss * float("nan")
    return loss


def run_out_of_memory() -> NoReturn:
    """What torch does."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB (a test)")


if os.environ.get("TOLD_LATE"):
    engine.is_told_late = lambda device: True
    optimizer.runs_fused = lambda network: True
if "WEIGHTS" in os.environ:
    os.environ["ALPHAZERO_HOST_WEIGHT"] = os.environ["WEIGHTS"].split(",")[int(os.environ["RANK"])]
if IS_HERE:
    Engine.accumulate = accumulate
    TrainingModule.forward = forward

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
