"""The preflight of a job: are all ranks there, do they agree, how fast is their network, who is slow?

A program started like any job: `torchrun ... -m alphazero.launch.node.preflight`. Rank 0 prints the report
and ends with 0 (healthy), 1 (warnings) or 2 (failures); the other ranks end with 0, or with 2 where a rank is
missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import AlphaZeroError, LaunchError, LostConnectionError
from alphazero.base.files import sha256_of
from alphazero.base.log import error_line
from alphazero.base.records import from_json, to_json
from alphazero.launch.node.preflight_report import (
    BANDWIDTH_BYTES,
    PreflightReport,
    RankRecord,
    RankTimes,
    judge_network,
    judge_records,
    judge_times,
    report_table,
    report_text,
)
from alphazero.machine.findings import Severity, load_thresholds, worst
from alphazero.run.directory import describe_environment
from alphazero.run.rank import begin, end_process, kind_of, note_failure

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

LEAVING_S = 1.0
CRASH_STATUS = 1  # of an interpreter that ends with a traceback
STEP_TICK_S = 0.05
GRACE_S = 2.0  # other ranks wait so long, so that no agent ends the reporting rank
FAILED = 2


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m alphazero.launch.node.preflight", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl on GPUs, else gloo")
    parser.add_argument("--json", action="store_true", help="rank 0 prints JSON (docs/health.md)")
    parser.add_argument("--thresholds", type=Path, metavar="FILE", help="as of `alphazero health`")
    parser.add_argument(
        "--config-file",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="configuration files that must be the same on all hosts",
    )
    parser.add_argument(
        "--hosts",
        nargs="+",
        default=[],
        metavar="HOST=SLOTS",
        help="hosts in the order of their ranks, so that a rank that never comes has a host",
    )
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
    from alphazero.launch.node.store import lone_process_environment, open_store, served_store

    thresholds = load_thresholds(args.thresholds).collective
    environment = os.environ if "RANK" in os.environ else {**os.environ, **lone_process_environment()}
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in environment:
            raise LaunchError(f"{name} is not set; expected a launch by torchrun, or RANK unset")
    own_rank = read_own_rank(environment, args.device, args.backend)
    limit_s, num_bytes = thresholds.stage_timeout_s, BANDWIDTH_BYTES[own_rank.device.type]
    place_of = _places(args.hosts, own_rank.local_world_size)
    with served_store(environment):
        roll_call = RollCall(
            lambda: open_store(environment, own_rank.rank, limit_s),
            own_rank.rank,
            own_rank.world_size,
            limit_s,
            place_of,
        )
    roll_call.start()
    own = to_json(describe_rank(own_rank, args.config_file))
    records = tuple(from_json(RankRecord, text) for text in roll_call.gather("versions", own))
    findings = judge_records(records)
    times: tuple[RankTimes, ...] = ()
    if worst(findings) < Severity.FAIL:  # different versions of NCCL or torch would hang or crash
        times = _measure(own_rank, environment, records, roll_call, limit_s)
        findings += judge_times(records, times, thresholds)
        findings += judge_network(records, times, num_bytes, thresholds)
    status = 0
    if own_rank.rank == 0:
        report = PreflightReport(own_rank.backend, num_bytes, records, times, tuple(findings))
        print(json.dumps(report_table(report), indent=1) if args.json else report_text(report), flush=True)
        status = report.exit_status
    roll_call.finish()
    if status:
        # torchrun ends all ranks once one has failed: those that leave well get the time to do so.
        time.sleep(LEAVING_S)
    return status


@dataclass(frozen=True)
class OwnRank:
    """This process among the ranks, by the variables that its launcher set."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    device: torch.device
    backend: str
    host: str

    @property
    def device_name(self) -> str:
        """In messages."""
        import torch

        if self.device.type == "cuda":
            return f"{self.device} {torch.cuda.get_device_name(self.device)}"
        return f"cpu ({torch.get_num_threads()} threads)"


def read_own_rank(environment: Mapping[str, str], device: str, backend: str | None) -> OwnRank:
    """The rank that torchrun's variables describe. Raises LaunchError where they are no numbers."""
    from alphazero.network.model.precision import choose_device

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    for name in names:
        if not environment.get(name, "").isdecimal():
            raise LaunchError(f"{name}={environment.get(name, '')!r}: expected a whole number")
    rank, local_rank, world_size, local_world_size = (int(environment[name]) for name in names)
    chosen = choose_device(device, local_rank, environment)
    backend = backend or ("nccl" if chosen.type == "cuda" else "gloo")
    return OwnRank(rank, local_rank, world_size, local_world_size, chosen, backend, socket.gethostname())


