"""Checkpoints where hosts share no file system: who writes, which one all go on from, who sends it.

DESIGN: local rank 0 of every host writes where the run directory is not shared; at start the hosts agree
on the newest complete one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from alphazero.errors import AlphaZeroError, CheckpointError
from alphazero.files import sha256_of
from alphazero.training.checkpoint import files as checkpoint_files
from alphazero.training.checkpoint.checkpoint import Checkpoint, load, read_state
from alphazero.training.checkpoint.files import MANIFEST
from alphazero.training.exchange import Exchange

Say = Callable[[str], None]


def is_writer(directory: Path, local_rank: int, exchange: Exchange) -> bool:
    """True on the ranks that write to `directory`: the lowest of those that share it. Collective.

    Each local rank 0 leaves a token; who sees one of a lower rank shares that one's directory.
    Raises CheckpointError on all ranks where one cannot write.
    """
    # The directory of a new run is not there yet, and nothing is made before all else is checked.
    place = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    token = place / f".alphazero-rank-{exchange.rank}"
    fault = ""
    if local_rank == 0:
        try:
            token.touch()
        except OSError as error:
            fault = f"{place}: cannot be written: {error.strerror}"
    raise_shared(exchange.gather(fault))
    seen = [rank for rank in range(exchange.world_size) if (place / f".alphazero-rank-{rank}").exists()]
    exchange.barrier()
    if local_rank == 0:
        token.unlink(missing_ok=True)
    return local_rank == 0 and min(seen) == exchange.rank


@dataclass(frozen=True)
class Offer:
    """A complete checkpoint that a writer found in its directory."""

    step: int
    seed: int
    digest: str  # sha256 of the manifest, which holds those of all files
    path: Path


def load_shared(
    directory: Path, resume: str, writes: bool, exchange: Exchange, say: Say
) -> Checkpoint | None:
    """The checkpoint all ranks go on from, None for a new run. Collective.

    resume: "" (the newest, if any), "latest", "best-<metric>" or a path. The newest one over all hosts is
    read where it is, and sent from the lowest rank that has it where it is not. Raises CheckpointError on
    all ranks where one was asked for and none is complete. `say` gets a line about each one passed over.
    """
    offer, fault = None, ""
    if writes:
        try:
            offer = _find(directory, resume, say)
        except AlphaZeroError as error:
            fault = str(error)
    offers = exchange.gather(offer)
    chosen = max((entry for entry in offers if entry), key=lambda entry: entry.step, default=None)
    if chosen is None:
        raise_shared(exchange.gather(fault))
        if resume:
            raise_shared([f"--resume {resume}: {directory} holds no complete checkpoint"])
        return None
    if exchange.rank == 0:
        for rank, entry in enumerate(offers):
            if entry and entry.step == chosen.step and entry.digest != chosen.digest:
                say(f"rank {rank} has another checkpoint of step {chosen.step}: passed over")
    return _read_or_receive(chosen, offers.index(chosen), exchange)


def _find(directory: Path, resume: str, say: Say) -> Offer | None:
    if resume.startswith("best-") and not Path(resume).exists():
        path: Path | None = checkpoint_files.find_best(directory, resume.removeprefix("best-"))
    elif resume and resume != "latest":
        path = Path(resume)
        checkpoint_files.verify(path)
    else:
        path = checkpoint_files.find_newest(directory, say)
    if path is None:
        return None
    state = read_state(path)
    return Offer(state.step, state.seed, sha256_of(path / MANIFEST), path)


def _read_or_receive(chosen: Offer, source: int, exchange: Exchange) -> Checkpoint:
    """The chosen checkpoint from this rank's disk, or from rank `source`."""
    manifest = chosen.path / MANIFEST
    checkpoint, fault = None, ""
    if manifest.is_file() and sha256_of(manifest) == chosen.digest:
        try:
            checkpoint = load(chosen.path)
        except CheckpointError as error:
            # Damaged here, as `_find` said: it comes from the rank that found it whole.
            fault = str(error) if exchange.rank == source else ""
    raise_shared(exchange.gather(fault))
    has_it = [bool(number) for number in exchange.numbers(int(checkpoint is not None))]
    if checkpoint and all(has_it):
        return checkpoint
    own = checkpoint or Checkpoint(None, {}, {})  # type: ignore[arg-type]
    has = (own.ema is not None, own.champion is not None)
    state, has_ema, has_champion = exchange.from_rank(source, (own.state, *has))
    received = Checkpoint(
        state,
        exchange.tensors_from(source, own.weights),
        exchange.tensors_from(source, own.optimizer),
        exchange.tensors_from(source, own.ema or {}) if has_ema else None,
        exchange.from_rank(source, own.lanes),
        exchange.tensors_from(source, own.champion or {}) if has_champion else None,
    )
    return checkpoint or received


def raise_shared(faults: list[str]) -> None:
    """Raise the first of all ranks' faults on all ranks alike."""
    if found := [fault for fault in faults if fault]:
        error = CheckpointError(found[0])
        error.found_by_all_ranks = True
        raise error
