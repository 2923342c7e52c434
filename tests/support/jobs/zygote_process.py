"""A process that has imported torch (for the CPU: and DeepSpeed) once and forks the ranks of test jobs.

zygote.py starts it and tells it over a pipe what to do. Nothing survives it: it ends when the pipe closes,
and the kernel ends its ranks with it.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from alphazero.run.rank import end_process

# The trainer's own, and what torch's optimizers, DeepSpeed and (pandas) pyarrow import late.
MODULES = (
    "alphazero.cli.training.train",
    "alphazero.training.start.train",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.utils.tensorboard",
    "pandas",
)
# It chooses its device when it is imported: only where that is the CPU do all ranks share the import.
DEEPSPEED_MODULE = "deepspeed.runtime.zero.muon.muon_optimizer"
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def import_what_ranks_need() -> bool:
    """Everything a training job imports. True while there is one thread: no other one survives a fork."""
    is_of_cpu = os.environ.get("DS_ACCELERATOR") == "cpu"
    for name in (*MODULES, DEEPSPEED_MODULE) if is_of_cpu else MODULES:
        importlib.import_module(name)
    if is_of_cpu:
        importlib.import_module("deepspeed.ops").__compatible_ops__  # noqa: B018 - looked up at first use
    gc.freeze()  # what a collection in a rank does not touch stays shared memory
    threads = {path.name: (path / "comm").read_text().strip() for path in Path("/proc/self/task").iterdir()}
    if is_of_cpu and len(threads) != 1:
        sys.exit(f"zygote: threads {threads} run before the first fork: expected one")
    return len(threads) == 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def serve(channel: Connection) -> dict[str, Any] | None:
    """Fork ranks as asked and tell of their ends; in a rank, what it must do; None at the end."""
    own_pid = os.getpid()
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker.fileno())
    while True:
        ready = wait([channel, woken])
        if woken in ready:
            woken.recv(4096)
            report_ended(channel)
        if channel not in ready:
            continue
        try:
            request = channel.recv()
        except (EOFError, ConnectionError):
            return None
        for pid in request.get("kill", ()):
            with contextlib.suppress(ProcessLookupError):  # its end has been told
                os.kill(pid, request["signal"])
        pids = []
        for rank in request.get("ranks", ()):
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (channel, woken, waker):
                    end.close()
                die_with_parent(own_pid)
                return {**request, **rank}
            pids.append(pid)
        if pids:
            channel.send({"started": pids})


def report_ended(channel: Connection) -> None:
    """Tell of every rank that has ended; until then its number is not used again."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            channel.send({"ended": ended[0], "status": os.waitstatus_to_exitcode(ended[1])})


def run_rank(task: dict[str, Any], can_continue: bool) -> int:
    """Be a process `python SCRIPT ARGUMENTS` with an environment, directory, files and core of its own.

    A fork in which CUDA would not work becomes a new Python: slower, and right.
    """
    if task["core"] is not None:
        os.sched_setaffinity(0, {task["core"]})
    os.chdir(task["directory"])
    sys.stdout.flush()
    sys.stderr.flush()
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, task["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, task["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        file = os.open(path, flags, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update((name, value) for name, value in task["environment"].items() if value is not None)
    script = Path(task["script"])
    if not can_continue or sys.modules["torch"].cuda._is_in_bad_fork():
        os.execve(sys.executable, [sys.executable, str(script), *task["arguments"]], os.environ)
    sys.argv = [str(script), *task["arguments"]]
    sys.path[0] = str(script.parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    is_alone = import_what_ranks_need()
    to_test = Connection(int(sys.argv[1]))
    to_test.send({"ready": True})
    rank_task = serve(to_test)
    if rank_task is not None:
        end_process(run_rank(rank_task, is_alone))
