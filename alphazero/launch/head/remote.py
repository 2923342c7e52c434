"""The head's connections: commands on many hosts at once, and an agent on each.

A command reaches another host by ssh or srun, as an argument list; no input is ever shell text.
"""

from __future__ import annotations

import contextlib
import os
import re
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
from subprocess import PIPE
from typing import BinaryIO

from alphazero.base.text import last_line
from alphazero.launch.agent import protocol
from alphazero.launch.agent.node_agent import run_here
from alphazero.launch.agent.protocol import CHUNK_BYTES, Message, Output
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import LaunchPlan, Remote
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
# What srun would read as its options, from the options of the batch script: each is for many tasks.
SRUN_REMOVED = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"),
    *("SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_TRES"),
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_GPUS_PER_TASK"),
    *("SLURM_GPU_BIND", "SLURM_CPU_BIND", "SLURM_DISTRIBUTION", "SLURM_EXACT", "SLURM_HINT"),
)


def ssh_argv(target: str, command: Sequence[str], config: str = "") -> list[str]:
    """Run `command` on `target`, [user@]host; IPv6 addresses without brackets.

    sshd hands the words to the login shell of that user as one text: each is quoted for a POSIX shell.
    """
    return [*SSH, *(("-F", config) if config else ()), "--", target, shlex.join(command)]


def srun_argv(host: str, command: Sequence[str]) -> list[str]:
    """Run `command` on SLURM's node `host`, inside the allocation of this process; no shell is between."""
    without = [word for name in SRUN_REMOVED for word in ("-u", name)]
    return ["env", *without, *SRUN, f"--nodelist={host}", "--export=ALL", "--", *command]


GLANCE_S = 0.02
MAX_PARALLEL = 64
# Of one host: an answer that names 100,000 files fits, and no host fills the head's memory.
MOST_OUTPUT_BYTES = 16 << 20
# Runs on the host: $1 checkout, $2 interpreter, the rest its arguments. A constant: what comes from a user
# is quoted arguments only. The interpreter is checked after the checkout, it may lie within.
REMOTE_SCRIPT = (
    '[ -f "$1/alphazero/__init__.py" ] || exit 91; [ -e "$2" ] || [ -L "$2" ] || exit 92; '
    '[ -x "$2" ] && [ -r "$2" ] || exit 93; '
    'PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; shift; exec "$@"'
)
NO_CHECKOUT, NO_INTERPRETER, FORBIDDEN, SSH_FAILED = 91, 92, 93, 255


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
    return ssh_argv(remote.target, command, remote.ssh_config)


def start_there(
    remote: Remote,
    arguments: Sequence[str],
    stdin: int | BinaryIO = PIPE,
    stdout: int | BinaryIO = PIPE,
    stderr: int | BinaryIO = PIPE,
) -> subprocess.Popen[bytes]:
    """Our own interpreter there, in a separate session: a Ctrl-C reaches the head alone."""
    argv = remote_argv(remote, sys.executable, arguments)
    return subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)


def run_everywhere(
    remotes: Sequence[Remote], arguments: Sequence[str], inputs: Sequence[str], timeout_s: float
) -> list[Answer]:
    """Run a program on all hosts at once, each with its input; answers in the hosts' order."""

    def ask(remote: Remote, text: str) -> Answer:
        # Files in memory, not pipes: no thread has to read while the other side writes.
        with in_memory(text) as stdin, in_memory() as output, in_memory() as errors:
            process = start_there(remote, arguments, stdin, output, errors)
            deadline = time.monotonic() + timeout_s
            try:
                while process.poll() is None:
                    num_bytes = max(os.fstat(file.fileno()).st_size for file in (output, errors))
                    if num_bytes > MOST_OUTPUT_BYTES or time.monotonic() > deadline:
                        return Answer(remote, None, "", "")
                    time.sleep(GLANCE_S)
            finally:
                kill_group(process)
            for file in (output, errors):
                file.seek(0)
            texts = (file.read().decode(errors="replace") for file in (output, errors))
            return Answer(remote, process.returncode, *texts)

    if not remotes:
        return []
    with ThreadPoolExecutor(min(len(remotes), MAX_PARALLEL)) as pool:
        return list(pool.map(ask, remotes, inputs))


