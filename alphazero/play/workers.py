"""Worker processes of one command: each has a device and does its share; the parent alone prints and writes.

The command starts `alphazero COMMAND` N times. A worker gets the parsed arguments, then tasks, and replies;
what is sent is JSON, numbers or Arrow, never a pickle. Workers do not see Ctrl-C, and end with their parent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from alphazero.base.errors import ERRORS_BY_KIND, AlphaZeroError, LaunchError, LostConnectionError
from alphazero.base.text import counted, exit_text
from alphazero.launch.plan.launch_plan import HostPlan, Remote
from alphazero.launch.plan.node import resolve_devices
from alphazero.machine.die_with_parent import guarded
from alphazero.machine.environment import CHECKOUT
from alphazero.machine.machine import WORKER_VARIABLE, Machine, look_at_this_machine, omp_threads

GLANCE_S = 0.2
# For the others to give back what they have, after a worker was lost.
PATIENCE_S = 60.0
END_LIMIT_S = 5.0
# Kinds of messages beside those of the commands.
TASK, STOP, DONE, FAILED = "task", "stop", "done", "failed"


@dataclass(frozen=True)
class Place:
    """Where a worker computes. device: cuda or cpu. variables: of its environment, beside the parent's."""

    device: str
    variables: Mapping[str, str]


