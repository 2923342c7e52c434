"""Stands in for torchrun: starts ranks as it does (own sessions, LOCAL_RANK set), waits, returns a status.

`fake_agent.py RANKS DIRECTORY MODE...`: modes of ranks are `run` (until told, then 1 s of saving),
`stubborn` (ignores every wish), `early` (until told, no handler), `exit:N`. Each rank writes
DIRECTORY/rank-R: its pid, then a line a signal, then `saved`.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def be_rank(directory: Path, mode: str) -> int:
    """A rank's life."""
    told: list[int] = []
    note = (directory / f"rank-{os.environ['LOCAL_RANK']}").open("a", buffering=1)

    def receive(number: int, frame: object) -> None:
        told.append(number)
        note.write(f"{signal.Signals(number).name}\n")

    if mode != "early":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, receive)
    # A child that a rank may have (a loader, a compiler): it must not get the wish, and must not survive.
    child = subprocess.Popen(["sleep", "300"])
    note.write(f"{os.getpid()} {child.pid}\n")
    if mode.startswith("exit:"):
        time.sleep(0.5)
        child.kill()
        return int(mode[5:])
    while not told or mode == "stubborn":
        time.sleep(0.02)
    time.sleep(1)
    note.write(f"saved, child {'alive' if child.poll() is None else 'gone'}\n")
    child.kill()
    return 0


def main() -> int:
    """The agent's life, or with LOCAL_RANK a rank's."""
    if "LOCAL_RANK" in os.environ:
        return be_rank(Path(sys.argv[1]), sys.argv[2])
    directory, modes = sys.argv[1], sys.argv[2:]
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, directory, mode],
            env={**os.environ, "LOCAL_RANK": str(rank)},
            start_new_session=True,
        )
        for rank, mode in enumerate(modes)
    ]
    return max(rank.wait() & 0xFF for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
