"""One host's part of a job: starts its launcher, passes output and signals on, and leaves nothing behind.

The program reads the plan and then the head's beats and requests from stdin, and answers on stdout
(protocol.py); on the head's own machine it is a thread of the head. When the head falls silent, it ends the
job. When it dies, the kernel tells the launcher, which ends its ranks.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from alphazero.base.awake_clock import AwakeClock
from alphazero.base.errors import AlphaZeroError
from alphazero.base.log import error_line
from alphazero.base.text import exit_text
from alphazero.launch.agent import protocol
from alphazero.launch.agent.host_actors import HostActors
from alphazero.launch.agent.processes import JobEnding, SignalInbox, processes_of, ranks_of, send
from alphazero.launch.agent.protocol import CHUNK_BYTES, Beat, Channel, Ended, Output
from alphazero.launch.agent.rank_output import OutputStream, RankOutputs
from alphazero.launch.blame import FAILURE_VARIABLE, order_of_blame, read_account
from alphazero.launch.plan.launch_plan import Command, LaunchPlan
from alphazero.machine.die_with_parent import die_with
from alphazero.machine.environment import CHECKOUT
from alphazero.run.rank import JOB_VARIABLE, OUTPUT_VARIABLE, STACKS_SIGNAL, STOPPED, Failure, read_record
from alphazero.run.rank_watch import RankWatch

TICK_S = 0.1
MAX_UNSENT_BYTES = 8 << 20


def begin_launcher(agent: int) -> None:
    """In the launcher's process: it ends with its agent, and torchrun its ranks; no warning kills it.

    SLURM signals every process of a step: a launcher, which would die of SIGUSR1, ignores it. What it starts
    does not either, but ranks catch it again.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    die_with(agent, signal.SIGTERM)


