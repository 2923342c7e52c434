"""The runs below a directory, each in a row: state, step, best figures. Reads only, and takes no lock.

Needs no torch. A damaged run is a row with its fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from alphazero.base.errors import AlphaZeroError, CheckpointError, ConfigError
from alphazero.base.text import reason
from alphazero.machine.lock import Holder, holder_of
from alphazero.run import checkpoint_files as files
from alphazero.run.directory import RunDirectory
from alphazero.run.rank import Heartbeat, Phase, read_heartbeats


class RunState(str, Enum):
    """Where a run stands."""

    RUNNING = "running"
    ENDED = "ended"  # all its steps are made
    STOPPED = "stopped"  # a signal ended it after a checkpoint
    CRASHED = "crashed"  # its ranks ended without a word
    DAMAGED = "damaged"


@dataclass(frozen=True)
class RunOverview:
    """One run. step: the last that its ranks reported; num_steps: of the whole run; -1 for none.

    holder: the process that writes to it now, None where none does. best: checkpoint and figure by metric.
    fault: "" but where it is damaged.
    """

    path: Path
    state: RunState
    network: str = ""
    step: int = -1
    num_steps: int = -1
    holder: Holder | None = None
    best: Mapping[str, tuple[Path, float]] = field(default_factory=dict)
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values; None where something is not known."""
        holder = self.holder
        return {
            "run": self.path.name,
            "path": str(self.path),
            "state": self.state.value,
            "process": holder and {"host": holder.host, "pid": holder.pid, "since": holder.since},
            "network": self.network or None,
            "step": self.step if self.step >= 0 else None,
            "num_steps": self.num_steps if self.num_steps >= 0 else None,
            "best": {
                name: {"value": value, "step": files.step_of(at)} for name, (at, value) in self.best.items()
            },
            "fault": self.fault or None,
        }


def list_runs(directory: Path) -> list[RunOverview]:
    """The runs in `directory` by name, or itself if it is one. Raises ConfigError if it cannot be read."""
    try:
        if is_run(directory):
            return [overview_of(directory)]
        paths = sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        raise ConfigError(
            f"{directory}: cannot be read: {error.strerror}; expected a directory of runs"
        ) from error
    return [overview_of(path) for path in paths if is_run(path)]


def is_run(path: Path) -> bool:
    """True for a directory with something that only a run has."""
    run = RunDirectory(path)
    try:
        return run.config.exists() or run.checkpoints.is_dir() or any(path.glob("started-*.json"))
    except OSError:  # not readable by this user
        return path.is_dir()


def overview_of(path: Path) -> RunOverview:
    """The state of the run at `path`."""
    run = RunDirectory(path)
    try:
        network = _network(run)
        beats = read_heartbeats(run.heartbeats)
        step, num_steps = _newest(run)
    except (AlphaZeroError, OSError) as error:
        return RunOverview(path, RunState.DAMAGED, fault=reason(error))
    holder = holder_of(path)
    reported = max((beat.step for beat in beats), default=-1)
    return RunOverview(
        path,
        _state(holder, beats, step, num_steps),
        network=network,
        step=max(step, reported),
        num_steps=num_steps,
        holder=holder,
        best=files.best_of(run.checkpoints),
    )


def _state(holder: Holder | None, beats: Iterable[Heartbeat], step: int, num_steps: int) -> RunState:
    if holder is not None:
        return RunState.RUNNING
    phases = {beat.phase for beat in beats}
    if phases - {Phase.END}:
        return RunState.CRASHED
    if 0 <= num_steps <= step:
        return RunState.ENDED
    return RunState.STOPPED if phases or step >= 0 else RunState.CRASHED


def _network(run: RunDirectory) -> str:
    """Game and size, as 'chess 20x256'. Raises CheckpointError where the settings cannot be read."""
    if not run.config.exists():
        return ""
    network = files.read_json(run.config).get("network")
    if not isinstance(network, dict) or not {"game", "blocks", "filters"} <= network.keys():
        raise ConfigError(f"{run.config}: no settings of a network; expected those that a run writes")
    return f"{network['game']} {network['blocks']}x{network['filters']}"[:80]


def network_text(network: Mapping[str, Any]) -> str:
    """Its shape by the settings `network`, as '6x64, squeeze-excitation 1/8'; '' where they do not say."""
    if not {"blocks", "filters"} <= network.keys():
        return ""
    text = f"{network['blocks']}x{network['filters']}"
    if network.get("body") == "attention":
        return f"{text}, attention body with {network.get('heads')} heads"
    if network.get("se_ratio"):
        text += f", squeeze-excitation 1/{network['se_ratio']}"
    return text + (", attention policy head" if network.get("policy_head") == "attention" else "")


def _newest(run: RunDirectory) -> tuple[int, int]:
    """Step of the newest complete checkpoint and steps of its run; (-1, -1) where none was saved.

    Raises CheckpointError where there are some and all of them are damaged.
    """
    faults: list[str] = []
    checkpoint = files.find_newest(run.checkpoints, faults.append, hash_files=False)
    if checkpoint is None and faults:
        raise CheckpointError(f"no checkpoint can be read: {faults[0]}")
    if checkpoint is None:
        return -1, -1
    num_steps = files.read_json(checkpoint / files.STATE).get("num_steps")
    return files.step_of(checkpoint), num_steps if type(num_steps) is int else -1
