"""Stands in for the trainer: ranks in lockstep over the network, heartbeats, checkpoints, resume.

`fake_rank.py RUN_DIRECTORY STEPS STEP_S`. Each step every rank sends its number to rank 0 (at MASTER_ADDR)
and gets the sum back: a rank that dies breaks the others' connection, one that stops holds them up. The sum
of all steps is written to RUN_DIRECTORY/result: only an undisturbed or rightly resumed run gets it right.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from alphazero.base.errors import AlphaZeroError
from alphazero.run import rank as rank_side
from alphazero.run.rank import HeartbeatWriter, Phase, note_failure

CHECKPOINT_INTERVAL = 5


class Star:
    """The sum over all ranks, through rank 0."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.peers = rank, []
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            server = socket.create_server(("", address[1]))
            self.peers = [server.accept()[0] for _ in range(world_size - 1)]
            return
        deadline = time.monotonic() + 30
        while True:
            try:
                self.peers = [socket.create_connection(address, timeout=5)]
                self.peers[0].settimeout(None)
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def sum(self, number: int) -> int:
        if self.rank == 0:
            total = number + sum(self._receive(peer) for peer in self.peers)
            for peer in self.peers:
                peer.sendall(total.to_bytes(8, "little"))
            return total
        self.peers[0].sendall(number.to_bytes(8, "little"))
        return self._receive(self.peers[0])

    @staticmethod
    def _receive(peer: socket.socket) -> int:
        data = b""
        while len(data) < 8:
            piece = peer.recv(8 - len(data))
            if not piece:
                raise ConnectionError("Connection closed by peer")
            data += piece
        return int.from_bytes(data, "little")


def newest(run: Path) -> int:
    """Step of the newest checkpoint, 0 without one."""
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step-*")), default=0)


def save(run: Path, step: int, total: int) -> None:
    """A checkpoint, whole or absent; a full disk is the user's mistake, as in the real trainer."""
    temporary = run / "checkpoints" / f".step-{step:08d}.tmp"
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        (temporary / "total").write_text(str(total))
        (temporary / "filling").write_bytes(bytes(int(os.environ.get("ALPHAZERO_TEST_BYTES", "0"))))
        temporary.replace(run / "checkpoints" / f"step-{step:08d}")
    except OSError as error:
        raise AlphaZeroError(f"{temporary}: cannot be written: {error.strerror}") from error


def main() -> int:
    """A rank's life."""
    rank_side.begin(os.environ)
    run, num_steps, step_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    stop = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: stop.append(number))
    beat = HeartbeatWriter(run / "heartbeat", rank, socket.gethostname())
    beat.beat(Phase.START, -1)
    star = Star(rank, world_size)
    first = star.sum(newest(run) if rank == 0 else 0)
    # Where the run directory is not shared, the total travels with the step.
    mine = int((run / f"checkpoints/step-{first:08d}/total").read_text()) if first and rank == 0 else 0
    total = star.sum(mine)
    print(f"rank {rank} begins at step {first} of {num_steps} on {world_size} ranks", file=sys.stderr)
    die_at = int(os.environ.get("ALPHAZERO_TEST_DIE_AT", "-1"))
    for step in range(first + 1, num_steps + 1):
        beat.beat(Phase.STEP, step - 1)
        if "ALPHAZERO_TEST_CHATTER" in os.environ:
            print("x" * 1000, file=sys.stderr)
        time.sleep(step_s)
        if step == die_at and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        # The work of a step is shared by ranks: the same whatever their number.
        mine = sum(step * item for item in range(12) if item % world_size == rank)
        total += star.sum(mine)
        is_last_wish = star.sum(len(stop)) > 0
        if step % CHECKPOINT_INTERVAL == 0 or step == num_steps or is_last_wish:
            beat.beat(Phase.CHECKPOINT, step)
            if rank == 0:
                save(run, step, total)
        if is_last_wish:
            print(f"rank {rank} stopped after step {step}", file=sys.stderr)
            return 0
    if rank == 0:
        (run / "result").write_text(str(total))
    beat.beat(Phase.END, num_steps)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConnectionError as error:
        note_failure(error, 1)
        raise
    except (AlphaZeroError, OSError) as error:  # a full disk fails a heartbeat as well
        note_failure(error, 2)
        print(f"alphazero: error: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        note_failure(error, 1)
        raise
