"""The head's connections: commands on many hosts at once, and an agent on each.

A command reaches another host by ssh or srun, as an argument list; no input is ever shell text.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.text import last_line
from alphazero.launch.agent import protocol
from alphazero.launch.agent.protocol import CHUNK_BYTES, Message, Output
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import LaunchPlan, Remote, SshOptions
from alphazero.machine.environment import CHECKOUT

# Known hosts only, never a question, a dead connection noticed within 9 s.
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes"),
    *("-o", "ControlPath=none"),
)
# One task on one node with all that the job has there. --overlap: a shell under `srun --pty` holds the node
# already; --cpu-bind=none: the ranks of the node share its cores among themselves.
SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1")
# What srun would read as its options, from the wishes of the batch script: each is for many tasks.
SRUN_REMOVED = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_TASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK",
    "SLURM_CPUS_PER_GPU",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_HINT",
)


def ssh_argv(target: str, command: Sequence[str], options: SshOptions) -> list[str]:
    """Run `command` on `target`, [user@]host; IPv6 addresses without brackets.

    sshd hands the words to the login shell of that user as one text: each is quoted for a POSIX shell.
    """
    return [*SSH, *options.words, "--", target, shlex.join(command)]


def srun_argv(host: str, command: Sequence[str]) -> list[str]:
    """Run `command` on SLURM's node `host`, inside the allocation of this process; no shell is between."""
    without = [word for name in SRUN_REMOVED for word in ("-u", name)]
    return ["env", *without, *SRUN, f"--nodelist={host}", "--export=ALL", "--", *command]


MAX_PARALLEL = 64
# Of one host: an answer that names 100,000 files fits, and no host fills the head's memory.
MOST_OUTPUT_BYTES = 16 << 20
# Runs on the host: $1 checkout, $2 interpreter, the rest its arguments. A constant: what comes from a user
# is quoted arguments only. The interpreter is checked after the checkout, it may lie within.
REMOTE_SCRIPT = (
    '[ -f "$1/alphazero/__init__.py" ] || exit 91; [ -x "$2" ] || exit 92; '
    'PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; shift; exec "$@"'
)
NO_CHECKOUT, NO_INTERPRETER, SSH_FAILED = 91, 92, 255


@dataclass(frozen=True)
class Answer:
    """What a command on a host came to; status is None where it took too long."""

    remote: Remote
    status: int | None
    output: str
    errors: str


def remote_argv(
    remote: Remote, python: str, arguments: Sequence[str], checkout: Path = CHECKOUT
) -> list[str]:
    """The command that runs `python ARGUMENTS` with the checkout of that host."""
    command = ["/bin/sh", "-c", REMOTE_SCRIPT, "sh", str(checkout), python, *arguments]
    if not remote.target:
        return command
    if remote.by_srun:
        return srun_argv(remote.target, command)
    return ssh_argv(remote.target, command, remote.ssh)


