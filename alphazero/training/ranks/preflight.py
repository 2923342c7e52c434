"""The preflight of a job: are all ranks there, do they agree, how fast is their network, who is slow?

A program started like any job: `torchrun ... -m alphazero.training.ranks.preflight`. Rank 0 prints the report
and ends with 0 (healthy), 1 (warnings) or 2 (failures); the other ranks end with 0, or with 2 where a rank is
missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import AlphaZeroError, LaunchError, LostConnectionError
from alphazero.base.files import sha256_of
from alphazero.machine.findings import Severity, load_thresholds, worst
from alphazero.run.directory import describe_environment
from alphazero.run.rank import begin, kind_of, note_failure
from alphazero.training.ranks.preflight_report import (
    PreflightReport,
    RankRecord,
    RankTimes,
    judge_network,
    judge_records,
    judge_times,
    to_json,
    to_table,
)

if TYPE_CHECKING:
    import torch

    from alphazero.training.ranks.meeting import RollCall
    from alphazero.training.ranks.preflight_measure import LocalWork
    from alphazero.training.ranks.runtime import Runtime


LEAVING_S = 1.0
CRASH_STATUS = 1  # of an interpreter that ends with a traceback


def build_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(
        prog="python -m alphazero.training.ranks.preflight", description=__doc__, allow_abbrev=False
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


def main(
    arguments: Sequence[str],
    describe: Callable[[Runtime, Sequence[Path]], RankRecord] | None = None,
    work: Callable[[torch.device], LocalWork] | None = None,
) -> int:
    """This rank's part; returns its exit status. `describe` and `work` replace what a rank tells and does."""
    args = build_parser().parse_args(arguments)
    # Retries while rank 0 is not there yet are no news.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        return _run(args, describe or describe_rank, work)
    except AlphaZeroError as error:
        note_failure(error, error.exit_code)
        print(f"alphazero: error: preflight: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        note_failure(error, CRASH_STATUS)
        raise


def _run(
    args: argparse.Namespace,
    describe: Callable[[Runtime, Sequence[Path]], RankRecord],
    work: Callable[[torch.device], LocalWork] | None,
) -> int:
    from alphazero.training.ranks.meeting import RollCall, open_store, served_store
    from alphazero.training.ranks.runtime import lone_process_environment, read_runtime

    thresholds = load_thresholds(args.thresholds).collective
    place_of = _places(args.hosts)
    environment = os.environ if "RANK" in os.environ else {**os.environ, **lone_process_environment()}
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in environment:
            raise LaunchError(f"{name} is not set; expected a launch by torchrun, or RANK unset")
    runtime = read_runtime(environment, args.device, args.backend or "")
    with served_store(environment):
        roll_call = RollCall(
            lambda: open_store(environment, runtime.rank, thresholds.stage_timeout_s),
            runtime.rank,
            runtime.world_size,
            thresholds.stage_timeout_s,
            lambda rank: place_of(rank) or f"node {rank // runtime.local_world_size}",
        )
    roll_call.start()
    own = json.dumps(dataclasses.asdict(describe(runtime, args.config_file)))
    records = tuple(map(_record, roll_call.gather("versions", own)))
    findings = judge_records(records)
    times: tuple[RankTimes, ...] = ()
    if worst(findings) < Severity.FAIL:  # unlike versions of NCCL or torch would hang or crash
        times = _measure(runtime, environment, records, roll_call, work, thresholds.stage_timeout_s)
        findings += judge_times(records, times, thresholds)
        findings += judge_network(records, times, _bandwidth_bytes(runtime), thresholds)
    status = 0
    if runtime.is_main:
        report = PreflightReport(runtime.backend, _bandwidth_bytes(runtime), records, times, tuple(findings))
        print(json.dumps(to_json(report), indent=1) if args.json else to_table(report), flush=True)
        status = report.exit_status
    roll_call.finish()
    if status:
        # torchrun ends all ranks once one has failed: those that leave well get the time to do so.
        time.sleep(LEAVING_S)
    return status


def _bandwidth_bytes(runtime: Runtime) -> int:
    from alphazero.training.ranks.preflight_measure import BANDWIDTH_BYTES

    return BANDWIDTH_BYTES[runtime.device.type]


def _places(hosts: Sequence[str]) -> Callable[[int], str]:
    """The host of a rank by --hosts, "" where they do not tell. Raises LaunchError."""
    names: list[str] = []
    for entry in hosts:
        name, _, slots = entry.rpartition("=")
        if not name or not slots.isdecimal():
            raise LaunchError(f"--hosts {entry}: expected HOST=SLOTS, as node1=8")
        names += [name] * int(slots)
    return lambda rank: names[rank] if rank < len(names) else ""


def describe_rank(runtime: Runtime, files: Sequence[Path]) -> RankRecord:
    """What this rank runs with, and the digests of the configuration files it sees."""
    import hashlib

    import torch

    told = describe_environment([])
    packages = told["packages"]
    assert isinstance(packages, dict)
    nccl: Any = torch.cuda.nccl  # its functions have no types
    nccl_version = ".".join(map(str, nccl.version())) if runtime.device.type == "cuda" else "not used"
    changes = str(told["diff"])
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "none",
        "NCCL": nccl_version,
        "deepspeed": packages["deepspeed"],
        "alphazero": packages["alphazero"],
        "commit": str(told["commit"]),
        "local changes": hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else "none",
        "backend": runtime.backend,
    }
    digests = tuple((str(path), sha256_of(path) if path.is_file() else "missing") for path in files)
    return RankRecord(
        runtime.rank,
        runtime.local_rank,
        runtime.host,
        runtime.device_name,
        tuple(versions.items()),
        digests,
    )


