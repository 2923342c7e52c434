"""Ranks that talk through Exchange over gloo, without pickle; run as a program, it prints what each one got.

A scenario is a function of the exchange and a directory; every rank runs it, in a process of its own. Its
JSON result, or the AlphaZeroError that it raised, is what is reported.
"""

import hashlib
import json
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from alphazero.base.errors import AlphaZeroError, CheckpointError, ConfigError, DivergedRanksError
from alphazero.network.weights.checkpoint import Checkpoint, Tensors, TrainingState, save
from alphazero.training.ranks import exchange as module
from alphazero.training.ranks.exchange import Exchange, Form
from alphazero.training.start.sharing import load_shared
from tests.support.jobs.forked_ranks import fork_ranks

WORLD_SIZE = 3
PLAIN = {"text": "caf\u00e9 \udce9", "third": 1 / 3, "none": None, "nested": {"list": [1, True, []]}}
Scenario = Callable[[Exchange, Path], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Have it run under its name."""
    SCENARIOS[function.__name__] = function
    return function


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


@scenario
def records(exchange: Exchange, directory: Path) -> object:
    """Every rank's record, that of rank 0, that of rank 2."""
    own = {**PLAIN, "rank": exchange.rank}
    return [exchange.gather(own), exchange.from_main(own), exchange.from_rank(2, own)]


@scenario
def contents(exchange: Exchange, directory: Path) -> object:
    """Bytes of unlike lengths, none at all, and 5 MB from one rank."""
    unlike = exchange.gather_bytes(bytes([exchange.rank]) * exchange.rank)
    empty = exchange.gather_bytes(b"")
    large = exchange.bytes_from(1, b"arrow" * 1_000_000 if exchange.rank == 1 else b"")
    return [[list(part) for part in unlike], [list(part) for part in empty], len(large), large[-5:].decode()]


@scenario
def tensors(exchange: Exchange, directory: Path) -> object:
    """Tensors that rank 1 alone has."""
    return digests(exchange.tensors_from(1, some_tensors() if exchange.rank == 1 else {}))


@scenario
def main_acts(exchange: Exchange, directory: Path) -> object:
    """Rank 0 alone acts."""
    acted: list[int] = []

    def act() -> str:
        acted.append(exchange.rank)
        return "found"

    return [exchange.on_main(act), acted]


def fail_on(exchange: Exchange, faults: Mapping[int, AlphaZeroError]) -> int:
    """What each rank does: fail, or give its number."""
    if exchange.rank in faults:
        raise faults[exchange.rank]
    return exchange.rank


@scenario
def nobody_fails(exchange: Exchange, directory: Path) -> object:
    """All do well."""
    return exchange.on_each(lambda: fail_on(exchange, {}))


@scenario
def main_fails(exchange: Exchange, directory: Path) -> object:
    """Rank 0 acts and fails."""
    return exchange.on_main(lambda: fail_on(exchange, {0: ConfigError("no such run")}))


@scenario
def last_fails(exchange: Exchange, directory: Path) -> object:
    """One rank that is not rank 0 fails."""
    return exchange.on_each(lambda: fail_on(exchange, {2: CheckpointError("disk full")}))


@scenario
def two_fail(exchange: Exchange, directory: Path) -> object:
    """The lowest rank's fault is told."""
    faults = {0: ConfigError("first"), 2: CheckpointError("second")}
    return exchange.on_each(lambda: fail_on(exchange, faults))


@scenario
def fault_with_ranks(exchange: Exchange, directory: Path) -> object:
    """A fault that names other ranks than the one that found it."""
    exchange.raise_any(DivergedRanksError("unlike", ranks=[2]) if exchange.rank == 1 else None)
    return None


@scenario
def unequal(exchange: Exchange, directory: Path) -> object:
    """Rank 1 holds another weight."""
    weight = torch.ones(3) + (exchange.rank == 1)
    return exchange.require_equal([("same", torch.zeros(2)), ("weight", weight)], "start")


@scenario
def unlike_forms(exchange: Exchange, directory: Path) -> object:
    """Rank 0 tells a record while the others tell bytes."""
    return exchange.gather(1) if exchange.rank == 0 else exchange.gather_bytes(b"1")


def announcing(length: int) -> Callable[[Exchange], object]:
    """Rank 1 announces a message of another length than it has."""

    def tell(exchange: Exchange) -> object:
        if exchange.rank == 1:
            module._header = lambda form, content: torch.tensor([form, length])
        return exchange.gather("hello")

    return tell


@scenario
def negative_length(exchange: Exchange, directory: Path) -> object:
    """A length below 0."""
    return announcing(-1)(exchange)


@scenario
def absurd_length(exchange: Exchange, directory: Path) -> object:
    """A length that would take all memory."""
    return announcing(1 << 62)(exchange)


@scenario
def damaged_record(exchange: Exchange, directory: Path) -> object:
    """Bytes that are no JSON, announced as such."""
    return [module._decoded(part) for part in exchange._gather_messages(Form.JSON, b"{")]


@scenario
def checkpoint_of_one_host(exchange: Exchange, directory: Path) -> object:
    """Rank 1's disk has the checkpoint, those of the others do not."""
    own = directory / str(exchange.rank)
    own.mkdir()
    state = TrainingState(5, 9, 0, 64, 16, "window", 2, {"network": {"blocks": 2}}, loss_scale={"scale": 0.1})
    if exchange.rank == 1:
        few = {"a": torch.arange(3.0)}
        save(own, Checkpoint(state, checkpoint_tensors(), few, few, b"lanes", {"b": torch.ones(2)}))
    got = load_shared(own, "", True, exchange, print)
    assert got is not None and got.state == state
    assert got.ema is not None and got.champion is not None and got.lanes is not None
    parts = (got.weights, got.optimizer, got.ema, got.champion)
    return [[digests(part) for part in parts], got.lanes.decode()]


def refuse(*arguments: object, **named: object) -> NoReturn:
    """Stands where something would be pickled."""
    raise AssertionError("a rank pickles")


def be_rank(rank: int, name: str, directory: Path) -> None:
    """Run the scenario as one rank and leave the result in the directory."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=WORLD_SIZE)
    for function in vars(dist):
        if "object" in function:
            setattr(dist, function, refuse)
    pickle.dumps = pickle.loads = pickle.Pickler = pickle.Unpickler = refuse  # type: ignore[misc,assignment]
    exchange = Exchange()
    try:
        result: object = {"got": SCENARIOS[name](exchange, directory)}
    except AlphaZeroError as error:
        result = {
            "error": type(error).__name__,
            "text": str(error),
            "ranks": list(error.ranks),
            "found_by_all_ranks": error.found_by_all_ranks,
        }
    (directory / f"result-{rank}").write_text(json.dumps(result))
    exchange.barrier()


def run_scenario(name: str) -> list[object]:
    """The result of every rank."""
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        statuses = fork_ranks(WORLD_SIZE, lambda rank: be_rank(rank, name, directory))
        assert statuses == [0] * WORLD_SIZE, (name, statuses)
        return [json.loads((directory / f"result-{rank}").read_text()) for rank in range(WORLD_SIZE)]


if __name__ == "__main__":
    print(json.dumps({name: run_scenario(name) for name in sys.argv[1:] or SCENARIOS}))
