"""How a command reaches another host: ssh or srun, as argument lists; no input is ever shell text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Known hosts only, never a question, a dead connection noticed within 9 s.
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes"),
    *("-o", "ControlPath=none"),
)
# One task on one node with all that the job has there. --overlap: a shell under `srun --pty` holds the node
# already; --cpu-bind=none: the ranks of the node share its cores among themselves.
SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1")
# What srun would read as options of its own, from the wishes of the batch script: each is for many tasks.
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


@dataclass(frozen=True)
class SshOptions:
    """What a person adds to ssh: the port of all hosts, a file in the place of ~/.ssh/config."""

    port: int | None = None
    config: Path | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """As arguments."""
        config = () if self.config is None else ("-F", str(self.config))
        return (*config, *(() if self.port is None else ("-p", str(self.port))))


def ssh_argv(target: str, command: Sequence[str], options: SshOptions) -> list[str]:
    """Run `command` on `target`, [user@]host; IPv6 addresses without brackets.

    sshd hands the words to the login shell of that user as one text: each is quoted for a POSIX shell.
    """
    return [*SSH, *options.words, "--", target, shlex.join(command)]


def srun_argv(host: str, command: Sequence[str]) -> list[str]:
    """Run `command` on SLURM's node `host`, inside the allocation of this process; no shell is between."""
    without = [word for name in SRUN_REMOVED for word in ("-u", name)]
    return ["env", *without, *SRUN, f"--nodelist={host}", "--export=ALL", "--", *command]