def _places(hosts: Sequence[str], local_world_size: int) -> Callable[[int], str]:
    """The host of a rank by --hosts, else its number. Raises LaunchError."""
    names: list[str] = []
    for entry in hosts:
        name, _, slots = entry.rpartition("=")
        if not name or not slots.isdecimal():
            raise LaunchError(f"--hosts {entry}: expected HOST=SLOTS, as node1=8")
        names += [name] * int(slots)
    return lambda rank: names[rank] if rank < len(names) else f"node {rank // local_world_size}"


def describe_rank(own_rank: OwnRank, files: Sequence[Path]) -> RankRecord:
    """What this rank runs with, and the digests of the configuration files it sees."""
    import hashlib

    import torch

    environment = describe_environment([])
    packages = environment["packages"]
    assert isinstance(packages, dict)
    nccl: Any = torch.cuda.nccl  # its functions have no types
    nccl_version = ".".join(map(str, nccl.version())) if own_rank.device.type == "cuda" else "not used"
    changes = str(environment["diff"])
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "none",
        "NCCL": nccl_version,
        "deepspeed": packages["deepspeed"],
        "alphazero": packages["alphazero"],
        "commit": str(environment["commit"]),
        "local changes": hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else "none",
        "backend": own_rank.backend,
    }
    digests = tuple((str(path), sha256_of(path) if path.is_file() else "missing") for path in files)
    rank, local_rank, described = own_rank.rank, own_rank.local_rank, tuple(versions.items())
    return RankRecord(rank, local_rank, own_rank.host, own_rank.device_name, described, digests)


def _measure(
    own_rank: OwnRank,
    environment: Mapping[str, str],
    records: Sequence[RankRecord],
    roll_call: RollCall,
    timeout_s: float,
) -> tuple[RankTimes, ...]:
    """Every rank's times, by rank. Raises LaunchError where the process group cannot be made or used."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from alphazero.launch.node.preflight_measure import link_peers, measure
    from alphazero.launch.node.store import open_store

    if own_rank.device.type == "cuda":
        torch.cuda.set_device(own_rank.device)
    roll_call.enter("process group")
    peers = link_peers(own_rank.rank, [(record.host, record.local_rank) for record in records])
    try:
        dist.init_process_group(
            own_rank.backend,
            store=PrefixStore("preflight", open_store(environment, own_rank.rank, timeout_s)),
            rank=own_rank.rank,
            world_size=own_rank.world_size,
            # The roll call names who is behind; the group's own limit must not come before it.
            timeout=timedelta(seconds=2 * timeout_s),
            device_id=own_rank.device if own_rank.device.type == "cuda" else None,
        )
        measured = measure(own_rank.device, peers, roll_call.enter)
        texts = roll_call.gather("times", to_json(measured))
        dist.destroy_process_group()
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        text = f"rank {own_rank.rank} on {own_rank.host}: {own_rank.backend}: {first}"
        lost = kind_of(error) == LostConnectionError.kind
        raise (LostConnectionError if lost else LaunchError)(text) from error
    return tuple(from_json(RankTimes, text) for text in texts)


class RollCall:
    """Steps of all ranks in the store, and a limit on each step.

    Before each step that waits for others a rank notes it (`enter`). A thread with a separate connection
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
        """Note that this rank has started, and return when all have."""
        self.enter("start")
        self._watch.start()
        self._wait_for(self._key)

    def enter(self, step: str) -> None:
        """This rank reaches `step`, where it will wait for the others; the clock restarts."""
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
                time.sleep(STEP_TICK_S)
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
            while not self._finished.wait(STEP_TICK_S):
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
        """One rank reports: the lowest that is not behind."""
        speaker = next(rank for rank in range(self._world_size) if rank not in behind)
        if speaker != self._rank:
            self._finished.wait(GRACE_S)
            return
        if behind:
            named = ", ".join(f"rank {rank} ({self._place_of(rank)})" for rank in behind)
            what = f"{named} did not reach step {self._step!r} within {self._limit_s:g} s"
        else:
            what = (
                f"all ranks came to step {self._step!r} and none came through within {self._limit_s:g} s: "
                "is the network between them open on all ports (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)?"
            )
        self._say(LaunchError(what, ranks=behind))

    @staticmethod
    def _say(error: LaunchError) -> None:
        """To the terminal, and to the agent of this host: the process ends without raising it."""
        note_failure(error, FAILED)
        print(error_line(f"preflight: {error}"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    begin(os.environ)
    end_process(main(sys.argv[1:]))