def _record(text: str) -> RankRecord:
    told = json.loads(text)
    for name in ("versions", "files"):
        told[name] = tuple((key, value) for key, value in told[name])
    return RankRecord(**told)


def _measure(
    runtime: Runtime,
    environment: Mapping[str, str],
    records: Sequence[RankRecord],
    roll_call: RollCall,
    work: Callable[[torch.device], LocalWork] | None,
    timeout_s: float,
) -> tuple[RankTimes, ...]:
    """Every rank's times, by rank. Raises LaunchError where the process group cannot be made or used."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from alphazero.training.ranks.meeting import open_store
    from alphazero.training.ranks.preflight_measure import link_peers, make_work, measure
    from alphazero.training.ranks.runtime import default_threads

    if runtime.device.type == "cuda":
        torch.cuda.set_device(runtime.device)
    else:
        torch.set_num_threads(default_threads(runtime.local_world_size))
    roll_call.enter("process group")
    peers = link_peers(runtime.rank, [(record.host, record.local_rank) for record in records])
    try:
        dist.init_process_group(
            runtime.backend,
            store=PrefixStore("preflight", open_store(environment, runtime.rank, timeout_s)),
            rank=runtime.rank,
            world_size=runtime.world_size,
            # The roll call names who is behind; the group's own limit must not come before it.
            timeout=timedelta(seconds=2 * timeout_s),
            device_id=runtime.device if runtime.device.type == "cuda" else None,
        )
        measured = measure(runtime.device, (work or make_work)(runtime.device), peers, roll_call.enter)
        told = roll_call.gather("times", json.dumps(dataclasses.asdict(measured)))
        dist.destroy_process_group()
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        text = f"rank {runtime.rank} on {runtime.host}: {runtime.backend}: {first}"
        lost = kind_of(error) == LostConnectionError.kind
        raise (LostConnectionError if lost else LaunchError)(text) from error
    return tuple(RankTimes(**json.loads(text)) for text in told)


if __name__ == "__main__":
    begin(os.environ)
    sys.exit(main(sys.argv[1:]))
