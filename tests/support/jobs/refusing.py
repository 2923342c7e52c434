"""Two ranks start training where rank 1 alone has too little memory; prints what each raises."""

from __future__ import annotations

import dataclasses
import json

from alphazero.base.errors import AlphaZeroError
from alphazero.settings.load import load_config
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import read_runtime
from alphazero.training.start.starting_network import require_memory
from tests.support.jobs.gloo_ranks import on_ranks

GIB = 1 << 30


def raised(rank: int) -> list[str]:
    """Kind and words of the error."""
    runtime = dataclasses.replace(read_runtime({}, "cpu"), world_size=2, rank=rank)
    try:
        require_memory(load_config("chess_cpu", {}), runtime, Exchange(), lambda own: 0 if own.rank else GIB)
    except AlphaZeroError as error:
        return [error.kind, str(error)]
    return []


if __name__ == "__main__":
    print(json.dumps(on_ranks(2, raised)))
