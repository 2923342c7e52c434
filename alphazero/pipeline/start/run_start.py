"""How a run takes its directory: which one it is, what it goes on from, what is written first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from alphazero.config import RunConfig
from alphazero.errors import CheckpointError
from alphazero.files import complete_lines
from alphazero.host.lock import ORPHAN_WAIT_S
from alphazero.run.run_directory import Claim, RunDirectory, choose_run_directory, claim, create
from alphazero.training.checkpoint import files as checkpoint_files
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.checkpoint.sharing import is_writer, load_shared
from alphazero.training.exchange import Exchange, Json
from alphazero.training.loop.job import Job

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the command line asked for beside the settings.

    resume: as `--resume` has it (training/checkpoint/resume.py). is_restart: a supervisor starts again, and
    what is left of the start before may still be ending. check: refuse where nodes differ, instead of a
    warning. command: what the user typed, as far as it is known. is_launched: by our launcher, which tells
    people how to go on.
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

    def of_this_start(self) -> dict[str, object]:
        """What all ranks must have been asked alike."""
        return {
            "resume": self.resume,
            "fresh_start": self.fresh_start,
            "accept_new_data": self.accept_new_data,
        }


@dataclass(frozen=True)
class RunStart:
    """The directory of a run, whether this rank writes there, and the checkpoint to go on from.

    A context manager: within it a rank that writes is the run's one writer.
    """

    run: RunDirectory
    claim: Claim | None
    resumed: Checkpoint | None

    @property
    def writes(self) -> bool:
        """True on the one rank of those sharing the directory that writes there."""
        return self.claim is not None

    @property
    def step(self) -> int:
        """Completed steps."""
        return self.resumed.state.step if self.resumed else 0

    def __enter__(self) -> RunStart:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.claim:
            self.claim.end()


def find_run(
    config: RunConfig, preset: str, request: Request, local_rank: int, exchange: Exchange, alarm: Say
) -> RunStart:
    """Where the run lives and where it stands, with its writers' locks taken. Collective.

    preset: names a run that has no name. alarm: gets a line about each checkpoint passed over. Raises
    BusyError where another process writes to the run, CheckpointError where it cannot go on.
    """

    def choose() -> str:
        fresh = request.fresh_start
        return str(choose_run_directory(config, preset, fresh_start=fresh, reserve=fresh).path)

    run = RunDirectory(Path(exchange.on_main(choose)))
    writes = is_writer(run.checkpoints, local_rank, exchange)
    claims: list[Claim] = []

    def take() -> None:
        if writes:
            claims.append(claim(run, alarm, ORPHAN_WAIT_S if request.is_restart else 0.0))

    try:
        exchange.on_each(take)
        resumed = load_shared(run.checkpoints, request.resume, writes, exchange, alarm)
        if resumed is None:
            exchange.on_each(lambda: _require_never_saved(run) if writes else None)
    except BaseException:
        for one in claims:
            one.end()
        raise
    return RunStart(run, claims[0] if claims else None, resumed)


def _require_never_saved(run: RunDirectory) -> None:
    """Raise CheckpointError where steps were made and the directory of checkpoints is gone.

    It is there from before the first step on: a run killed before its first checkpoint has an empty one.
    """
    if run.checkpoints.exists() or not any('"kind": "step"' in line for line in complete_lines(run.metrics)):
        return
    raise CheckpointError(
        f"{run.checkpoints}: is gone, and {run.metrics.name} knows of steps; expected the checkpoints (a "
        "file system that is not mounted?), or --fresh-start"
    )


def make_directory(
    start: RunStart,
    job: Job,
    argv: Sequence[str],
    exchange: Exchange,
    alarm: Say,
    init_weights: Mapping[str, Json] | None = None,
) -> None:
    """Make the run directory where this rank writes; newer checkpoints than the one resumed step aside.

    Collective; raises AlphaZeroError on all ranks where one cannot write. init_weights: what a run begins
    with, written down with its checksum.
    """

    def make() -> None:
        if not start.writes:
            return
        create(start.run, job.config, list(argv), init_weights, start.step)
        checkpoint_files.settle(start.run.checkpoints, job.config.training.keep_checkpoints)
        if start.resumed:
            for path in checkpoint_files.set_aside_after(start.run.checkpoints, start.step):
                alarm(f"set aside: {path}: this run goes on from step {start.step}")

    exchange.on_each(make)
