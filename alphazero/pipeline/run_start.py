"""How a run takes its directory: which one it is, what it goes on from, what is written first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alphazero.config import RunConfig
from alphazero.run.run_directory import RunDirectory, choose_run_directory, create
from alphazero.training.checkpoint import files as checkpoint_files
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.checkpoint.sharing import is_writer, load_shared
from alphazero.training.exchange import Exchange
from alphazero.training.loop.job import Job

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the command line asked for beside the settings.

    resume: "", "latest", "best-<metric>" or a checkpoint's path.
    """

    argv: Sequence[str]
    resume: str = ""
    fresh_start: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStart:
    """The directory of a run, whether this rank writes there, and the checkpoint to go on from."""

    run: RunDirectory
    writes: bool
    resumed: Checkpoint | None

    @property
    def step(self) -> int:
        """Completed steps."""
        return self.resumed.state.step if self.resumed else 0


def find_run(
    config: RunConfig, preset: str, request: Request, local_rank: int, exchange: Exchange, alarm: Say
) -> RunStart:
    """Where the run lives and where it stands; nothing is made yet. Collective.

    preset: names a run that has no name. alarm: gets a line about each checkpoint passed over.
    """

    def choose() -> str:
        return str(choose_run_directory(config, preset, fresh_start=request.fresh_start).path)

    run = RunDirectory(Path(exchange.on_main(choose)))
    writes = is_writer(run.checkpoints, local_rank, exchange)
    return RunStart(run, writes, load_shared(run.checkpoints, request.resume, writes, exchange, alarm))


def make_directory(start: RunStart, job: Job, argv: Sequence[str], exchange: Exchange, alarm: Say) -> None:
    """Make the run directory where this rank writes; newer checkpoints than the one resumed step aside.

    Collective; raises AlphaZeroError on all ranks where one cannot write.
    """

    def make() -> None:
        if not start.writes:
            return
        create(start.run, job.config, list(argv))
        checkpoint_files.settle(start.run.checkpoints, job.config.training.keep_checkpoints)
        if start.resumed:
            for path in checkpoint_files.set_aside_after(start.run.checkpoints, start.step):
                alarm(f"set aside: {path}: this run goes on from step {start.step}")

    exchange.on_each(make)
