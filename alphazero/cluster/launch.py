"""Starts the processes of one node and sees them to their end: signals, the last word, exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

import psutil

from alphazero.cluster.commands import Command
from alphazero.cluster.health import Machine
from alphazero.cluster.resolve import LaunchPlan
from alphazero.errors import LaunchError

POLL_S = 0.2
GRACE_S = 5.0  # from SIGTERM to SIGKILL when everything must end at once
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]


def say(text: str) -> None:
    """A line of the launcher, on stderr: stdout belongs to the job and to --dry-run."""
    print(f"alphazero: {text}", file=sys.stderr, flush=True)


def banner(plan: LaunchPlan, machine: Machine, command: Command) -> list[str]:
    """What is about to start, for people."""
    processes = "1 process" if plan.num_processes == 1 else f"{plan.num_processes} processes"
    what = "CPU" if plan.device == "cpu" else "NVIDIA"
    node = f"node {plan.node_rank} of {plan.num_nodes} ({machine.host_name})"
    lines = [
        *plan.notices,
        f"{node}: {processes}, {what}, {plan.launcher}",
        f"master {plan.master_addr}:{plan.master_port}",
    ]
    names = {device.uuid: device.name for device in machine.devices}
    names |= {str(device.index): device.name for device in machine.devices}
    lines += [
        f"local rank {rank}: device {entry} {names.get(entry, '')}" for rank, entry in enumerate(plan.visible)
    ]
    lines += [f"{variable.name}={variable.value} ({variable.reason})" for variable in command.variables]
    if plan.device == "cuda":
        lines += _nccl_lines(command)
    return [*lines, f"command: {command.shown()}"]


def _nccl_lines(command: Command) -> Iterator[str]:
    chosen = {variable.name for variable in command.variables}
    for name, unset in (
        ("NCCL_SOCKET_IFNAME", "NCCL chooses the interface"),
        ("NCCL_IB_DISABLE", "InfiniBand where there is some"),
        ("NCCL_P2P_DISABLE", "peer to peer where the devices can"),
    ):
        if name not in chosen:
            value = os.environ.get(name)
            yield f"{name} unset ({unset})" if value is None else f"{name}={value} (from the environment)"


class SignalInbox:
    """Counts the signals that ask for the end, instead of dying of them, while it is open."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[SignalInbox]:
        """Catch them within; a hang-up that was ignored before (nohup) stays ignored."""
        previous = {}
        for number in STOP_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, self._receive)
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))


class ProcessTree:
    """The processes below a launcher's own (torchrun's agent or deepspeed's runner), ranks among them."""

    def __init__(self, root_pid: int) -> None:
        self._root = psutil.Process(root_pid)
        self._ranks: dict[psutil.Process, str] = {}
        self._known: set[psutil.Process] = {self._root}

    @property
    def num_ranks(self) -> int:
        """Ranks seen so far, ended ones too."""
        return len(self._ranks)

    def look(self) -> None:
        """Take note of processes that are new since the last look."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._known.update(self._root.children(recursive=True))
            self._find_ranks(self._root)

    def _find_ranks(self, parent: psutil.Process) -> None:
        """A rank is the first process on its branch that a launcher told its LOCAL_RANK."""
        for child in parent.children():
            try:
                rank = child.environ().get("LOCAL_RANK")
            except psutil.Error:
                continue  # ended meanwhile
            if rank is None:
                self._find_ranks(child)
            else:
                self._ranks.setdefault(child, rank)

    def living_ranks(self) -> list[psutil.Process]:
        """The ranks that run."""
        return [process for process in self._ranks if _is_alive(process)]

    def living(self) -> list[psutil.Process]:
        """All processes of the job that run, those included whose parent is gone."""
        self.look()
        for process in list(self._known):
            with contextlib.suppress(psutil.Error):
                self._known.update(process.children(recursive=True))
        return [process for process in self._known if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def end_at_once(tree: ProcessTree, root: subprocess.Popen[bytes]) -> None:
    """SIGTERM to every process of the job, SIGKILL to those that are left after GRACE_S."""
    _send(tree.living(), signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and tree.living():
        root.poll()  # reap it: a zombie root would keep its children out of sight
        time.sleep(POLL_S / 4)
    while left := tree.living():
        _send(left, signal.SIGKILL)
        root.poll()
        time.sleep(POLL_S / 4)


def run_command(command: Command, num_ranks: int, say: Say) -> int:
    """Start the job and wait for its end; returns the exit status this program should have.

    That is the job's own, 128 + N where signal N ended it or the user asked for the end by signal N.
    The first such signal is passed to the ranks alone, as SIGTERM: the agent above them would kill them
    after 30 s, and they may need longer for their checkpoint. The second ends everything at once.
    """
    inbox = SignalInbox()
    with inbox.open():
        try:
            process = subprocess.Popen(
                command.argv,
                env=command.environment(os.environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the launcher alone
            )
        except OSError as error:
            raise LaunchError(f"{command.argv[0]}: cannot be started: {error.strerror}") from error
        tree = ProcessTree(process.pid)
        try:
            status = _wait(process, tree, inbox, num_ranks, say)
        finally:
            if left := tree.living():
                say(f"ending {len(left)} processes that the job left behind")
                end_at_once(tree, process)
    if inbox.received:
        if status != 0:
            say(f"the job did not end well (exit status {status}); the newest complete checkpoint remains")
        return 128 + int(inbox.received[0])
    return status


def _wait(
    process: subprocess.Popen[bytes], tree: ProcessTree, inbox: SignalInbox, num_ranks: int, say: Say
) -> int:
    """Wait for the job's end, pass signals on; returns its exit status."""
    told: set[psutil.Process] = set()
    announced = False
    while True:
        try:
            code = process.wait(POLL_S)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            pass
        if tree.num_ranks < num_ranks:
            tree.look()
        if not inbox.received:
            continue
        if not announced:
            announced = True
            say("stopping: ranks finish their step and save a checkpoint (Ctrl-C again ends at once)")
            if not tree.num_ranks:
                _send(tree.living(), signal.SIGTERM)  # nothing has begun
        if len(inbox.received) > 1:
            say("ending at once")
            end_at_once(tree, process)
            continue
        # Ranks that appear only now are told as well.
        ranks = set(tree.living_ranks()) - told
        _send(ranks, signal.SIGTERM)
        told |= ranks
