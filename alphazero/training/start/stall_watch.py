"""Names the rank that holds up a job without a launcher of ours: torchrun typed by hand, srun, mpirun.

A node agent would end such a job. Here its ranks look at the heartbeats of their host themselves: a rank that
waits for another one in a collective runs its other threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping

from alphazero.base.awake_clock import AwakeClock
from alphazero.run.directory import RunDirectory
from alphazero.run.rank import JOB_VARIABLE
from alphazero.run.rank_watch import STOPPED, SUSPICION, Hang, Limits, RankState, RankWatch, find_hang
from alphazero.training.ranks.runtime import Runtime

LIMITS = Limits(step_s=15.0)  # only words follow
LOOK_S = 1.0


@contextlib.contextmanager
def stall_watch(
    run: RunDirectory,
    runtime: Runtime,
    say: Callable[[str], None],
    limits: Limits = LIMITS,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[None]:
    """Look at the ranks of this host from a thread within the block, and report through `say`.

    One rank reports: the first one of the host whose process is not stopped. It reports again when the
    silence has doubled.
    """
    if JOB_VARIABLE in environment or runtime.world_size == 1:
        yield
        return
    over, first = threading.Event(), runtime.rank - runtime.local_rank
    watch = RankWatch(run.path, first, runtime.local_world_size, "", AwakeClock())
    arguments = (watch, runtime, say, limits, over)
    thread = threading.Thread(target=_watch, args=arguments, name="stall watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(
    watch: RankWatch, runtime: Runtime, say: Callable[[str], None], limits: Limits, over: threading.Event
) -> None:
    said_s = 0.0
    while not over.wait(LOOK_S):
        states = watch.look()
        hang = find_hang(states, limits)
        if hang is None:
            said_s = 0.0
            continue
        moving = [state.rank for state in states if state.state != STOPPED]
        if hang.state.age_s > 2 * said_s and runtime.rank == min(moving, default=-1):
            said_s = hang.state.age_s
            say(_line(hang, states, runtime.host))


def _line(hang: Hang, states: tuple[RankState, ...], host: str) -> str:
    is_alone = len({(state.step, state.phase) for state in states}) > 1
    if hang.state.state in SUSPICION or is_alone:
        return f"rank {hang.state.rank} on {host} {hang.fate}"
    where = f"step {hang.state.step} ({hang.state.phase.value})"
    return (
        f"{host}: no rank has moved for {hang.state.age_s:.0f} s, all are in {where}; "
        "one of them, or a rank of another host, holds up the job"
    )
