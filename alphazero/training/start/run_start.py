"""What a start is asked and finds: its run's directory, the checkpoint it resumes from, what it will train.

What is written first: the directory, and the weights files beside the checkpoints, the newest weights and the
best by each metric.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.errors import AlphaZeroError, CheckpointError
from alphazero.base.files import complete_lines
from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Window
from alphazero.machine.lock import ORPHAN_WAIT_S
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState
from alphazero.network.weights.open_network import read_weights, weights_of_checkpoint
from alphazero.network.weights.weights import Metadata, WeightsFile, weights_file_name, write_weights
from alphazero.run import checkpoint_files
from alphazero.run.checkpoint_files import step_of
from alphazero.run.directory import RunDirectory, choose_run_directory, claimed, create
from alphazero.settings.load import Config, to_table
from alphazero.show.console import Console
from alphazero.training.loop.job import Job
from alphazero.training.loop.start_clock import StartClock
from alphazero.training.loop.stop import StopRequest
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.start.sharing import is_writer, load_shared
from alphazero.training.start.starting_network import StartingNetwork


@dataclass(frozen=True)
class Request:
    """What the command line requests beside the settings.

    resume: as `--resume` has it (run/find.py). is_restart: a supervisor starts again, and
    what is left of the start before may still be ending. check: refuse where nodes differ, instead of a
    warning. command: what the user typed, as far as it is known. is_launched: by our launcher, which
    prints how to continue.
    """

    argv: Sequence[str]
    resume: str = ""
    fresh_start: bool = False
    accept_new_data: bool = False
    is_restart: bool = False
    check: bool = True
    command: tuple[str, ...] = ()
    is_launched: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankContext:
    """What a rank has before its run is opened."""

    runtime: Runtime
    exchange: Exchange
    console: Console
    stop: StopRequest
    start_clock: StartClock


@dataclass(frozen=True)
class RunStart:
    """The directory of a run, and the checkpoint to continue from.

    writes: True on the one rank of those sharing the directory that writes there.
    """

    run: RunDirectory
    writes: bool
    resumed: Checkpoint | None

    @property
    def saved(self) -> TrainingState | None:
        """Where the checkpoint stands."""
        return self.resumed.state if self.resumed else None

    @property
    def step(self) -> int:
        """How many steps the checkpoint has completed; 0 for a new run."""
        return self.resumed.state.step if self.resumed else 0

    def is_complete(self, job: Job) -> bool:
        """True where the checkpoint is of the last step."""
        return self.resumed is not None and self.step >= job.num_steps


@dataclass(frozen=True)
class Setup:
    """All that a start finds out before it writes anything, the same on every rank.

    starting: builds the network again after a rollback. curve: of the evaluations in given games.
    notices: lines for the banner.
    """

    job: Job
    start: RunStart
    starting: StartingNetwork
    network: AlphaZeroNet
    plan: BatchPlan
    window: Window | None
    held_out: Window | None
    curve: ValueCurve | None
    notices: tuple[str, ...]


@contextlib.contextmanager
def find_run(config: Config, request: Request, rank: RankContext) -> Iterator[RunStart]:
    """Where the run lives and where it stands; within the block its writers hold its locks. Collective.

    Raises BusyError where another process writes to the run, CheckpointError where it cannot continue.
    """
    exchange, alarm = rank.exchange, rank.console.alarm

    def choose() -> str:
        name, fresh = config.run.run_name or config.preset or "run", request.fresh_start
        return str(choose_run_directory(config.run.runs_dir, name, fresh_start=fresh, reserve=fresh).path)

    run = RunDirectory(Path(exchange.on_main(choose)))
    writes = is_writer(run.checkpoints, rank.runtime.local_rank, exchange)
    with contextlib.ExitStack() as claims:

        def take() -> None:
            if writes:
                claims.enter_context(claimed(run, alarm, ORPHAN_WAIT_S if request.is_restart else 0.0))

        exchange.on_each(take)
        resumed = load_shared(run.checkpoints, request.resume, writes, exchange, alarm)
        if resumed is None:
            exchange.on_each(lambda: _require_never_saved(run) if writes else None)
        yield RunStart(run, writes, resumed)


def _require_never_saved(run: RunDirectory) -> None:
    """Raise CheckpointError where steps were made and the directory of checkpoints is gone.

    It exists from before the first step: a run killed before its first checkpoint has an empty one.
    """
    if run.checkpoints.exists() or not any('"kind": "step"' in line for line in complete_lines(run.metrics)):
        return
    raise CheckpointError(
        f"{run.checkpoints}: is gone, and {run.metrics.name} knows of steps; expected the checkpoints (a "
        "file system that is not mounted?), or --fresh-start"
    )


def make_directory(setup: Setup, request: Request, rank: RankContext) -> None:
    """Make the run directory where this rank writes, with this start's settings and the checkpoint's weights.

    Newer checkpoints than the one resumed step aside; of a complete run only what a killed start left undone
    is finished. Collective; raises AlphaZeroError on all ranks where one cannot write.
    """
    start, job = setup.start, setup.job
    is_complete = start.is_complete(job)

    def make() -> None:
        if not start.writes:
            return
        keep = job.config.training.keep_checkpoints
        if is_complete:
            assert start.resumed is not None
            keep = max(keep, start.resumed.state.config["training"]["keep_checkpoints"])  # as many as it kept
        else:
            argv, source, git_diff = list(request.argv), setup.starting.source, job.config.run.git_diff
            create(start.run, to_table(job.config), argv, source, start.step, git_diff, request.command)
        checkpoint_files.settle(start.run.checkpoints, keep)
        if start.resumed and not is_complete:
            for path in checkpoint_files.set_aside_after(start.run.checkpoints, start.step):
                rank.console.alarm(f"set aside: {path}: this run continues from step {start.step}")

    rank.exchange.on_each(make)
    rank.exchange.on_each(lambda: _keep_weights(job, start))


def publish(job: Job, checkpoint: Checkpoint, metrics: Sequence[str] = ()) -> None:
    """Write the checkpoint's weights, averaged where it has averages, as the newest ones.

    metrics: instead as those that are the best by these so far.
    """
    metadata: Metadata = {
        "step": checkpoint.state.step,
        "run": job.run.path.name,
        "averaged": checkpoint.ema is not None,
    }
    weights = WeightsFile(job.config.network, checkpoint.ema or checkpoint.weights, metadata)
    best = [job.run.path / weights_file_name(job.config.network, metric) for metric in metrics]
    for path in best or [job.newest_weights]:
        write_weights(path, weights)


def _keep_weights(job: Job, start: RunStart) -> None:
    """On the ranks that write: make the files again that are gone or are not of the best checkpoints.

    A killed run may have left a best checkpoint without its file, and a run that continues from an earlier
    step has other best ones than before. Raises AlphaZeroError.
    """
    if not start.writes or not start.resumed:
        return
    if not job.newest_weights.exists():
        publish(job, start.resumed)
    marked = checkpoint_files.best_of(job.run.checkpoints)
    for metric in checkpoint_files.BEST_METRICS:
        file = job.run.path / weights_file_name(job.config.network, metric)
        if metric not in marked:
            file.unlink(missing_ok=True)
            continue
        best, _ = marked[metric]
        step: object = None
        with contextlib.suppress(AlphaZeroError):  # there is no such file, or a damaged one
            step = read_weights(file).metadata.get("step")
        if step != step_of(best):
            write_weights(file, weights_of_checkpoint(best))