def in_memory(text: str = "") -> BinaryIO:
    """A file without a disk."""
    file = os.fdopen(os.memfd_create("question or answer"), "w+b", buffering=0)
    file.write(text.encode())
    file.seek(0)
    return file


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


def explain_ssh(errors: str, *, has_answered: bool = False) -> str:
    """One phrase for the output of an ssh that failed: what is the matter, and what was expected.

    has_answered: what ran there has spoken before. ssh ends in the same way where that is killed by a signal,
    but says nothing then.
    """
    for pattern, matter, wanted in SSH_FAULTS:
        if re.search(pattern, errors):
            return f"{matter}; expected {wanted} (ssh: {last_line(errors)})"
    if has_answered or not errors.strip():
        return "its program there was killed by a signal; expected it to end by itself (see dmesg there)"
    return f"ssh failed: {last_line(errors)}; expected a login without questions"


class AgentLink:
    """The agent of one host: a program there, or a thread of this process for this machine.

    Its messages are read without blocking, requests are sent to it. heard: when it last spoke, by `clock`.
    """

    def __init__(self, plan: LaunchPlan, node_rank: int, clock: Callable[[], float]) -> None:
        self.plan = plan
        self.remote, self.only_plays = plan.hosts[node_rank].remote, plan.hosts[node_rank].only_plays
        self._clock = clock
        self.heard = clock()
        self.has_answered = False
        self.errors = ""  # what ssh, a login script or the agent printed on stderr
        self._sending = threading.Lock()  # beats come from a separate thread
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        if self.remote.target:
            self._process = process = start_there(self.remote, programs.words_of(programs.NODE_AGENT))
            pipes = (process.stdin, process.stdout, process.stderr)
            writer, *readers = (os.dup(pipe.fileno()) for pipe in pipes if pipe)
            for pipe in pipes:
                if pipe:
                    pipe.close()
        else:
            from_head, writer = os.pipe()
            reader, to_head = os.pipe()
            readers = [reader]
            self._thread = threading.Thread(target=run_here, args=(from_head, to_head), daemon=True)
            self._thread.start()
        self._writer: int | None = writer
        self.descriptors = readers  # to wait on: messages, and stderr of a program
        for descriptor in readers[1:]:
            os.set_blocking(descriptor, False)
        self._channel = protocol.Channel(readers[0], writer)
        self._channel.put(protocol.encode_plan(plan, node_rank))

    def send(self, request: str) -> None:
        """Say something to the agent; what the connection does not take now goes with the next call."""
        with self._sending:
            if self._writer is not None:
                self._channel.put(f"{request}\n".encode())

    def read(self, descriptor: int, take: Callable[[Message], None]) -> bool:
        """Take what has come; False at the end of that pipe."""
        if descriptor != self.descriptors[0]:
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                return True
            self.errors = (self.errors + data.decode(errors="replace"))[-CHUNK_BYTES:]
            return bool(data)
        for line in self._channel.read():
            message = protocol.decode(line)
            if message is None:  # a login script of the host speaks
                message = Output(None, line.decode(errors="replace") + "\n")
            else:
                self.heard = self._clock()
                self.has_answered = True
            take(message)
        return not self._channel.is_closed

    def exit_code(self) -> int:
        """Of the agent, or of ssh, whose messages have ended; 0 where it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(2.0) if self._process else 0
        return 0

    def close(self) -> None:
        """Close the connection; the agent, if it still runs, ends the job of its host."""
        with self._sending:
            assert self._writer is not None
            os.close(self._writer)
            self._writer = None
        if self._thread is not None:
            self._thread.join(self.plan.grace_s + 10)
        for descriptor in self.descriptors:
            os.close(descriptor)
        if self._process is not None:
            kill_group(self._process)
