"""The preflight of a job: are all ranks there, do they run the same, how fast is an all-reduce among them?

A program started like any job: `torchrun ... -m alphazero.launch.node.preflight`. Rank 0 prints the report
and ends with 0 (healthy), 1 (warnings) or 2 (failures); the other ranks end with 0, or with 2 where a rank is
missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import AlphaZeroError, LaunchError, LostConnectionError
from alphazero.base.files import sha256_of
from alphazero.base.log import error_line
from alphazero.base.records import from_json, to_json
from alphazero.launch.preflight_report import PreflightFault, PreflightReport, RankRecord, differences
from alphazero.machine.environment import commit_of, version_of
from alphazero.run.rank import begin, end_process, kind_of, note_failure

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

LEAVING_S = 1.0
CRASH_STATUS = 1  # of an interpreter that ends with a traceback
TICK_S = 0.05
GRACE_S = 2.0  # the main thread wakes so long after the store has ended, unless it hangs
WARNED, FAILED = 1, 2
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
    parser.add_argument("--json", action="store_true", help="rank 0 prints JSON (docs/health.md)")
    parser.add_argument("--timeout", type=float, default=STAGE_TIMEOUT_S, metavar="SECONDS")
    files = parser.add_argument("--config-file", type=Path, nargs="+", default=[], metavar="FILE")
    files.help = "configuration files that must be the same on all hosts"
    hosts = parser.add_argument("--hosts", nargs="+", default=[], metavar="HOST")
    hosts.help = "the host of each rank, so that a missing rank can be named"
    return parser


def main(arguments: Sequence[str]) -> int:
    """This rank's part; returns its exit status."""
    args = build_parser().parse_args(arguments)
    # Retries while rank 0 is not there yet are not worth a line.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        return _run(args)
    except AlphaZeroError as error:
        note_failure(error, error.exit_code)
        print(error_line(f"preflight: {error}"), file=sys.stderr)
        return error.exit_code
    except Exception as error:
        note_failure(error, CRASH_STATUS)
        raise


