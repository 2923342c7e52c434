"""Training jobs without their start-up: ranks forked from a process that has imported everything.

A job started by torchrun spends seven of its eight seconds importing. A forked rank runs the same script
with the same arguments and computes the same bits; it can be killed at any instant.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path

from tests.support.jobs.jobs import TINY, TRAIN, environment, free_port, without_times
from tests.support.paths import REPOSITORY

COMMAND = REPOSITORY / "alphazero" / "__main__.py"


class Zygote:
    """The process that forks, and what it said; a context manager.

    with_devices: its ranks see the GPUs there are, unless a job hides them.
    """

    def __init__(self, with_devices: bool = False) -> None:
        self._with_devices = with_devices
        self._channel, theirs = Pipe()
        self._ended: dict[int, int] = {}
        self._numbers = itertools.count(1)
        # Arrow's spare allocator would start a thread; a process that forks must have one only.
        variables = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
        if with_devices:
            # Neither a pool of compilers nor a count of GPUs that opens CUDA: both would not survive a fork.
            variables |= {"TORCH_WARM_POOL": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        else:
            variables["DS_ACCELERATOR"] = "cpu"
        program = Path(__file__).with_name("zygote_process.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(theirs.fileno()), str(os.getpid())],
            env={**environment(None if with_devices else ""), **variables},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        assert self._receive(60.0) == {"ready": True}

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *error: object) -> None:
        """End the process, and with it every rank that still runs."""
        self._channel.close()
        self._process.wait(timeout=30)

    def start(
        self,
        directory: Path,
        ranks: int,
        arguments: Sequence[str],
        script: Path = TRAIN,
        variables: Mapping[str, str | None] | None = None,
    ) -> "Job":
        """`python script arguments` on `ranks` ranks in `directory`, a thread each and without GPUs a core.

        variables: further ones of the environment, which come last; None for one that must not be there.
        """
        directory.mkdir(parents=True, exist_ok=True)
        cores, port, number = sorted(os.sched_getaffinity(0)), free_port(), next(self._numbers)
        outputs = [directory / f"output-{number:03d}-rank{rank}.txt" for rank in range(ranks)]
        given = {**environment(None if self._with_devices else ""), **(variables or {})}
        is_bound = given.get("CUDA_VISIBLE_DEVICES") == ""
        tasks = [
            {
                "core": cores[rank % len(cores)] if is_bound else None,
                "output": str(output),
                "environment": {**given, **rank_variables(rank, ranks, port), **(variables or {})},
            }
            for rank, output in enumerate(outputs)
        ]
        request = {"directory": str(directory), "script": str(script), "arguments": list(arguments)}
        self._channel.send({**request, "ranks": tasks})
        while "started" not in (message := self._receive(30.0)):
            self._note(message)
        return Job(self, message["started"], outputs)

    def run_command(self, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """`alphazero WORDS` in `directory`; standard output and error come as one."""
        job = self.start(directory, 1, words, COMMAND, dict.fromkeys(rank_variables(0, 1, 0)))
        (status,) = job.wait()
        return subprocess.CompletedProcess(words, status, job.output(), job.output())

    def run_job(
        self,
        directory: Path,
        store: Path,
        ranks: int,
        *extra: str,
        script: Path = TRAIN,
        status: int = 0,
        timeout_s: float = 120.0,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """jobs.run_job in less time: a tiny job to its end; what it printed."""
        job = self.start(directory, ranks, [*TINY, "--data", str(store), *extra], script, variables)
        assert job.wait(timeout_s) == [status] * ranks, job.output()[-4000:]
        return job.output()

    def signal(self, pids: Sequence[int], number: int) -> None:
        """Send a signal to ranks that have not ended."""
        self._channel.send({"kill": [pid for pid in pids if pid not in self._ended], "signal": number})

    def ended(self, pids: Sequence[int], timeout_s: float) -> dict[int, int]:
        """Exit statuses (-signal where one killed it) of those that end within the time."""
        deadline = time.monotonic() + timeout_s
        while not self._ended.keys() >= set(pids):
            try:
                self._note(self._receive(max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                break
        return {pid: self._ended[pid] for pid in pids if pid in self._ended}

    def _note(self, message: dict) -> None:
        self._ended[message["ended"]] = message["status"]

    def _receive(self, timeout_s: float) -> dict:
        if not self._channel.poll(timeout_s):
            raise TimeoutError
        try:
            return self._channel.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(f"the zygote ended with status {self._process.wait()}") from None


@dataclass
class Job:
    """The ranks of one job."""

    zygote: Zygote
    pids: list[int]
    outputs: list[Path]
    started_s: float = field(default_factory=time.monotonic)

    def send(self, number: int, ranks: Sequence[int] | None = None) -> None:
        """A signal to these ranks, or to all at the same instant."""
        self.zygote.signal(self.pids if ranks is None else [self.pids[rank] for rank in ranks], number)

    def kill(self, ranks: Sequence[int] | None = None) -> None:
        """SIGKILL."""
        self.send(signal.SIGKILL, ranks)

    def is_running(self) -> bool:
        """True while one rank has not ended."""
        return len(self.zygote.ended(self.pids, 0.0)) < len(self.pids)

    def wait(self, timeout_s: float = 120.0) -> list[int]:
        """Exit statuses by rank once all have ended; kills those that do not, and fails."""
        statuses = self.zygote.ended(self.pids, timeout_s)
        if len(statuses) < len(self.pids):
            self.kill()
            self.zygote.ended(self.pids, 30.0)
            raise AssertionError(f"ranks still ran after {timeout_s} s; they said:\n{self.output()[-4000:]}")
        return [statuses[pid] for pid in self.pids]

    def output(self) -> str:
        """What all ranks printed, rank 0 first."""
        return without_times("".join(path.read_text() for path in self.outputs if path.exists()))


def rank_variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What a launcher tells a rank on a single host."""
    world = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), **world, **address}
