"""Two ranks that average gradients over gloo in several ways; as a program it prints the means of rank 0."""

import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from alphazero.training.engine.gradients import FlatGradients, Reduction
from tests.support.jobs.forked_ranks import fork_ranks

WORLD_SIZE = 2
REDUCTIONS = {
    "plain": Reduction(),
    "prescaled": Reduction(prescale=True),
    "divided": Reduction(predivide=8.0),
    "bf16": Reduction(dtype=torch.bfloat16),
    "bf16 prescaled": Reduction(dtype=torch.bfloat16, prescale=True),
}


def gradient_of(rank: int) -> torch.Tensor:
    """A rank's own."""
    return torch.randn(257, generator=torch.Generator().manual_seed(rank))


def mean_by(reduction: Reduction) -> torch.Tensor:
    """The mean over ranks as this rank has it. Collective."""
    parameter = torch.nn.Parameter(torch.zeros(257))
    parameter.grad = gradient_of(dist.get_rank())
    flat = FlatGradients([parameter], 0, reduction)
    flat.add_gradients()
    flat.close(1.0, torch.zeros(()))
    flat.average()
    flat.clip(0.0)
    return parameter.grad


def be_rank(rank: int, directory: Path) -> None:
    """Average in every way and, as rank 0, leave the means in the directory."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=WORLD_SIZE)
    means = {name: mean_by(reduction).tolist() for name, reduction in REDUCTIONS.items()}
    if rank == 0:
        (directory / "means").write_text(json.dumps(means))
    dist.barrier()


def main() -> None:
    """Fork the ranks and print what rank 0 has."""
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        statuses = fork_ranks(WORLD_SIZE, lambda rank: be_rank(rank, directory))
        sys.stdout.write((directory / "means").read_text() if statuses == [0, 0] else f"{statuses}")


if __name__ == "__main__":
    main()
