"""Checkpoints where hosts share no file system: who writes, which one all continue from, who sends it.

Local rank 0 of every host writes where the run directory is not shared; at start the hosts agree
on the newest complete one.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import AlphaZeroError, CheckpointError
from alphazero.base.files import sha256_of
from alphazero.base.log import Say
from alphazero.network.weights.checkpoint import Checkpoint, Tensors, TrainingState, load, read_state
from alphazero.run import checkpoint_files
from alphazero.run.checkpoint_files import MANIFEST
from alphazero.run.find import find_resumed
from alphazero.training.ranks.exchange import Exchange

TOKEN = ".alphazero-rank-"
STALE_TOKEN_S = 86400.0  # of a killed start: one under way has had its own for less than a day


def is_writer(directory: Path, local_rank: int, exchange: Exchange) -> bool:
    """True on the ranks that write to `directory`: the lowest of those that share it. Collective.

    Each local rank 0 leaves a token, named for this start alone; who sees one of a lower rank shares that
    one's directory. Raises CheckpointError on all ranks where one cannot write.
    """
    # The directory of a new run is not there yet, and nothing is made before all else is checked. Where
    # another start makes it at this moment, some ranks see it and some do not: what all have counts.
    ancestors = (directory, *directory.absolute().parents)
    nearest = next(number for number, path in enumerate(ancestors) if path.is_dir())
    ancestor = ancestors[min(max(exchange.numbers(nearest)), len(ancestors) - 1)]
    start = exchange.from_rank(0, secrets.token_hex(8))

    def token(rank: int) -> Path:
        return ancestor / f"{TOKEN}{start}-{rank}"

    def leave_token() -> None:
        if local_rank:
            return
        try:
            token(exchange.rank).touch(exist_ok=False)
        except OSError as error:
            raise CheckpointError(f"{ancestor}: cannot be written: {error.strerror}") from error

    try:
        exchange.on_each(leave_token)
        seen = [rank for rank in range(exchange.world_size) if token(rank).exists()]
        exchange.barrier()
    finally:
        if local_rank == 0:
            token(exchange.rank).unlink(missing_ok=True)
            for path in ancestor.glob(f"{TOKEN}*"):
                with suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > STALE_TOKEN_S:
                        path.unlink()
    return local_rank == 0 and min(seen) == exchange.rank


@dataclass(frozen=True)
class Offer:
    """A complete checkpoint that a writer found in its directory."""

    step: int
    digest: str  # sha256 of the manifest, which holds those of all files
    path: str


def load_shared(
    directory: Path, resume: str, writes: bool, exchange: Exchange, say: Say
) -> Checkpoint | None:
    """The checkpoint all ranks continue from, None for a new run. Collective.

    resume: "" (the newest, if any), or what run/find.py understands. The newest one over all hosts is read by
    the lowest rank that has it, and sent to the others. Raises CheckpointError on all ranks where one was
    requested, or was saved once, and none is complete. `say` gets a line about each one passed over.
    """
    offer, fault = None, None
    if writes:
        try:
            offer = _find(directory, resume, say)
            left = [*checkpoint_files.superseded_in(directory), *checkpoint_files.checkpoints_in(directory)]
            if offer is None and left:
                # A new run in its place would prune what is left of it.
                raise CheckpointError(
                    f"{directory}: no checkpoint can be read, of {', '.join(path.name for path in left)}; "
                    "expected a complete one, or --fresh-start"
                )
        except AlphaZeroError as error:
            fault = error
    records = exchange.gather(asdict(offer) if offer else None)
    offers = [record and Offer(**record) for record in records]
    chosen = max((entry for entry in offers if entry), key=lambda entry: entry.step, default=None)
    if chosen is None:
        exchange.raise_any(fault)
        if resume:
            raise CheckpointError(
                f"--resume {resume}: {directory} holds no complete checkpoint", found_by_all_ranks=True
            )
        return None
    if exchange.rank == 0:
        for rank, entry in enumerate(offers):
            if entry and entry.step == chosen.step and entry.digest != chosen.digest:
                say(f"rank {rank} has a different checkpoint of step {chosen.step}: passed over")
    source = offers.index(chosen)
    own = exchange.on_each(lambda: load(Path(chosen.path)) if exchange.rank == source else None)
    return _received(own, source, exchange)


def _find(directory: Path, resume: str, say: Say) -> Offer | None:
    path = find_resumed(directory, resume, say)
    if path is None:
        return None
    return Offer(read_state(path).step, sha256_of(path / MANIFEST), str(path))


def _received(own: Checkpoint | None, source: int, exchange: Exchange) -> Checkpoint:
    """The checkpoint of rank `source`, sent piece by piece. own: on that rank."""
    tensors: dict[str, Tensors | None] = {}
    record: dict[str, Any] = {}
    if own is not None:
        tensors = {name: getattr(own, name) for name in ("weights", "optimizer", "ema", "champion")}
        record = {
            "state": asdict(own.state),
            "tensors": [name for name, content in tensors.items() if content is not None],
            "has_lanes": own.lanes is not None,
        }
    record = exchange.from_rank(source, record)
    lanes = exchange.bytes_from(source, (own and own.lanes) or b"") if record["has_lanes"] else None
    received = {name: exchange.tensors_from(source, tensors.get(name) or {}) for name in record["tensors"]}
    return Checkpoint(TrainingState(**record["state"]), lanes=lanes, **received)
