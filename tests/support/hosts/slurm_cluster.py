"""A real SLURM on hosts in namespaces: slurmctld on the first host, a munged and a slurmd on each.

Its programs are those installed (make test-packages). Daemons, and what they start, end with their hosts.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.hosts.hosts import Host, Network

PATH = "/usr/sbin:/usr/bin:/usr/lib/slurm"
DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")
COMMANDS = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
LIMIT_S = 60.0
CONFIG = """
ClusterName=tests
SlurmctldHost={head.name}({head.address})
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=60
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def program(name: str) -> str | None:
    """Where it is installed, by its name or Debian's."""
    return shutil.which(name, path=PATH) or shutil.which(f"{name}-wlm", path=PATH)


def why_not() -> str:
    """Why there can be no cluster here, "" where there can."""
    missing = [name for name in (*DAEMONS, *COMMANDS) if program(name) is None]
    return f"SLURM is not installed ({', '.join(missing)})" if missing else ""


@dataclass
class SlurmCluster:
    """A running one, whose nodes are the hosts of a network; its files lie in the network's directory."""

    network: Network
    directory: Path

    @classmethod
    def start(cls, network: Network) -> "SlurmCluster":
        """Start it and wait until every node takes jobs."""
        cluster = cls(network, network.directory / "slurm")
        cluster._configure()
        for host in network.hosts:
            cluster._start_munged(host)
        cluster._start_daemon(network.hosts[0], "slurmctld", "-D")
        for host in network.hosts:
            cluster._start_daemon(host, "slurmd", "-D", "-d", program("slurmstepd"))
        cluster.wait_until(cluster.is_idle, "slurmd")
        return cluster

    def _configure(self) -> None:
        directory, hosts = self.directory, self.network.hosts
        (directory / "state").mkdir(parents=True)
        nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs=2\n" for host in hosts]
        text = CONFIG.format(directory=directory, head=hosts[0])
        (directory / "slurm.conf").write_text(text + "".join(nodes))
        (directory / "munge.key").touch(mode=0o600)
        (directory / "munge.key").write_bytes(os.urandom(128))
        for host in hosts:
            (directory / f"spool-{host.name}").mkdir()
            host.environment["SLURM_CONF"] = str(directory / "slurm.conf")

    def _start_munged(self, host: Host) -> None:
        private = self.directory / "munge"  # each host's own: munged takes a credential once only
        host.make_private(private)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={private}/{end}" for option, end in files.items()]
        # --force: the directories of tests are closed to other users, which it does not like.
        key = f"--key-file={self.directory}/munge.key"
        self._start_daemon(host, "munged", "--foreground", "--force", key, *options)
        test = host.argv("test", "-S", f"{private}/socket")
        self.wait_until(lambda: subprocess.run(test).returncode == 0, "munged")

    def _start_daemon(self, host: Host, name: str, *options: str) -> None:
        with (self.directory / f"{name}-{host.name}.said").open("w") as said:
            host.popen(program(name), *options, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    @property
    def login(self) -> Host:
        """Where users type."""
        return self.network.hosts[0]

    def run(self, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A user's command."""
        argv = self.login.argv(*argv, cwd=cwd)
        return subprocess.run(argv, capture_output=True, text=True, timeout=300)

    def is_idle(self) -> bool:
        """True where every node waits for work."""
        listed = self.run("sinfo", "--noheader", "--Node", "--format=%t", cwd=self.directory).stdout.split()
        return listed == ["idle"] * len(self.network.hosts)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Until the cluster is as expected; its logs where it does not get there."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"no {what} after {LIMIT_S:.0f} s:\n{self.logs()}"
            time.sleep(0.2)

    def wait_until_free(self) -> None:
        """Until all processes of jobs are gone, and the nodes take the next one."""
        for host in self.network.hosts:
            host.wait_until_idle(limit_s=30)
        self.wait_until(self.is_idle, "end of all jobs")

    def exit_status(self, job_id: str) -> int:
        """Of a job that has ended; 128 + N for signal N."""
        shown = self.run("scontrol", "show", "job", job_id, cwd=self.directory).stdout
        found = re.search(r" ExitCode=(\d+):(\d+)", shown)
        assert found, shown
        code, number = map(int, found.groups())
        return code or (128 + number if number else 0)

    def logs(self) -> str:
        """The ends of all logs."""
        paths = [*self.directory.glob("*.log"), *self.directory.glob("*.said")]
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in paths)
