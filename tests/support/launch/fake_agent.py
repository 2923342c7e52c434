"""Stands in for torchrun: starts ranks as it does (own sessions, LOCAL_RANK set), waits, returns a status.

`fake_agent.py RANKS DIRECTORY MODE...`: modes of ranks are `run` (until told, then 1 s of saving),
`stubborn` (ignores every request), `early` (until told, no handler), `exit:N`. Each rank writes
DIRECTORY/rank-R: its pid, then a line a signal, then `saved`; a heartbeat says that it has ended. SIGTERM is
passed on to the ranks and answered with 143 once they have ended.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from alphazero.run.rank import HeartbeatWriter, Phase


def be_rank(directory: Path, mode: str) -> int:
    """A rank's life."""
    told: list[int] = []
    file = os.open(directory / f"rank-{os.environ['LOCAL_RANK']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(text: str) -> None:
        os.write(file, f"{text}\n".encode())  # unbuffered: a handler may come in between

    def receive(number: int, frame: object) -> None:
        told.append(number)
        note(signal.Signals(number).name)

    if mode != "early":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, receive)
    # A child that a rank may have (a loader, a compiler): it must not get the signal, and must not survive.
    child = subprocess.Popen(["sleep", "300"])
    note(f"{os.getpid()} {child.pid}")
    if mode.startswith("exit:"):
        time.sleep(0.5)
        child.kill()
        return int(mode[5:])
    while not told or mode == "stubborn":
        time.sleep(0.02)
    time.sleep(1)
    note(f"saved, child {'alive' if child.poll() is None else 'gone'}")
    child.kill()
    HeartbeatWriter(directory / "heartbeat", int(os.environ["LOCAL_RANK"]), "here").beat(Phase.END, 5)
    return 0


def end(number: int, frame: object) -> None:
    """As torchrun: the wait for the ranks is broken off."""
    raise SystemExit(128 + number)


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
    signal.signal(signal.SIGTERM, end)
    try:
        return max(rank.wait() & 0xFF for rank in ranks)
    finally:
        for rank in ranks:
            rank.terminate()
        for rank in ranks:
            rank.wait()


if __name__ == "__main__":
    sys.exit(main())
