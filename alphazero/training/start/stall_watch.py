"""Names the rank that holds up a job without a launcher of ours: torchrun typed by hand, srun, mpirun.

A node agent would end such a job. Here its ranks look at the heartbeats of their host themselves: a rank that
waits for another one in a collective runs its other threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from alphazero.cluster.agent.protocol import RankState
from alphazero.cluster.agent.rank_watch import RankWatch
from alphazero.cluster.launch.attempt import STOPPED, SUSPICION, Hang, find_hang
from alphazero.cluster.plan.launch_plan import Limits
from alphazero.run.directory import RunDirectory
from alphazero.run.rank import JOB_VARIABLE
from alphazero.training.ranks.runtime import Runtime

LIMITS = Limits(step_s=15.0)  # only words follow
LOOK_S = 1.0


class StallWatch:
    """Looks at the ranks of this host from a thread within the block, and reports through `say`.

    One rank reports: the first one of the host whose process is not stopped. It reports again when the
    silence has doubled.
    """

    def __init__(
        self,
        run: RunDirectory,
        runtime: Runtime,
        say: Callable[[str], None],
        limits: Limits = LIMITS,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        first = runtime.rank - runtime.local_rank
        self._watch = RankWatch(run.path, first, runtime.local_world_size, "")
        self._runtime = runtime
        self._say = say
        self._limits = limits
        self._over = threading.Event()
        self._is_needed = JOB_VARIABLE not in environment and runtime.world_size > 1
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)

    def __enter__(self) -> None:
        if self._is_needed:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._is_needed:
            self._thread.join()

    def _run(self) -> None:
        said_s = 0.0
        while not self._over.wait(LOOK_S):
            states = self._watch.look().ranks
            hang = find_hang(states, self._limits)
            if hang is None:
                said_s = 0.0
            elif hang.state.age_s > 2 * said_s and self._reports(states):
                said_s = hang.state.age_s
                self._say(self._line(hang, states))

    def _line(self, hang: Hang, states: tuple[RankState, ...]) -> str:
        host = self._runtime.host
        is_alone = len({(state.step, state.phase) for state in states}) > 1
        if hang.state.state in SUSPICION or is_alone:
            return f"rank {hang.state.rank} on {host} {hang.fate}"
        where = f"step {hang.state.step} ({hang.state.phase.value})"
        return (
            f"{host}: no rank has moved for {hang.state.age_s:.0f} s, all are in {where}; "
            "one of them, or a rank of another host, holds up the job"
        )

    def _reports(self, states: tuple[RankState, ...]) -> bool:
        moving = [state.rank for state in states if state.state != STOPPED]
        return self._runtime.rank == min(moving, default=-1)
