"""The preflight of a job: are all ranks there, and how fast is an all-reduce among them?

A program started like any job: `torchrun ... -m alphazero.launch.node.preflight`. Rank 0 prints a line, and a
warning where hosts are slow to reach each other; all ranks end with 0, or with 2 where one is missing. That
all run the same code is checked before (head/compare.py) and by the trainer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from alphazero.base.errors import AlphaZeroError, LaunchError, LostConnectionError
from alphazero.base.log import error_line
from alphazero.base.text import counted
from alphazero.run.rank import begin, end_process, note_failure

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

CRASH_STATUS = 1  # of an interpreter that ends with a traceback
TICK_S = 0.05
GRACE_S = 2.0  # the main thread wakes so long after the store has ended, unless it hangs
FAILED = 2
# Of the timed all-reduce, by the type of the device.
ALL_REDUCE_BYTES = {"cuda": 64 << 20, "cpu": 4 << 20}
WARM_UPS, REPEATS = 2, 5
# Between hosts: less is slower than Gigabit Ethernet (0.12); the gradients of 20x256 (95 MB) take a second.
LEAST_GB_S = 0.1
# For each stage: all ranks there, process group, all-reduce.
STAGE_TIMEOUT_S = 120.0


def build_parser() -> argparse.ArgumentParser:
    """The flags of the program."""
    parser = argparse.ArgumentParser(
        prog="python -m alphazero.launch.node.preflight", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--timeout", type=float, default=STAGE_TIMEOUT_S, metavar="SECONDS")
    return parser


def main(arguments: Sequence[str]) -> int:
    """This rank's part; returns its exit status."""
    args = build_parser().parse_args(arguments)
    # Retries while rank 0 is not there yet are not worth a line.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        _run(args)
    except AlphaZeroError as error:
        _report(error)
        return error.exit_code
    except Exception as error:
        note_failure(error, CRASH_STATUS)
        raise
    return 0


def _report(error: AlphaZeroError) -> None:
    """To the head, which shows it for all ranks; to people where none is there."""
    if not note_failure(error, error.exit_code):
        print(error_line(f"preflight: {error}"), file=sys.stderr, flush=True)


def _run(args: argparse.Namespace) -> None:
    from alphazero.launch.node.store import open_store, served_store
    from alphazero.network.model.precision import choose_device

    missing = [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR") if name not in os.environ]
    if missing:
        raise LaunchError(f"{missing[0]} is not set; expected a launch by torchrun")
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    device = choose_device(args.device, local_rank, os.environ)
    with served_store(os.environ):
        roll_call = RollCall(
            lambda: open_store(os.environ, rank, args.timeout), rank, world_size, args.timeout
        )
    roll_call.start()
    gb_s = ALL_REDUCE_BYTES[device.type] / time_all_reduce(device, roll_call) / 1e9
    if rank == 0:
        num_hosts = world_size // int(os.environ["LOCAL_WORLD_SIZE"])
        job = f"{counted(world_size, 'rank')} on {counted(max(1, num_hosts), 'host')}, {device.type}"
        size = f"all-reduce of {ALL_REDUCE_BYTES[device.type] >> 20} MiB"
        print(f"alphazero: preflight: {job}: {size} at {gb_s:.2f} GB/s", flush=True)
        if num_hosts > 1 and gb_s < LEAST_GB_S:
            expected = f"expected {LEAST_GB_S} or more between hosts: see --interface"
            print(f"alphazero: warning: preflight: {gb_s:.3g} GB/s; {expected}", flush=True)
    roll_call.finish()


def time_all_reduce(device: torch.device, roll_call: RollCall) -> float:
    """Seconds of an all-reduce on this rank, the median of a few, in a separate process group."""
    import torch
    import torch.distributed as dist

    if device.type == "cuda":
        torch.cuda.set_device(device)
    roll_call.enter("process group")
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=roll_call.store,
        rank=roll_call.rank,
        world_size=roll_call.world_size,
        # The roll call names who is behind; the group's own limit must not come before it.
        timeout=timedelta(seconds=2 * roll_call.limit_s),
        device_id=device if device.type == "cuda" else None,
    )
    roll_call.enter("all-reduce")
    tensor = torch.zeros(ALL_REDUCE_BYTES[device.type] // 4, device=device)
    times_s = []
    for _ in range(WARM_UPS + REPEATS):
        began = time.perf_counter()
        dist.all_reduce(tensor)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - began)
    dist.destroy_process_group()
    return statistics.median(times_s[WARM_UPS:])


class RollCall:
    """Steps of all ranks in the store, and a limit on each step.

    Before each step that waits for others a rank notes it (`enter`). A thread with a separate connection
    looks at the clock: past the limit it names the ranks that entered fewer steps, and ends the process with
    status 2, whatever the main thread hangs in.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        rank: int,
        world_size: int,
        limit_s: float,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.store = connect()
        self._connect = connect
        self.rank = rank
        self.world_size = world_size
        self.limit_s = limit_s
        self._end = end
        self._steps = 0
        self._finished = threading.Event()

    def start(self) -> None:
        """Note that this rank has started, and return when all have."""
        self.enter("start")
        threading.Thread(target=self._watch_clock, name="roll call", daemon=True).start()
        self._wait_for("steps")

    def enter(self, step: str) -> None:
        """This rank reaches `step`, where it will wait for the others; the clock restarts."""
        self._step = step
        self._steps += 1
        self._deadline = time.monotonic() + self.limit_s
        self.store.set(f"preflight/steps/{self.rank}", str(self._steps))

    def finish(self) -> None:
        """The end: rank 0, which may serve the store, leaves last."""
        self.enter("end")
        self.store.set(f"preflight/left/{self.rank}", "")
        if self.rank == 0:
            self._wait_for("left")
        self._finished.set()

    def _wait_for(self, name: str) -> None:
        """Return when all ranks have set a key of this name. Raises LostConnectionError without a store."""
        keys = [f"preflight/{name}/{rank}" for rank in range(self.world_size)]
        try:
            while not self.store.check(keys):
                time.sleep(TICK_S)
        except RuntimeError as error:
            raise self._lost_store() from error

    def _lost_store(self) -> LostConnectionError:
        return LostConnectionError(
            f"rank {self.rank} at step {self._step!r}: what served the store, on node 0, has ended"
        )

    def _watch_clock(self) -> None:
        error: AlphaZeroError
        try:
            store = self._connect()  # the main thread may wait in its own connection, lock held
            while time.monotonic() <= self._deadline:
                if self._finished.wait(TICK_S):
                    return
            error = self._overdue(store)
        except (RuntimeError, LaunchError):
            if self._finished.wait(GRACE_S):
                return
            error = self._lost_store()
        _report(error)
        self._end(FAILED)

    def _overdue(self, store: Store) -> LaunchError:
        """The step took too long: because of the ranks that entered fewer steps, if there are some."""
        behind = []
        for rank in range(self.world_size):
            key = f"preflight/steps/{rank}"
            if not store.check([key]) or int(store.get(key)) < self._steps:
                behind.append(rank)
        if behind:
            named = ", ".join(f"rank {rank}" for rank in behind)
            return LaunchError(
                f"{named}: did not reach step {self._step!r} in {self.limit_s:g} s", ranks=behind
            )
        return LaunchError(
            f"all ranks came to step {self._step!r} and none came through within {self.limit_s:g} s: "
            "is the network between them open on all ports (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)?"
        )


if __name__ == "__main__":
    begin(os.environ)
    end_process(main(sys.argv[1:]))