class NodeAgent:
    """Runs one job on this host to its end. Silence of the head means that it is gone.

    inbox: signals to the agent itself, as of a batch system that ends its step: requests to stop. requests:
    what has come with the plan.
    """

    def __init__(
        self, plan: LaunchPlan, node_rank: int, channel: Channel, requests: list[bytes], inbox: SignalInbox
    ) -> None:
        self._plan = plan
        self._channel = channel
        self._clock = AwakeClock()
        self._heard = self._clock()
        self._name = plan.hosts[node_rank].remote.name
        self._command = plan.hosts[node_rank].command  # None where this host only plays
        self._first_rank, self._num_ranks = sum(plan.ranks[:node_rank]), plan.ranks[node_rank]
        self._inbox = inbox
        self._selector = selectors.DefaultSelector()
        self._outputs = RankOutputs(self._num_ranks)
        self._account_file = self._outputs.directory / "account.json"
        run = Path(plan.run_directory)
        self._logs = run / "logs"
        self._ranks: dict[int | None, OutputStream] = {}
        self._launcher_output = OutputStream(
            None, self._logs / f"{self._name}-node.log", True, self._send_output
        )
        actors = plan.hosts[node_rank].actors
        logs = [self._logs / f"{self._name}-actor{number}.log" for number in range(len(actors))]
        self._actor_outputs = [OutputStream(None, log, True, self._send_output) for log in logs]
        outputs = zip(actors, self._actor_outputs, strict=True)
        self._actors = HostActors(tuple(outputs), self._start_one)
        self._watch = RankWatch(
            run, self._first_rank, self._num_ranks, plan.token, self._clock, lambda: ranks_of(plan.token)
        )
        self._ending: JobEnding | None = None
        self._stopping = False
        self._signalled: set[int] = set()
        self._failed_at: float | None = None
        self._num_left = 0
        for request in requests:
            self._obey(request)

    def run(self) -> Ended:
        """Start, serve, and end everything."""
        terminal = 0 if self._plan.columns and self._first_rank == 0 else None
        for local_rank, descriptor in enumerate(self._outputs.open(terminal, self._plan.columns)):
            rank = self._first_rank + local_rank
            log = self._logs / f"{self._name}-rank{rank}.log"
            stream = OutputStream(rank, log, local_rank != terminal, self._send_output)
            self._ranks[rank] = stream
            self._selector.register(descriptor, selectors.EVENT_READ, stream)
        self._selector.register(self._channel.reader, selectors.EVENT_READ, None)
        try:
            process = self._start_one(self._command, self._launcher_output) if self._command else None
        except OSError as error:
            self._close()
            where = error.filename or "it"
            fate, log = f"could not start the launcher: {where}: {error.strerror}", self._launcher_output.log
            return Ended(2, Failure(self._name, None, fate, "", str(log), 2), 0.0, str(log), 0, -1)
        return self._account(self._serve(process))

    def _start_one(self, command: Command, output: OutputStream) -> subprocess.Popen[bytes]:
        environment = command.environment(os.environ)
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, (str(CHECKOUT), *paths))))
        environment[JOB_VARIABLE] = self._plan.token
        environment[OUTPUT_VARIABLE] = str(self._outputs.directory)
        environment[FAILURE_VARIABLE] = str(self._account_file)
        process = subprocess.Popen(
            command.argv,
            env=environment,
            cwd=self._plan.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(begin_launcher, os.getpid()),
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        # By the file, which is thus kept open until all has been read.
        self._selector.register(process.stdout, selectors.EVENT_READ, output)
        return process

    def _serve(self, process: subprocess.Popen[bytes] | None) -> int:
        """Until nothing of the job runs; the launcher's exit status, 128 + N for signal N, 0 without one."""
        next_beat = 0.0
        while True:
            self._read(TICK_S)
            if self._is_alone and self._ending is None:
                self._end()
            self._stopping = self._stopping or bool(self._inbox.received)
            if self._stopping and self._ending is None:
                self._ask_ranks_to_stop()
            if (now := time.monotonic()) >= next_beat:
                next_beat = now + protocol.BEAT_S
                beat = Beat(self._watch.look(), self._watch.newest_checkpoint())
                self._channel.put(protocol.encode(beat))
            self._channel.flush()
            plays = self._actors.advance(starts=self._ending is None and not self._stopping)
            code = process.poll() if process else None if plays else 0
            if code is not None and self._failed_at is None:
                self._failed_at = now
                players = self._actors.pids()
                left = [other for other in processes_of(self._plan.token) if other.pid not in players]
                self._num_left = 0 if self._ending else len(left)
                self._end()
            if self._ending is not None and self._ending.advance() and code is not None:
                return code if code >= 0 else 128 - code

    def _read(self, timeout_s: float) -> bool:
        """Take what has come; False if nothing had."""
        events = self._selector.select(timeout_s)
        for key, _ in events:
            if key.data is None:
                for request in self._channel.read():
                    self._heard = self._clock()
                    self._obey(request)
                if self._is_alone:
                    self._selector.unregister(self._channel.reader)
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

    @property
    def _is_alone(self) -> bool:
        """True after the end of the head's pipe, or silence."""
        silence_s = self._clock() - self._heard
        return self._channel.is_closed or silence_s > self._plan.limits.silence_s

    def _send_output(self, output: Output) -> None:
        """Send it as soon as the head takes it; it is dropped where it takes none for long."""
        if len(self._channel.unsent) <= MAX_UNSENT_BYTES:
            self._channel.put(protocol.encode(output))

    def _obey(self, line: bytes) -> None:
        request = line.decode(errors="replace").strip()
        if request == protocol.STOP:
            self._stopping = True
        elif request == protocol.END:
            self._end()
        elif request == protocol.STACKS:
            # Every rank prints its stacks; a stopped one is continued for that, as the job ends anyway.
            ranks = ranks_of(self._plan.token).values()
            send(ranks, STACKS_SIGNAL)
            send(ranks, signal.SIGCONT)

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

    def _account(self, status: int) -> Ended:
        """The account of this host when all is over."""
        while self._read(0.0):
            pass
        failure, now = read_record(Failure, self._account_file), time.monotonic()
        # That of the first of the ranks, under a launcher that does not report it (DeepSpeed's).
        ranks = range(self._num_ranks)
        accounts = filter(None, (read_account(self._outputs.directory, local_rank) for local_rank in ranks))
        first = min(accounts, key=lambda account: (order_of_blame(account.kind), account.at), default=None)
        is_stopped = first is not None and first.kind == STOPPED
        was_asked = self._stopping or is_stopped
        if status and failure is None and was_asked and self._watch.all_have_ended():
            status = 0  # the launcher died of the same signal, but it let its ranks finish first
        if status and failure is None:
            failure = Failure("", None, f"launcher {exit_text(128 - status if status > 128 else status)}")
            if first and status < 128:
                failure = replace(failure, cause=first.cause, kind=first.kind, ranks=first.ranks)
        self._close()
        if failure is not None:
            stream = self._ranks.get(failure.rank, self._launcher_output)
            cause, log = failure.cause or stream.error, str(stream.log)
            failure = replace(failure, host=self._name, cause=cause, log=log, status=status)
        return Ended(
            status=status,
            failure=failure if status else None,
            seconds_ago=now - (failure.at if failure and failure.at else self._failed_at or now),
            log=str(self._launcher_output.log),
            num_left=self._num_left,
            newest_checkpoint=self._watch.newest_checkpoint(),
            asked=int(self._inbox.received[0]) if self._inbox.received else 0,
            stopped=first.status - 128 if first and is_stopped and status == 0 else 0,
        )

    def _close(self) -> None:
        for stream in (*self._ranks.values(), *self._actor_outputs, self._launcher_output):
            stream.close()
        self._outputs.close()
        self._selector.close()


def serve(reader: int, writer: int, inbox: SignalInbox) -> None:
    """Read the plan, run this host's part, report. Raises LaunchError where no plan comes."""
    channel = Channel(reader, writer)
    lines: list[bytes] = []
    while not lines and not channel.is_closed:
        select.select([reader], [], [])
        lines = channel.read()
    plan, node_rank = protocol.decode_plan(lines[0] if lines else b"")
    ended = NodeAgent(plan, node_rank, channel, lines[1:], inbox).run()
    channel.put(protocol.encode(ended))
    deadline = time.monotonic() + plan.limits.silence_s
    while not channel.flush() and time.monotonic() < deadline:
        time.sleep(TICK_S)


def run_here(reader: int, writer: int) -> None:
    """The agent of the head's own machine, in a thread of the head, which gets all signals."""
    try:
        serve(reader, writer, SignalInbox())
    finally:
        os.close(reader)
        os.close(writer)


def main() -> int:
    """The agent of another host; 0 whatever became of its part."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of the connection is seen on stdin
    with SignalInbox().open() as inbox:
        try:
            serve(0, 1, inbox)
        except AlphaZeroError as error:
            print(error_line(str(error)), file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
