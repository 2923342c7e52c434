"""train_distributed.py with something wrong on purpose: DISTURBANCE names it, DISTURBED_RANK (all) where.

memory:N     the device's memory holds micro-batches of N positions at most
backward:N   the same, and it runs out at the end of the backward pass
spare:N      torch's allocator gets N MiB beyond what is in use when step 3 begins, on a GPU
nan:A-B      the loss is NaN in data steps A to B (counted from 0)
flip:N       one bit of one weight is flipped after the update of step N
leak:WHAT    every step keeps 4 KiB of memory; or each 100 steps keep one of files or threads
shift        every global batch begins one sample late
none         nothing
WEIGHTS as 2,1 gives rank r the r-th number as its host's weight. TOLD_LATE=1 has steps judged on the device,
and the host told later, as on a GPU. SHORTEST_INTERVAL_S: how long alarms put log intervals together.
MEMORY_LEFT: share of the memory that seems to be available.
"""

import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import psutil
import torch

from alphazero.cli.main import entry_point
from alphazero.data.sampling import loader
from alphazero.games.batch import MicroBatch
from alphazero.machine.memory import read_memory
from alphazero.network.model.loss import LossTerms
from alphazero.show import observer
from alphazero.training.engine import engine, optimizer
from alphazero.training.engine.engine import Engine
from alphazero.training.engine.training_module import TrainingModule

KIND, _, ARGUMENT = os.environ.get("DISTURBANCE", "none").partition(":")
RANK = os.environ.get("RANK", "0")
FULL_FROM_STEP = 3
FLIPPED = "value.hidden.weight"
ACCUMULATE = Engine.accumulate
FORWARD = TrainingModule.forward
SAMPLE_IDS = loader.sample_ids
HOARD: list[object] = []


TrainingModule.data_step = -1  # until the first step: sizes are tried before it


def accumulate(self: Engine, micro_batch: MicroBatch, count: int) -> LossTerms:
    """Note which data step the next forward pass belongs to; fill the GPU, once."""
    TrainingModule.data_step = micro_batch.step
    if KIND == "spare" and micro_batch.step == FULL_FROM_STEP and not HOARD:
        HOARD.append("full")
        torch.cuda.empty_cache()
        allowed = torch.cuda.memory_allocated() + (int(ARGUMENT) << 20)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(allowed / total)
    return ACCUMULATE(self, micro_batch, count)


def forward(self: TrainingModule, batch: object) -> torch.Tensor:
    """The real forward pass, with the fault."""
    is_too_much = KIND in ("memory", "backward") and len(batch.wdl_B3) > int(ARGUMENT)
    if is_too_much and KIND == "memory":
        run_out_of_memory()
    loss = FORWARD(self, batch)
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


def disturb_updates() -> None:
    """After the updates of DeepSpeed's engine flip the bit, or leak."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    update = DeepSpeedEngine.step

    def step(self: DeepSpeedEngine, *arguments: object, **named: object) -> None:
        before = self.global_steps
        update(self, *arguments, **named)
        if KIND == "flip" and before < self.global_steps == int(ARGUMENT):
            # The lowest of 32, in the copy that the forward pass reads: above ZeRO 0 the next update would
            # overwrite it with the master copy.
            (weight,) = (value for name, value in self.module.named_parameters() if name.endswith(FLIPPED))
            weight.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1)
        elif KIND == "leak":
            leak(self.global_steps)

    DeepSpeedEngine.step = step


def leak(step: int) -> None:
    """What ARGUMENT says."""
    if ARGUMENT == "memory":
        HOARD.append(os.urandom(4096))
    elif step % 100 == 0 and ARGUMENT == "files":
        HOARD.append(Path(os.devnull).open())  # noqa: SIM115 - left open on purpose
    elif step % 100 == 0:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


def shifted(seed: int, step: int, batch_size: int, num_samples: int):
    """Batch `step` begins one sample late."""
    pair = [SAMPLE_IDS(seed, number, batch_size, num_samples) for number in (step, step + 1)]
    return loader.np.concatenate(pair)[1 : batch_size + 1]


if "SHORTEST_INTERVAL_S" in os.environ:
    observer.SHORTEST_INTERVAL_S = float(os.environ["SHORTEST_INTERVAL_S"])
if "MEMORY_LEFT" in os.environ:
    LEFT = int(float(os.environ["MEMORY_LEFT"]) * read_memory().total_bytes)
    MEMORY = psutil.virtual_memory()._replace(available=LEFT)
    psutil.virtual_memory = lambda: MEMORY
if os.environ.get("TOLD_LATE"):
    engine.is_told_late = lambda device: True
    optimizer.runs_fused = lambda network: True
if "WEIGHTS" in os.environ:
    os.environ["ALPHAZERO_HOST_WEIGHT"] = os.environ["WEIGHTS"].split(",")[int(RANK)]
if os.environ.get("DISTURBED_RANK", RANK) == RANK:
    Engine.accumulate = accumulate
    TrainingModule.forward = forward
    if KIND in ("flip", "leak"):
        disturb_updates()
    if KIND == "shift":
        loader.sample_ids = shifted

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
