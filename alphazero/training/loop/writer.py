"""Writes checkpoints in a thread beside training, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from alphazero.base.errors import AlphaZeroError, CheckpointError
from alphazero.network.weights.checkpoint import Checkpoint, Tensors, save
from alphazero.run import checkpoint_files


class CheckpointWriter:
    """The one writer of a directory of checkpoints.

    `submit` returns at once unless the checkpoint before is still being written. A fault of the disk is
    kept as `fault`, which training asks for at every step; a bug of ours is raised at the next call.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        publish: Callable[[Checkpoint, Sequence[str]], None],
        say: Callable[[str], None],
    ) -> None:
        """keep: newest checkpoints that stay beside the best ones.

        publish: writes weights for others to use; called without metrics before a checkpoint is written, and
        after it is marked best with the metrics in which it is.
        """
        self._directory = directory
        self._keep = keep
        self._publish = publish
        self._say = say
        self._thread: threading.Thread | None = None
        self._bug: BaseException | None = None
        self.fault: AlphaZeroError | None = None

    def submit(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint`, whose tensors belong to the writer from now on; they may be on a GPU."""
        self.wait()
        ready = _event_of(checkpoint)
        # A daemon: a rank that fails must not wait for its disk.
        self._thread = threading.Thread(
            target=self._write, args=(checkpoint, ready), name="checkpoint writer", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return when all is on disk, or has failed (see `fault`)."""
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._bug:
            raise self._bug

    def _write(self, checkpoint: Checkpoint, ready: torch.cuda.Event | None) -> None:
        try:
            self._save(_on_cpu(checkpoint, ready))
        except AlphaZeroError as error:
            self.fault = error
        except OSError as error:
            self.fault = CheckpointError(f"{self._directory}: {error}")
        except BaseException as error:  # our bug, for the training thread
            self._bug = error

    def _save(self, checkpoint: Checkpoint) -> None:
        # First: a run killed between the two finds its checkpoint and makes both again.
        self._publish(checkpoint, ())
        path = save(self._directory, checkpoint)
        marked = checkpoint_files.best_of(self._directory)
        best = tuple(metric for metric, (where, _) in marked.items() if where == path)
        if best:
            self._publish(checkpoint, best)
        checkpoint_files.prune(self._directory, self._keep)
        self._say(f"saved {path}" + (f" (best {', '.join(best)})" if best else ""))


def _event_of(checkpoint: Checkpoint) -> torch.cuda.Event | None:
    """Marks the moment on the GPU at which the tensors are complete; None on the CPU."""
    if not any(tensor.is_cuda for tensor in checkpoint.weights.values()):
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _on_cpu(checkpoint: Checkpoint, ready: torch.cuda.Event | None) -> Checkpoint:
    """The checkpoint on the CPU, copied on a separate stream while training continues."""
    if ready is None:
        return checkpoint
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        ready.wait()
        return replace(
            checkpoint,
            weights=_to_cpu(checkpoint.weights),
            optimizer=_to_cpu(checkpoint.optimizer),
            ema=None if checkpoint.ema is None else _to_cpu(checkpoint.ema),
            champion=None if checkpoint.champion is None else _to_cpu(checkpoint.champion),
        )


def _to_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.to("cpu") for name, tensor in tensors.items()}