def _run(args: argparse.Namespace) -> int:
    from alphazero.launch.node.store import open_store, served_store
    from alphazero.network.model.precision import choose_device

    rank, local_rank, world_size = (_number(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise LaunchError(f"{name} is not set; expected a launch by torchrun")
    device = choose_device(args.device, local_rank, os.environ)
    backend, num_bytes = "nccl" if device.type == "cuda" else "gloo", ALL_REDUCE_BYTES[device.type]

    def connect() -> Store:
        return open_store(os.environ, rank, args.timeout)

    with served_store(os.environ):
        roll_call = RollCall(connect, rank, world_size, args.timeout, args.hosts)
    roll_call.start()
    own = RankRecord(rank, socket.gethostname(), facts_of(device, backend, args.config_file))
    records = [from_json(RankRecord, text) for text in roll_call.gather("versions", to_json(own))]
    faults, gb_s = differences(records), 0.0
    if not faults:  # different versions of NCCL or torch would hang or crash
        try:
            own_ms = _time_all_reduce(device, backend, roll_call)
        except RuntimeError as error:
            text = f"rank {rank} on {own.host}: {backend}: {str(error).splitlines()[0]}"
            is_lost = kind_of(error) == LostConnectionError.kind
            raise (LostConnectionError if is_lost else LaunchError)(text) from error
        times_ms = map(float, roll_call.gather("times", f"{own_ms:.6f}"))
        gb_s = num_bytes / statistics.median(times_ms) / 1e6
    num_hosts = len({record.host for record in records})
    if not faults and num_hosts > 1 and gb_s < LEAST_GB_S:
        line = f"all-reduce at {gb_s:.3g} GB/s; expected {LEAST_GB_S} or more between hosts: see --interface"
        faults = [PreflightFault(line, is_failure=False)]
    status = 0
    if rank == 0:
        report = PreflightReport(backend, world_size, num_hosts, num_bytes, gb_s, tuple(faults))
        print(to_json(report) if args.json else "\n".join(report.lines), flush=True)
        status = FAILED if report.failures else WARNED if faults else 0
    roll_call.finish()
    if status:
        # torchrun ends all ranks once one has failed: those that leave well get the time to do so.
        time.sleep(LEAVING_S)
    return status


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise LaunchError(f"{name}={text!r}: expected a whole number, as torchrun sets it")
    return int(text)


def facts_of(device: torch.device, backend: str, files: Sequence[Path]) -> dict[str, str]:
    """What this rank runs with, and the digests of the configuration files it sees."""
    import torch

    nccl: Any = torch.cuda.nccl  # its functions have no types
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "none",
        "NCCL": ".".join(map(str, nccl.version())) if device.type == "cuda" else "not used",
        "deepspeed": version_of("deepspeed"),
        "alphazero": version_of("alphazero"),
        "commit": commit_of(),
        "backend": backend,
    }
    return versions | {str(path): sha256_of(path)[:12] if path.is_file() else "missing" for path in files}


def _time_all_reduce(device: torch.device, backend: str, roll_call: RollCall) -> float:
    """Milliseconds of an all-reduce on this rank, the median of a few, in a separate process group."""
    import torch
    import torch.distributed as dist

    if device.type == "cuda":
        torch.cuda.set_device(device)
    roll_call.enter("process group")
    dist.init_process_group(
        backend,
        store=roll_call.store,
        rank=roll_call.rank,
        world_size=roll_call.world_size,
        # The roll call names who is behind; the group's own limit must not come before it.
        timeout=timedelta(seconds=2 * roll_call.limit_s),
        device_id=device if device.type == "cuda" else None,
    )
    roll_call.enter("all-reduce")
    tensor = torch.zeros(ALL_REDUCE_BYTES[device.type] // 4, device=device)
    times_ms = []
    for _ in range(WARM_UPS + REPEATS):
        began = time.perf_counter()
        dist.all_reduce(tensor)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times_ms.append(1000 * (time.perf_counter() - began))
    dist.destroy_process_group()
    return statistics.median(times_ms[WARM_UPS:])


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
        hosts: Sequence[str] = (),
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.store = connect()
        self._connect = connect
        self.rank = rank
        self.world_size = world_size
        self.limit_s = limit_s
        self._hosts = hosts
        self._end = end
        self._steps = 0
        self._step = "start"
        self._deadline = time.monotonic() + limit_s
        self._finished = threading.Event()
        self._watch = threading.Thread(target=self._watch_clock, name="roll call", daemon=True)

    def start(self) -> None:
        """Note that this rank has started, and return when all have."""
        self.enter("start")
        self._watch.start()
        self._wait_for("steps")

    def enter(self, step: str) -> None:
        """This rank reaches `step`, where it will wait for the others; the clock restarts."""
        self._step = step
        self._steps += 1
        self._deadline = time.monotonic() + self.limit_s
        self.store.set(f"preflight/steps/{self.rank}", str(self._steps))

    def gather(self, name: str, text: str) -> list[str]:
        """Every rank's `text`, by rank, through the store alone."""
        self.enter(name)
        self.store.set(f"preflight/{name}/{self.rank}", text)
        return [self.store.get(key).decode() for key in self._wait_for(name)]

    def finish(self) -> None:
        """The end: rank 0, which may serve the store, leaves last."""
        self.enter("end")
        self.store.set(f"preflight/left/{self.rank}", "")
        if self.rank == 0:
            self._wait_for("left")
        self._finished.set()

    def _wait_for(self, name: str) -> list[str]:
        """The keys of all ranks, when all are set. Raises LaunchError where the store ends before."""
        keys = [f"preflight/{name}/{rank}" for rank in range(self.world_size)]
        try:
            while not self.store.check(keys):
                time.sleep(TICK_S)
        except RuntimeError as error:
            raise self._lost_store() from error
        return keys

    def _lost_store(self) -> LostConnectionError:
        return LostConnectionError(
            f"rank {self.rank} at step {self._step!r}: what served the store, on node 0, has ended"
        )

    def _watch_clock(self) -> None:
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
        note_failure(error, FAILED)
        print(error_line(f"preflight: {error}"), file=sys.stderr, flush=True)
        self._end(FAILED)

    def _overdue(self, store: Store) -> LaunchError:
        """The step took too long: because of the ranks that entered fewer steps, if there are some."""
        behind = []
        for rank in range(self.world_size):
            key = f"preflight/steps/{rank}"
            if not store.check([key]) or int(store.get(key)) < self._steps:
                behind.append(rank)
        if behind:
            hosts = dict(enumerate(self._hosts))
            named = ", ".join(f"rank {rank} ({hosts.get(rank, 'host unknown')})" for rank in behind)
            what = f"{named} did not reach step {self._step!r} within {self.limit_s:g} s"
        else:
            what = (
                f"all ranks came to step {self._step!r} and none came through within {self.limit_s:g} s: "
                "is the network between them open on all ports (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)?"
            )
        return LaunchError(what, ranks=behind)


if __name__ == "__main__":
    begin(os.environ)
    end_process(main(sys.argv[1:]))
