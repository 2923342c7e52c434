"""Lines of the launcher, on stderr, and those about a start on this machine."""

from __future__ import annotations

import contextlib
import sys

from alphazero.base.log import program_line
from alphazero.base.text import counted
from alphazero.launch.plan.launch_plan import Command, LaunchPlan


def say(text: str) -> None:
    """A line of the launcher, on stderr: stdout belongs to the job and to --dry-run."""
    show(program_line(text, has_time=False) + "\n")


def say_of_job(text: str) -> None:
    """A line of the job that the launcher has started, or is about to: with its time where it is kept."""
    show(program_line(text) + "\n")


def show(text: str) -> None:
    """Text on stderr; where it is closed (a terminal or pipe that is gone), the job continues without."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def banner(plan: LaunchPlan, command: Command) -> list[str]:
    """Lines about what is to start on this machine."""
    own = plan.own
    assert own.machine is not None
    processes = counted(own.num_ranks or 0, "process", "processes")
    what = "CPU" if plan.device == "cpu" else "NVIDIA"
    node = f"node {plan.node_rank} of {plan.num_nodes} ({own.machine.host_name})"
    lines = [
        *plan.notices,
        f"{node}: {processes}, {what}, {plan.launcher}",
        f"master {plan.master_addr}:{plan.master_port}",
    ]
    names = {device.uuid: device.name for device in own.machine.devices}
    names |= {str(device.index): device.name for device in own.machine.devices}
    lines += [
        f"local rank {rank}: device {entry} {names.get(entry, '')}" for rank, entry in enumerate(own.devices)
    ]
    lines += [f"{variable.name}={variable.value} ({variable.reason})" for variable in command.variables]
    lines.append(f"command: {command.shown()}")
    return [*lines, "starting: ranks take some seconds to load PyTorch and DeepSpeed"]
