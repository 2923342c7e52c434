"""Who has come how far: ranks note their steps in a store, so that one that hangs the others can be named."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

# torch.distributed has the same names, but does not export them to type checkers.
from torch._C._distributed_c10d import Store, TCPStore

from alphazero.cluster.agent.rank_failure import note_failure
from alphazero.errors import LaunchError, LostConnectionError

POLL_S = 0.05
# Ranks that do not report wait this long, so that no agent ends the one that does.
GRACE_S = 2.0
FAILED = 2


def open_store(environment: Mapping[str, str], rank: int, timeout_s: float) -> TCPStore:
    """The job's store: torchrun's own, or one that rank 0 opens. Waits for no rank but rank 0.

    Raises LaunchError where nobody serves it within `timeout_s`.
    """
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    agent_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return TCPStore(
            host_name=address,
            port=port,
            is_master=rank == 0 and not agent_serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        server = "torchrun on node 0" if agent_serves else "rank 0"
        if rank == 0 and not agent_serves:
            raise LaunchError(f"{address}:{port}: {_first_line(error)}; expected a free port here") from error
        raise LaunchError(
            f"rank {rank}: {server} did not answer at {address}:{port} within {timeout_s:g} s"
        ) from error


class RollCall:
    """Steps of all ranks in the store, and a limit on each step.

    Before each step that waits for others a rank notes it (`enter`). A thread with a connection of its own
    looks at the clock: past the limit, the ranks that entered fewer steps are named and the process ends
    with status 2, whatever the main thread hangs in.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        rank: int,
        world_size: int,
        limit_s: float,
        place_of: Callable[[int], str],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._store = connect()
        self._connect = connect
        self._rank = rank
        self._world_size = world_size
        self._limit_s = limit_s
        self._place_of = place_of
        self._end = end
        self._steps = 0
        self._step = "start"
        self._deadline = time.monotonic() + limit_s
        self._finished = threading.Event()
        self._watch = threading.Thread(target=self._watch_clock, name="roll call", daemon=True)

    def start(self) -> None:
        """Note that this rank is there, and return when all are."""
        self.enter("start")
        self._watch.start()
        self._wait_for(self._key)

    def enter(self, step: str) -> None:
        """This rank comes to `step`, where it will wait for the others; the clock starts anew."""
        self._step = step
        self._steps += 1
        self._deadline = time.monotonic() + self._limit_s
        self._store.set(self._key(self._rank), str(self._steps))

    def gather(self, name: str, text: str) -> list[str]:
        """Every rank's `text`, by rank, through the store alone."""
        self.enter(name)
        self._store.set(f"preflight/{name}/{self._rank}", text)
        keys = self._wait_for(lambda rank: f"preflight/{name}/{rank}")
        return [self._store.get(key).decode() for key in keys]

    def finish(self) -> None:
        """The end: rank 0, which may serve the store, leaves last."""
        self.enter("end")
        self._store.set(f"preflight/left/{self._rank}", "")
        if self._rank == 0:
            self._wait_for(lambda rank: f"preflight/left/{rank}")
        self._finished.set()

    def _wait_for(self, key_of: Callable[[int], str]) -> list[str]:
        """The keys of all ranks, when all are set. Raises LaunchError where the store ends before."""
        keys = [key_of(rank) for rank in range(self._world_size)]
        try:
            while not self._store.check(keys):
                time.sleep(POLL_S)
        except RuntimeError as error:
            raise LostConnectionError(self._lost()) from error
        return keys

    def _lost(self) -> str:
        return f"rank {self._rank} at step {self._step!r}: what served the store, on node 0, has ended"

    def _key(self, rank: int) -> str:
        return f"preflight/steps/{rank}"

    def _watch_clock(self) -> None:
        try:
            store = self._connect()  # the main thread may wait in its own connection, lock held
            while not self._finished.wait(POLL_S):
                if time.monotonic() > self._deadline:
                    self._report(self._behind(store))
                    break
            else:
                return
        except (RuntimeError, LaunchError):
            if self._finished.wait(GRACE_S):  # the main thread sees it too, unless it hangs
                return
            self._say(LostConnectionError(self._lost()))
        self._end(FAILED)

    def _behind(self, store: Store) -> list[int]:
        """The ranks that entered fewer steps than this one."""
        behind = []
        for rank in range(self._world_size):
            key = self._key(rank)
            if not store.check([key]) or int(store.get(key)) < self._steps:
                behind.append(rank)
        return behind

    def _report(self, behind: Sequence[int]) -> None:
        """One rank speaks: the lowest that is not behind."""
        speaker = next(rank for rank in range(self._world_size) if rank not in behind)
        if speaker != self._rank:
            self._finished.wait(GRACE_S)
            return
        if behind:
            named = ", ".join(f"rank {rank} ({self._place_of(rank)})" for rank in behind)
            what = f"{named} did not come to step {self._step!r} within {self._limit_s:g} s"
        else:
            what = (
                f"all ranks came to step {self._step!r} and none came through within {self._limit_s:g} s: "
                "is the network between them open on all ports (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)?"
            )
        self._say(LaunchError(what, ranks=behind))

    @staticmethod
    def _say(error: LaunchError) -> None:
        """To people, and to the agent of this host: the process ends without raising it."""
        note_failure(error, FAILED)
        print(f"alphazero: error: preflight: {error}", file=sys.stderr, flush=True)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
