"""One host's part of a job: starts its launcher, passes output and signals on, and leaves nothing behind.

The program reads the plan and then the head's beats and wishes from stdin, and answers on stdout
(protocol.py). When the head falls silent, it ends the job; when it dies itself, its guard, a second process,
does.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from alphazero.base.errors import AlphaZeroError
from alphazero.base.log import error_line
from alphazero.base.text import exit_text
from alphazero.launch.agent import protocol
from alphazero.launch.agent.processes import (
    STOP_SIGNALS,
    JobEnding,
    SignalInbox,
    end_all,
    handles,
    processes_of,
    ranks_of,
    send,
)
from alphazero.launch.agent.protocol import CHUNK_BYTES, Beat, Ended, Output
from alphazero.launch.agent.rank_output import OutputStream, RankOutputs
from alphazero.launch.blame import FAILURE_VARIABLE, UNKNOWN, FirstFailure, order_of_blame, read_failure
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.run.rank import (
    JOB_VARIABLE,
    OUTPUT_VARIABLE,
    STACKS_SIGNAL,
    STOPPED,
    RankFailure,
    read_record,
)
from alphazero.run.rank_watch import RankWatch

TICK_S = 0.1
MAX_UNSENT_BYTES = 8 << 20


def start_guard(token: str, grace_s: float) -> int:
    """Fork the guard; the descriptor returned holds it back: when this process dies, it ends the job."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(reader)
        return writer
    os.close(writer)
    os.setsid()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # It must not hold the ssh session open, nor the head's pipes.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    try:
        if os.read(reader, 1) == b"":
            end_all(token, grace_s)
    finally:
        os._exit(0)


def read_plan() -> tuple[LaunchPlan, int, bytes]:
    """The plan in the first line of stdin, which of its hosts this one is, and what has come after it."""
    received = b""
    while b"\n" not in received and (data := os.read(0, CHUNK_BYTES)):
        received += data
    line, _, rest = received.partition(b"\n")
    return *protocol.decode_plan(line), rest