def find_places(
    gpus: int,
    device: str,
    environment: Mapping[str, str] = os.environ,
    look: Callable[[str], Machine] = look_at_this_machine,
) -> tuple[Place, ...]:
    """A place for each process of --gpus (-1: one per GPU); none where one process does, this one.

    device: auto, cuda or cpu. Without a GPU the processes share the cores. Raises LaunchError for more than
    there are.
    """
    if gpus == 1:
        return ()
    machine = look(device)
    own = HostPlan(Remote(machine.host_name), "", None if gpus == -1 else gpus)
    kind, own, _ = resolve_devices(device, own, f"--gpus {gpus}", machine, environment)
    number = own.num_ranks or 1
    if kind == "cpu" and number > machine.num_cores:
        cores = counted(machine.num_cores, "core")
        raise LaunchError(
            f"--gpus {gpus}: this machine has no NVIDIA device in use and {cores}; expected at most as many"
        )
    if number == 1:
        return ()
    threads = omp_threads(environment) or max(1, machine.num_cores // number)
    shared = {"OMP_NUM_THREADS": str(threads)}
    if kind == "cpu":
        return (Place(kind, shared),) * number
    if "CUDA_VISIBLE_DEVICES" not in environment:
        shared["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts
    return tuple(Place(kind, {**shared, "CUDA_VISIBLE_DEVICES": one}) for one in own.devices)


@dataclass(frozen=True)
class Reply:
    """What a worker sent: its number from 0, and a kind that the command chose."""

    worker: int
    kind: str
    content: bytes


class Workers:
    """The parent's side, a context manager: no worker outlives the block."""

    def __init__(self, command: str, args: argparse.Namespace, places: Sequence[Place]) -> None:
        self._started: list[tuple[subprocess.Popen[bytes], Connection]] = []
        self._busy: dict[Connection, int] = {}
        self._has_stopped = False
        self._command = command
        self._args = args
        self._places = places

    def __enter__(self) -> Workers:
        try:
            for place in self._places:
                self._start(place)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __len__(self) -> int:
        return len(self._places)

    def ask(self, tasks: Sequence[str]) -> None:
        """A task for each worker; all have done the ones before."""
        for number, task in enumerate(tasks):
            connection = self._started[number][1]
            self._busy[connection] = number
            with contextlib.suppress(OSError):  # it has ended, and replies() says why
                connection.send_bytes(_message(TASK, task))

    def replies(self, go_on: Callable[[], bool] | None = None) -> Iterator[Reply]:
        """What the workers send until all have done their tasks.

        go_on is called several times per second; once it returns False, the workers are asked to end their
        tasks early. Raises what a worker raised, LostConnectionError for one that ended: with go_on after the
        others have ended theirs and sent what they have.
        """
        fault: AlphaZeroError | None = None
        deadline = 0.0
        while self._busy and not (fault and time.monotonic() > deadline):
            if go_on is not None and (fault or not go_on()):
                self._stop()
            ready = wait(list(self._busy), GLANCE_S)
            for connection in ready:
                assert isinstance(connection, Connection)
                number = self._busy[connection]
                found: AlphaZeroError | None = None
                try:
                    kind, content = _parts(connection.recv_bytes())
                except (EOFError, OSError):
                    kind, content, found = DONE, b"", self._lost(number)
                if kind == FAILED:
                    name, text = json.loads(content)
                    found = ERRORS_BY_KIND.get(name, AlphaZeroError)(text)
                if kind in (DONE, FAILED):
                    del self._busy[connection]
                else:
                    yield Reply(number, kind, content)
                if found and not fault:
                    fault = found
                    deadline = time.monotonic() + (PATIENCE_S if go_on is not None else 0.0)
        if fault:
            raise fault

    def _start(self, place: Place) -> None:
        ours, theirs = Pipe()
        path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
        variables = {**place.variables, "PYTHONPATH": path, WORKER_VARIABLE: str(theirs.fileno())}
        process = subprocess.Popen(
            guarded((sys.executable, "-m", "alphazero", self._command)),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=2,  # its words go where errors go: the result is the parent's
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C is the parent's alone
        )
        theirs.close()
        self._started.append((process, ours))
        with contextlib.suppress(OSError):  # as in ask()
            arguments = {**vars(self._args), "device": place.device}
            ours.send_bytes(json.dumps(arguments, default=_table).encode())

    def _stop(self) -> None:
        if self._has_stopped:
            return
        self._has_stopped = True
        for connection in self._busy:
            with contextlib.suppress(OSError):  # as in ask()
                connection.send_bytes(_message(STOP, ""))

    def _lost(self, number: int) -> LostConnectionError:
        process = self._started[number][0]
        try:
            code = process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        fate = f"(pid {process.pid}) {exit_text(code)}"
        return LostConnectionError(
            f"process {number + 1} of {len(self._places)} of this command {fate}; expected it to do its share"
        )

    def _end(self) -> None:
        for process, _ in self._started:
            process.kill()
        for process, connection in self._started:
            process.wait()
            connection.close()
        self._busy.clear()


class Worker:
    """A worker's side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tasks(self) -> Iterator[bytes]:
        """One after the other; a task is done when the next one is asked for."""
        while True:
            kind, task = _parts(self._connection.recv_bytes())
            if kind == STOP:  # it came after the last task was done
                return
            yield task
            self.reply(DONE)

    def reply(self, kind: str, content: str | bytes = b"") -> None:
        """Send something to the parent."""
        self._connection.send_bytes(_message(kind, content))

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether the task is to end early."""
        return self._connection.poll()


def serve(
    work: Callable[[argparse.Namespace, Worker], None],
    prepare: Callable[[argparse.Namespace], None] = lambda arguments: None,
) -> int:
    """Called in a worker: do the work of its command; returns the exit status. prepare: comes first."""
    connection = Connection(int(os.environ.pop(WORKER_VARIABLE)))
    worker = Worker(connection)
    try:
        arguments = json.loads(connection.recv_bytes(), object_hook=_path)
        parsed = argparse.Namespace(**arguments)
        prepare(parsed)
        work(parsed, worker)
    except AlphaZeroError as error:
        worker.reply(FAILED, json.dumps([error.kind, str(error)]))
        return error.exit_code
    except (EOFError, ConnectionError):  # the parent has ended
        return 0
    return 0


def _message(kind: str, content: str | bytes) -> bytes:
    return kind.encode() + b"\n" + (content.encode() if isinstance(content, str) else content)


def _parts(message: bytes) -> tuple[str, bytes]:
    kind, _, content = message.partition(b"\n")
    return kind.decode(), content


def _table(value: object) -> dict[str, str]:
    """What stands for a path in JSON; the other arguments are numbers, texts and lists."""
    if not isinstance(value, Path):
        raise TypeError(f"{value!r}: expected an argument of JSON's types, or a path")
    return {"path": str(value)}


def _path(table: dict[str, Any]) -> Any:  # noqa: ANN401 - a table or what it stands for
    return Path(table["path"]) if table.keys() == {"path"} else table