def start_there(
    remote: Remote, arguments: Sequence[str], stderr: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Our own interpreter there with pipes, in a separate session: a Ctrl-C reaches the head alone."""
    return subprocess.Popen(
        remote_argv(remote, sys.executable, arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )


def run_everywhere(
    remotes: Sequence[Remote], arguments: Sequence[str], inputs: Sequence[str], timeout_s: float
) -> list[Answer]:
    """Run a program on all hosts at once, each with its input; answers in the hosts' order."""

    def ask(remote: Remote, text: str) -> Answer:
        process = start_there(remote, arguments)
        try:
            output, errors = _converse(process, text.encode(), timeout_s)
            return Answer(remote, process.returncode, output, errors)
        except subprocess.TimeoutExpired:
            return Answer(remote, None, "", "")
        finally:
            kill_group(process)

    if not remotes:
        return []
    with ThreadPoolExecutor(min(len(remotes), MAX_PARALLEL)) as pool:
        return list(pool.map(ask, remotes, inputs))


def _converse(process: subprocess.Popen[bytes], text: bytes, timeout_s: float) -> tuple[str, str]:
    """As Popen.communicate, but of each output only the end is kept: a host may send without end."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + timeout_s
    outbox = protocol.Outbox(process.stdin.fileno())
    outbox.put(text)
    taken = {process.stdout.fileno(): Tail(), process.stderr.fileno(): Tail()}
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_WRITE if pipe is process.stdin else selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    is_over = outbox.flush()
                else:
                    data = os.read(key.fd, CHUNK_BYTES)
                    taken[key.fd].add(data)
                    is_over = not data
                if is_over:
                    selector.unregister(key.fileobj)
                    if key.fileobj is process.stdin:
                        process.stdin.close()
    process.wait(max(0.0, deadline - time.monotonic()))
    return taken[process.stdout.fileno()].text(), taken[process.stderr.fileno()].text()


class Tail:
    """The last MOST_OUTPUT_BYTES of what a process prints, whatever it prints."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Take more; the oldest goes in large pieces."""
        self._data += data
        if len(self._data) > 2 * MOST_OUTPUT_BYTES:
            del self._data[:-MOST_OUTPUT_BYTES]

    def text(self) -> str:
        """What is left of it."""
        return self._data[-MOST_OUTPUT_BYTES:].decode(errors="replace")


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a child that leads its own group, and the group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


SSH_FAULTS = (
    (r"Host key verification failed", "its ssh host key is not the one in known_hosts", "the known key"),
    (r"Permission denied", "ssh login refused", "a key login that asks for no password"),
    (r"Could not resolve hostname", "its name is not known here", "a name or address that resolves"),
    (r"timed out|No route to host|Network is unreachable|not responding", "no answer", "a host that is up"),
    (r"Connection refused", "no ssh server answers", "sshd on the host"),
    (r"Connection (closed|reset)|Broken pipe", "the connection broke", "a host that is up"),
)


def explain_ssh(errors: str) -> str:
    """One phrase for the output of an ssh that failed: what is the matter, and what was expected."""
    for pattern, matter, wanted in SSH_FAULTS:
        if re.search(pattern, errors):
            return f"{matter}; expected {wanted} (ssh: {last_line(errors)})"
    return f"ssh failed: {last_line(errors) or 'no output'}; expected a login without questions"


class AgentLink:
    """The agent of one host: started at once, its messages read without blocking, wishes sent to it."""

    def __init__(self, plan: LaunchPlan, node_rank: int) -> None:
        self.plan = plan
        self.remote = plan.hosts[node_rank].remote
        self.heard = time.monotonic()
        self.has_answered = False
        self.ended: protocol.Ended | None = None
        self.errors = ""  # what ssh, a login script or the agent printed on stderr
        self._received = b""
        self._sending = threading.Lock()  # beats come from a separate thread
        self.process = start_there(self.remote, programs.words_of(programs.NODE_AGENT))
        for descriptor in self.descriptors:
            os.set_blocking(descriptor, False)
        assert self.process.stdin is not None
        self._outbox = protocol.Outbox(self.process.stdin.fileno())
        self._outbox.put(protocol.encode_plan(plan, node_rank))

    @property
    def descriptors(self) -> tuple[int, int]:
        """To wait on: messages, and stderr."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return self.process.stdout.fileno(), self.process.stderr.fileno()

    def send(self, wish: str) -> None:
        """Say something to the agent; what the connection does not take now goes with the next call."""
        assert self.process.stdin is not None
        with self._sending:
            if not self.process.stdin.closed:
                self._outbox.put(f"{wish}\n".encode())

    def read(self, descriptor: int, take: Callable[[Message], None]) -> bool:
        """Take what has come; False at the end of that pipe."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        if descriptor == self.descriptors[1]:
            self.errors = (self.errors + data.decode(errors="replace"))[-CHUNK_BYTES:]
            return True
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > MOST_OUTPUT_BYTES:  # no message of ours is as long
            self._received = b""
        for line in lines:
            message = protocol.decode(line)
            if message is None:  # a login script of the host speaks
                message = Output(None, line.decode(errors="replace") + "\n")
            else:
                self.heard = time.monotonic()
                self.has_answered = True
            if isinstance(message, protocol.Ended):
                self.ended = message
            take(message)
        return True

    def close(self) -> None:
        """Close the connection; the agent, if it still runs, ends the job of its host."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if not self.remote.target:  # not ssh: it is the agent itself, which must be let finish
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(self.plan.grace_s + 10)
        kill_group(self.process)