def ignore_warning() -> None:
    """SLURM signals every process of a step: a launcher, which would die of this one, ignores it.

    What it starts does not either, but ranks catch it again.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


class Head:
    """The head as the agent sees it: wishes come in, messages go out, silence means that it is gone."""

    def __init__(self, silence_s: float, received: bytes) -> None:
        self._silence_s = silence_s
        self._heard = time.monotonic()
        self._closed = False
        self._received = received
        os.set_blocking(0, False)
        self._outbox = protocol.Outbox(1)  # a head that is cut off does not read

    @property
    def is_gone(self) -> bool:
        """True after the end of stdin, or silence."""
        return self._closed or time.monotonic() - self._heard > self._silence_s

    def read_wishes(self) -> list[str]:
        """Whole lines since the last call, beats left out."""
        try:
            data = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            return []
        self._closed = not data
        self._heard = time.monotonic()
        *lines, self._received = (self._received + data).split(b"\n")
        return [wish for line in lines if (wish := line.decode(errors="replace").strip()) != protocol.BEAT]

    def send(self, message: protocol.Message) -> None:
        """Send a message as soon as the head takes it; output is dropped where it takes none for long."""
        if not isinstance(message, Output) or len(self._outbox) <= MAX_UNSENT_BYTES:
            self._outbox.put(protocol.encode(message))

    def flush(self) -> bool:
        """Write what can be written now; True when nothing is left."""
        return self._outbox.flush()


class NodeAgent:
    """Runs one job on this host to its end.

    inbox: signals to the agent itself, as of a batch system that ends its step: wishes to stop.
    """

    def __init__(self, plan: LaunchPlan, node_rank: int, head: Head, inbox: SignalInbox) -> None:
        self._plan = plan
        self._name = plan.hosts[node_rank].remote.name
        command = plan.hosts[node_rank].command
        assert command is not None
        self._command = command
        self._first_rank, self._num_ranks = sum(plan.ranks[:node_rank]), plan.ranks[node_rank]
        self._head = head
        self._inbox = inbox
        self._selector = selectors.DefaultSelector()
        self._outputs = RankOutputs(self._num_ranks)
        self._failure_file = self._outputs.directory / "failure.json"
        run = Path(plan.run_directory)
        self._logs = run / "logs"
        self._ranks: dict[int, OutputStream] = {}
        log = self._logs / f"{self._name}-node.log"
        self._launcher_output = OutputStream(None, log, True, head.send)
        self._watch = RankWatch(
            run, self._first_rank, self._num_ranks, plan.token, lambda: ranks_of(plan.token)
        )
        self._ending: JobEnding | None = None
        self._stopping = False
        self._signalled: set[int] = set()
        self._failed_at: float | None = None
        self._num_left = 0

    def run(self) -> Ended:
        """Start, serve, and end everything."""
        terminal = 0 if self._plan.columns and self._first_rank == 0 else None
        for local_rank, descriptor in enumerate(self._outputs.open(terminal, self._plan.columns)):
            rank = self._first_rank + local_rank
            log = self._logs / f"{self._name}-rank{rank}.log"
            stream = OutputStream(rank, log, local_rank != terminal, self._head.send)
            self._ranks[rank] = stream
            self._selector.register(descriptor, selectors.EVENT_READ, stream)
        self._selector.register(0, selectors.EVENT_READ, None)
        try:
            process = self._start()
        except OSError as error:
            self._close()
            where = error.filename or self._command.argv[0]
            fate = f"could not start the launcher: {where}: {error.strerror}"
            return Ended(2, None, 0.0, fate, "", str(self._launcher_output.log), 0, -1)
        return self._account(self._serve(process))

    def _start(self) -> subprocess.Popen[bytes]:
        environment = self._command.environment(os.environ)
        environment[JOB_VARIABLE] = self._plan.token
        environment[OUTPUT_VARIABLE] = str(self._outputs.directory)
        environment[FAILURE_VARIABLE] = str(self._failure_file)
        process = subprocess.Popen(
            self._command.argv,
            env=environment,
            cwd=self._plan.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ignore_warning,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout.fileno(), selectors.EVENT_READ, self._launcher_output)
        return process

    def _serve(self, process: subprocess.Popen[bytes]) -> int:
        """Until nothing of the job runs; the launcher's exit status, 128 + N for signal N."""
        next_beat = 0.0
        while True:
            self._read(TICK_S)
            if self._head.is_gone and self._ending is None:
                self._end()
            self._stopping = self._stopping or bool(self._inbox.received)
            if self._stopping and self._ending is None:
                self._ask_ranks_to_stop()
            if (now := time.monotonic()) >= next_beat:
                next_beat = now + protocol.BEAT_S
                self._head.send(Beat(self._watch.look(), self._watch.newest_checkpoint()))
            self._head.flush()
            code = process.poll()
            if code is not None and self._failed_at is None:
                self._failed_at = now
                self._num_left = 0 if self._ending else len(processes_of(self._plan.token))
                self._end()
            if self._ending is not None and self._ending.advance() and code is not None:
                return code if code >= 0 else 128 - code

    def _read(self, timeout_s: float) -> bool:
        """Take what has come; False if nothing had."""
        events = self._selector.select(timeout_s)
        for key, _ in events:
            if key.data is None:
                for wish in self._head.read_wishes():
                    self._obey(wish)
                if self._head.is_gone:
                    self._selector.unregister(0)
                continue
            try:
                data = os.read(key.fd, CHUNK_BYTES)
            except OSError:  # BlockingIOError: already read
                continue
            if data:
                key.data.write(data)
            else:
                self._selector.unregister(key.fd)
        return bool(events)

    def _obey(self, wish: str) -> None:
        if wish == protocol.STOP:
            self._stopping = True
        elif wish == protocol.END:
            self._end()
        elif wish == protocol.STACKS:
            self._show_stacks()

    def _end(self) -> None:
        self._ending = self._ending or JobEnding(self._plan.token, self._plan.grace_s)

    def _ask_ranks_to_stop(self) -> None:
        """SIGTERM to ranks alone: the launcher above them would kill them after 30 s, and they may need
        longer for their checkpoint. One that appears only now gets it as well."""
        ranks = ranks_of(self._plan.token)
        if not ranks and not self._signalled:
            self._end()  # nothing has begun
        new = [rank for rank in ranks.values() if rank.pid not in self._signalled]
        send(new, signal.SIGTERM)
        self._signalled |= {rank.pid for rank in new}

    def _show_stacks(self) -> None:
        """Every rank prints its stacks; a stopped one is continued for that, as the job ends anyway."""
        ranks = list(ranks_of(self._plan.token).values())
        able = [rank for rank in ranks if handles(rank, STACKS_SIGNAL)]
        send(able, STACKS_SIGNAL)
        send(able, signal.SIGCONT)

    def _account(self, status: int) -> Ended:
        """The account of this host when all is over."""
        while self._read(0.0):
            pass
        failure = read_record(FirstFailure, self._failure_file)
        if status and failure is None and self._stopping and self._watch.all_have_ended():
            status = 0  # the launcher died of the same signal, but it let its ranks finish first
        first = self._first_account()
        stopped = first.status - 128 if first and first.kind == STOPPED and status == 0 else 0
        account = failure or (first if 0 < status < 128 else None)
        self._close()
        rank = failure.rank if failure else None
        fate = failure.fate if failure else "ended" if status == 0 else _fate_of_launcher(status)
        stream = self._launcher_output if rank is None else self._ranks.get(rank, self._launcher_output)
        return Ended(
            status=status,
            rank=rank,
            seconds_ago=self._seconds_since(failure),
            fate=fate,
            kind=account.kind if account else UNKNOWN,
            ranks=account.ranks if account else (),
            cause=((account.text if account else "") or stream.error) if status else "",
            log=str(stream.log),
            num_left=self._num_left,
            newest_checkpoint=self._watch.newest_checkpoint(),
            asked=int(self._inbox.received[0]) if self._inbox.received else 0,
            stopped=stopped,
        )

    def _first_account(self) -> RankFailure | None:
        """The account of the first of the ranks, under a launcher that does not report it (DeepSpeed's)."""
        ranks = range(self._num_ranks)
        accounts = filter(None, (read_failure(self._outputs.directory, local_rank) for local_rank in ranks))
        return min(accounts, key=lambda one: (order_of_blame(one.kind), one.at_s), default=None)

    def _seconds_since(self, failure: FirstFailure | None) -> float:
        """By the rank's own word, else by when its process was missed, else by the launcher's end."""
        now = time.monotonic()
        if failure and failure.at_s is not None:
            return max(0.0, now - failure.at_s)
        if failure and failure.rank is not None:
            missed = self._watch.seconds_since_end(failure.rank)
            if missed is not None:
                return missed
        return now - (self._failed_at or now)

    def _close(self) -> None:
        for stream in (*self._ranks.values(), self._launcher_output):
            stream.close()
        self._outputs.close()


def _fate_of_launcher(status: int) -> str:
    return f"launcher {exit_text(128 - status if status > 128 else status)}"


def main() -> int:
    """Read the plan, run this host's part, report; 0 whatever became of it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of the connection is seen on stdin
    with SignalInbox().open() as inbox:
        try:
            plan, node_rank, received = read_plan()
        except AlphaZeroError as error:
            print(error_line(str(error)), file=sys.stderr)
            return error.exit_code
        guard = start_guard(plan.token, plan.grace_s)
        head = Head(plan.limits.silence_s, received)
        head.send(NodeAgent(plan, node_rank, head, inbox).run())
        os.write(guard, b"q")
        deadline = time.monotonic() + plan.limits.silence_s
        while not head.flush() and time.monotonic() < deadline:
            time.sleep(TICK_S)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
