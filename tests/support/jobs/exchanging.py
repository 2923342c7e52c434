"""Ranks that talk through Exchange over gloo, without pickle; run as a program, it prints what each one got.

A scenario is a function of the exchange; every rank runs it, in a process of its own. Its JSON result, or the
AlphaZeroError that it raised, is what is reported.
"""

import hashlib
import json
import pickle
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from alphazero.base.errors import AlphaZeroError, CheckpointError, ConfigError, DivergedRanksError
from alphazero.network.weights.checkpoint import Checkpoint, Tensors, TrainingState, save
from alphazero.training.ranks import exchange as module
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.start.sharing import load_shared
from tests.support.jobs.gloo_ranks import on_ranks

WORLD_SIZE = 3
PLAIN = {"text": "caf\u00e9 \udce9", "third": 1 / 3, "none": None, "nested": {"list": [1, True, []]}}


def digests(tensors: Mapping[str, torch.Tensor]) -> dict[str, list[object]]:
    """Type, shape and bytes of each tensor, as JSON."""
    return {
        name: [
            str(tensor.dtype),
            list(tensor.shape),
            hashlib.sha256(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
            if tensor.numel()
            else "",
        ]
        for name, tensor in tensors.items()
    }


def some_tensors() -> Tensors:
    """Of every kind that may cross between ranks, and one of 40 MB."""
    return {
        "large": torch.arange(10_000_000, dtype=torch.float32),
        "half": torch.arange(5).to(torch.bfloat16),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "none": torch.empty(0, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
    }


def checkpoint_tensors() -> Tensors:
    """Those of the kinds that a checkpoint holds."""
    kinds = (torch.float32, torch.int64)
    return {name: tensor for name, tensor in some_tensors().items() if tensor.dtype in kinds}


def records(exchange: Exchange) -> object:
    """Every rank's record, that of rank 0, that of rank 2."""
    own = {**PLAIN, "rank": exchange.rank}
    return [exchange.gather(own), exchange.from_rank(0, own), exchange.from_rank(2, own)]


def contents(exchange: Exchange) -> object:
    """Bytes of unlike lengths, none at all, and 5 MB from one rank."""
    unlike = exchange.gather_bytes(bytes([exchange.rank]) * exchange.rank)
    empty = exchange.gather_bytes(b"")
    large = exchange.bytes_from(1, b"arrow" * 1_000_000 if exchange.rank == 1 else b"")
    return [[list(part) for part in unlike], [list(part) for part in empty], len(large), large[-5:].decode()]


def tensors(exchange: Exchange) -> object:
    """Tensors that rank 1 alone has."""
    return digests(exchange.tensors_from(1, some_tensors() if exchange.rank == 1 else {}))


def main_acts(exchange: Exchange) -> object:
    """Rank 0 alone acts."""
    acted: list[int] = []

    def act() -> str:
        acted.append(exchange.rank)
        return "found"

    return [exchange.on_main(act), acted]


def failing(exchange: Exchange, faults: Mapping[int, AlphaZeroError]) -> Callable[[], int]:
    """What each rank does: fail, or give its number."""

    def act() -> int:
        if exchange.rank in faults:
            raise faults[exchange.rank]
        return exchange.rank

    return act


def unequal(exchange: Exchange) -> object:
    """Rank 1 holds another weight."""
    weight = torch.ones(3) + (exchange.rank == 1)
    return exchange.require_equal([("same", torch.zeros(2)), ("weight", weight)], "start")


def announce(exchange: Exchange, length: int) -> object:
    """Rank 1 announces a message of another length than it has."""
    if exchange.rank == 1:
        exchange._gather = lambda header: Exchange._gather(exchange, torch.full_like(header, length))
    return exchange.gather("hello")


def damaged_record(exchange: Exchange) -> object:
    """Bytes that are no JSON, announced as such."""
    return [module._decoded(part) for part in exchange.gather_bytes(b"{")]


def checkpoint_of_one_host(exchange: Exchange) -> object:
    """Rank 1's disk has the checkpoint, those of the others do not."""
    state = TrainingState(5, 9, 0, 64, 16, "window", 2, {"network": {"blocks": 2}}, loss_scale={"scale": 0.1})
    with tempfile.TemporaryDirectory() as own:
        if exchange.rank == 1:
            few = {"a": torch.arange(3.0)}
            save(Path(own), Checkpoint(state, checkpoint_tensors(), few, few, b"lanes", {"b": torch.ones(2)}))
        got = load_shared(Path(own), "", True, exchange, print)
    assert got is not None and got.state == state
    assert got.ema is not None and got.champion is not None and got.lanes is not None
    parts = (got.weights, got.optimizer, got.ema, got.champion)
    return [[digests(part) for part in parts], got.lanes.decode()]


SCENARIOS: dict[str, Callable[[Exchange], object]] = {
    "records": records,
    "contents": contents,
    "tensors": tensors,
    "main_acts": main_acts,
    "main_fails": lambda them: them.on_main(failing(them, {0: ConfigError("no such run")})),
    "nobody_fails": lambda them: them.on_each(failing(them, {})),
    "last_fails": lambda them: them.on_each(failing(them, {2: CheckpointError("disk full")})),
    "two_fail": lambda them: them.on_each(
        failing(them, {0: ConfigError("first"), 2: CheckpointError("second")})
    ),
    # The fault names another rank than the one that found it.
    "fault_with_ranks": lambda them: them.raise_any(
        DivergedRanksError("unlike", ranks=[2]) if them.rank == 1 else None
    ),
    "unequal": unequal,
    "negative_length": lambda them: announce(them, -1),
    "absurd_length": lambda them: announce(them, 1 << 62),  # it would take all memory
    "damaged_record": damaged_record,
    "checkpoint_of_one_host": checkpoint_of_one_host,
}


def refuse(*arguments: object, **named: object) -> NoReturn:
    """Stands where something would be pickled."""
    raise AssertionError("a rank pickles")


def be_rank(name: str) -> dict[str, Any]:
    """Run the scenario as one rank."""
    for function in vars(dist):
        if "object" in function:
            setattr(dist, function, refuse)
    pickle.dumps = pickle.loads = pickle.Pickler = pickle.Unpickler = refuse  # type: ignore[misc,assignment]
    try:
        return {"got": SCENARIOS[name](Exchange())}
    except AlphaZeroError as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "ranks": list(error.ranks),
            "found_by_all_ranks": error.found_by_all_ranks,
        }


if __name__ == "__main__":
    print(
        json.dumps({name: on_ranks(WORLD_SIZE, lambda rank, name=name: be_rank(name)) for name in SCENARIOS})
    )
