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
from alphazero.machine.die_with_parent import guarded
from alphazero.machine.environment import START
from alphazero.machine.machine import (
    WORKER_VARIABLE,
    Machine,
    look_at_this_machine,
    omp_threads,
    visible_devices,
)

POLL_S = 0.2
SALVAGE_S = 60.0  # for the others to give back what they have, after a worker was lost
EXIT_S = 5.0
DONE, FAILED = "done", "failed"  # kinds of replies beside those of the commands
STOP = b""  # the request to end a task early; every task is longer


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
    machine, setting = look(device), environment.get("CUDA_VISIBLE_DEVICES")
    cards = visible_devices(machine.devices, setting)
    if device == "cuda" and not cards:
        raise LaunchError(f"--device cuda: expected an NVIDIA device; {machine.host_name} shows none")
    most, noun = (len(cards), "NVIDIA device") if cards else (machine.num_cores, "core")
    if gpus > most:
        raise LaunchError(
            f"--gpus {gpus}: this machine has {counted(most, noun)} in use; expected at most {most}"
        )
    number = gpus if gpus > 0 else max(1, len(cards))
    if number == 1:
        return ()
    shared = {"OMP_NUM_THREADS": str(omp_threads(environment) or max(1, machine.num_cores // number))}
    if not cards:
        return (Place("cpu", shared),) * number
    if setting is None:
        shared["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts
    return tuple(Place("cuda", {**shared, "CUDA_VISIBLE_DEVICES": card}) for card in cards[:number])


@dataclass(frozen=True)
class Reply:
    """What a worker sent: its number from 0, and a kind that the command chose."""

    worker: int
    kind: str
    content: bytes


class Workers:
    """The parent's side, a context manager: no worker outlives the block."""

    def __init__(self, command: str, args: argparse.Namespace, places: Sequence[Place]) -> None:
        self._command, self._args, self._places = command, args, places
        self._started: list[tuple[subprocess.Popen[bytes], Connection]] = []

    def __enter__(self) -> Workers:
        self._started = [self._start(place) for place in self._places]
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._started:
            process.kill()
            process.wait()
            connection.close()

    def __len__(self) -> int:
        return len(self._places)

    def replies(self, tasks: Sequence[str], go_on: Callable[[], bool] | None = None) -> Iterator[Reply]:
        """Give each worker its task; what they send until all have done it.

        go_on is called several times per second; once it returns False, the workers are asked to end their
        tasks early. Raises what a worker raised, LostConnectionError for one that ended: with go_on after the
        others have ended theirs and sent what they have.
        """
        fault: AlphaZeroError | None = None
        deadline, is_stopping = 0.0, False
        busy = {connection: number for number, (_, connection) in enumerate(self._started)}
        for connection, task in zip(busy, tasks, strict=True):
            _send(connection, task.encode())
        while busy and not (fault and time.monotonic() > deadline):
            if go_on is not None and not is_stopping and (fault or not go_on()):
                is_stopping = True
                for connection in busy:
                    _send(connection, STOP)
            for ready in wait(list(busy), POLL_S):
                assert isinstance(ready, Connection)
                number = busy[ready]
                try:
                    kind, _, content = ready.recv_bytes().partition(b"\n")
                except (EOFError, OSError):
                    kind, content = FAILED.encode(), self._why_lost(number)
                if kind.decode() not in (DONE, FAILED):
                    yield Reply(number, kind.decode(), content)
                    continue
                del busy[ready]
                if kind.decode() == FAILED and not fault:
                    name, text = json.loads(content)
                    fault = ERRORS_BY_KIND.get(name, AlphaZeroError)(text)
                    deadline = time.monotonic() + (SALVAGE_S if go_on is not None else 0.0)
        if fault:
            raise fault

    def _start(self, place: Place) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = Pipe()
        variables = {**place.variables, WORKER_VARIABLE: str(theirs.fileno())}
        process = subprocess.Popen(
            guarded((sys.executable, START, self._command)),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=2,  # its words go where errors go: the result is the parent's
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C is the parent's alone
        )
        theirs.close()
        arguments = {**vars(self._args), "device": place.device}
        # All arguments are of JSON's types but paths.
        _send(ours, json.dumps(arguments, default=lambda path: {"path": str(path)}).encode())
        return process, ours

    def _why_lost(self, number: int) -> bytes:
        process = self._started[number][0]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_S)
        process.kill()
        fate = f"(pid {process.pid}) {exit_text(process.wait())}"
        who = f"process {number + 1} of {len(self._places)} of this command"
        return json.dumps([LostConnectionError.kind, f"{who} {fate}; expected it to do its share"]).encode()


def _send(connection: Connection, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the worker has ended, and replies() says why
        connection.send_bytes(message)


class Worker:
    """A worker's side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tasks(self) -> Iterator[bytes]:
        """One after the other; a task is done when the next one is asked for."""
        while (task := self._connection.recv_bytes()) != STOP:  # it came after the last task was done
            yield task
            self.reply(DONE)

    def reply(self, kind: str, content: str | bytes = b"") -> None:
        """Send something to the parent."""
        text = content.encode() if isinstance(content, str) else content
        self._connection.send_bytes(kind.encode() + b"\n" + text)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether the task is to end early."""
        return self._connection.poll()


def serve(work: Callable[[argparse.Namespace, Worker], None]) -> int:
    """Called in a worker: do the work of its command; returns the exit status."""
    connection = Connection(int(os.environ.pop(WORKER_VARIABLE)))
    worker = Worker(connection)

    def path(table: dict[str, Any]) -> Any:  # noqa: ANN401 - a table or what it stands for
        return Path(table["path"]) if table.keys() == {"path"} else table

    try:
        work(argparse.Namespace(**json.loads(connection.recv_bytes(), object_hook=path)), worker)
    except AlphaZeroError as error:
        worker.reply(FAILED, json.dumps([error.kind, str(error)]))
        return error.exit_code
    except (EOFError, ConnectionError):  # the parent has ended
        pass
    return 0
