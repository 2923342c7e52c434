"""Stands in for torchrun: starts the ranks of a host as it does, waits, says which failed first.

`fake_launcher.py SCRIPT ARG...` with NUM_RANKS, FIRST_RANK and WORLD_SIZE in the environment. Imports no
torch, so that a job of four ranks runs within a second.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from alphazero.launch.blame import FAILURE_VARIABLE, failure_of, first_failure
from alphazero.run.rank import OUTPUT_VARIABLE, write_record


def main() -> int:
    """The launcher's life."""
    number, first = int(os.environ["NUM_RANKS"]), int(os.environ["FIRST_RANK"])
    ranks = {}
    for local in range(number):
        environment = {**os.environ, "LOCAL_RANK": str(local), "RANK": str(first + local)}
        ranks[first + local] = subprocess.Popen(
            [sys.executable, *sys.argv[1:]], env=environment, start_new_session=True
        )
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    while any(process.poll() is None for process in ranks.values()):
        time.sleep(0.02)
        failed = {rank: process for rank, process in ranks.items() if process.poll()}
        if not failed:
            continue
        accounts = Path(os.environ[OUTPUT_VARIABLE])
        failure = first_failure(
            [
                failure_of(rank, rank - first, process.pid, process.returncode, accounts)
                for rank, process in failed.items()
            ]
        )
        write_record(Path(os.environ[FAILURE_VARIABLE]), failure)
        for other in ranks.values():
            other.terminate()
        return failure.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
