"""The preflight with one rank that is slow, stopped or of another torch; for tests.

preflight_with.py FAULT RANK [the preflight's own flags]
"""

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from alphazero.launch.node import preflight, preflight_measure
from alphazero.launch.node.preflight import OwnRank, describe_rank
from alphazero.launch.node.preflight_measure import make_work
from alphazero.launch.node.preflight_report import RankRecord
from alphazero.run.rank import end_process

FAULT, RANK, *FLAGS = sys.argv[1:]
IS_ODD = os.environ["RANK"] == RANK


def describe(own_rank: OwnRank, files: list[Path]) -> RankRecord:
    """As the preflight, but for the version of the odd rank."""
    record = describe_rank(own_rank, files)
    if FAULT == "version" and IS_ODD:
        versions = tuple((name, "9.9.9" if name == "torch" else value) for name, value in record.versions)
        return dataclasses.replace(record, versions=versions)
    return record


def work(device):
    """As the preflight, but for the odd rank: thirty times as much, or an end of all work."""
    usual_compute, usual_host = usual = make_work(device)

    def slow_compute() -> None:
        for _ in range(30):
            usual_compute()

    def slow_host() -> None:
        usual_host()
        time.sleep(1.5)  # many times the usual work, also where the machine is busy and that takes long

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    if not IS_ODD:
        return usual
    odd = {
        "compute": (slow_compute, usual_host),
        "host": (usual_compute, slow_host),
        "stopped": (stop, usual_host),
    }
    return odd.get(FAULT, usual)


preflight.describe_rank = describe
preflight_measure.make_work = work
end_process(preflight.main(FLAGS))
