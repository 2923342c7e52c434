"""Two ranks that average gradients over gloo in several ways; as a program it prints the means of rank 0."""

import json

import torch

from alphazero.training.engine.gradients import FlatGradients
from tests.support.jobs.gloo_ranks import on_ranks

WORLD_SIZE = 2
TYPES = {"plain": torch.float32, "bf16": torch.bfloat16}


def gradient_of(rank: int) -> torch.Tensor:
    """A rank's own."""
    return torch.randn(257, generator=torch.Generator().manual_seed(rank))


def means(rank: int) -> dict[str, list[float]]:
    """The mean over ranks by each type that travels, as this rank has it. Collective."""
    found = {}
    for name, sent_as in TYPES.items():
        parameter = torch.nn.Parameter(torch.zeros(257))
        parameter.grad = gradient_of(rank)
        flat = FlatGradients([parameter], 0, sent_as)
        flat.add_gradients()
        flat.close(1.0, torch.zeros(()))
        flat.average()
        flat.clip(0.0)
        found[name] = parameter.grad.tolist()
    return found


if __name__ == "__main__":
    print(json.dumps(on_ranks(WORLD_SIZE, means)[0]))
