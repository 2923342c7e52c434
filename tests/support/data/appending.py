"""Rows of made-up generations; run as a program, it grows a store of them without end (to be killed)."""

import functools
import hashlib
import itertools
import random
import sys
from pathlib import Path

import pyarrow as pa

import alphazero._core as _core
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.writer import encode_shard
from tests.support.data.stores import batch, row, searched


@functools.cache
def generation(number: int) -> pa.RecordBatch:
    """Random games of tic-tac-toe, the same for the same number."""
    rng = random.Random(number)
    rows = []
    for _ in range(rng.randrange(1, 30)):
        line = _core.TicTacToeLine()
        moves: list[int] = []
        while not line.outcome().over:
            moves.append(rng.choice(line.legal()))
            line.push(moves[-1])
        result = line.outcome().value * (1 if line.first_player_to_move else -1)
        values = [rng.uniform(-1, 1) for _ in moves]
        rows.append(
            searched(
                row("tictactoe", moves, result, event=f"generation {number}"),
                [rng.randrange(2) for _ in moves],
                [[(move, 65535)] for move in moves],
                values,
                [1 - abs(value) for value in values],
            )
        )
    return batch(rows)


@functools.cache
def digest_of(number: int) -> str:
    """sha256 of a generation's shard."""
    return hashlib.sha256(encode_shard([generation(number)])).hexdigest()


def main() -> None:
    """Append the generations in turn; after every fifth go back by three. A line for what is on disk."""
    store = GrowingStore(Path(sys.argv[1]), "tictactoe")
    for turn in itertools.count(1):
        store.append(generation(len(store.shards)))
        print("holds", len(store.shards), flush=True)
        if turn % 5 == 0:
            store.truncate_to(len(store.shards) - 3)
            print("holds", len(store.shards), flush=True)


if __name__ == "__main__":
    main()
