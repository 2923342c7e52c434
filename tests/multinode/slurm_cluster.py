"""A real SLURM on hosts in namespaces: munged, slurmctld on host1, a slurmd on every host.

Its programs are those installed, or those of Debian packages unpacked (dpkg -x) into the directory that
ALPHAZERO_TEST_SLURM names: munge, libmunge2, slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins,
libhwloc15.
"""

import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from hosts import Host, Network, die_with_parent

ROOT_VARIABLE = "ALPHAZERO_TEST_SLURM"
PROGRAMS = {
    "munged": ("munged",),
    "slurmctld": ("slurmctld", "slurmctld-wlm"),
    "slurmd": ("slurmd", "slurmd-wlm"),
    "slurmstepd": ("slurmstepd", "slurmstepd-wlm"),
    "srun": ("srun",),
    "sbatch": ("sbatch",),
    "scancel": ("scancel",),
    "squeue": ("squeue",),
    "sinfo": ("sinfo",),
}


def find_programs() -> dict[str, str]:
    """Paths by program, only those that are there."""
    root = Path(os.environ.get(ROOT_VARIABLE, "/"))
    path = os.pathsep.join(str(root / place) for place in ("usr/sbin", "usr/bin", "usr/lib/slurm"))
    found = {}
    for program, names in PROGRAMS.items():
        for name in names:
            if place := shutil.which(name, path=path):
                found.setdefault(program, place)
    return found


def library_path() -> str:
    """Where the unpacked programs find their libraries, "" for installed ones."""
    root = os.environ.get(ROOT_VARIABLE)
    if root is None:
        return ""
    directories = [library.parent for library in Path(root).rglob("lib*.so*")]
    return os.pathsep.join(dict.fromkeys(str(directory) for directory in directories))


@dataclass
class SlurmCluster:
    """A running one. environment: what a user's shell has on each of its hosts."""

    network: Network
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    daemons: list[subprocess.Popen] = field(default_factory=list)

    @classmethod
    def start(cls, network: Network, directory: Path) -> "SlurmCluster":
        """Start it on all hosts of the network and wait until every node is idle."""
        cluster = cls(network, directory)
        cluster._wrap()
        cluster._configure()
        programs, hosts = find_programs(), network.hosts
        key, socket = directory / "munge" / "key", directory / "munge.sock"
        munged = [programs["munged"], "--foreground", "--force", f"--socket={socket}", f"--key-file={key}"]
        munged += [f"--{name}-file={directory}/munge/{name}" for name in ("log", "pid", "seed")]
        daemon = {**os.environ, "LD_LIBRARY_PATH": library_path(), **cluster.environment}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "preexec_fn": die_with_parent}
        try:
            cluster.daemons.append(subprocess.Popen(munged, env=daemon, **quiet))
            cluster._wait(socket.exists, "munged")
            cluster.daemons.append(hosts[0].popen(programs["slurmctld"], "-D", env=daemon, **quiet))
            for host in hosts:
                slurmd = [programs["slurmd"], "-D", "-N", host.name, "-d", programs["slurmstepd"]]
                cluster.daemons.append(host.popen(*slurmd, env=daemon, **quiet))
            cluster._wait(lambda: cluster.count_idle() == len(hosts), "slurmd")
        except BaseException:
            cluster.end()
            raise
        return cluster

    def _wrap(self) -> None:
        """The user's commands find their own libraries; jobs do not get their path."""
        commands = self.directory / "bin"
        commands.mkdir(parents=True)
        for name, path in find_programs().items():
            script = (
                f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(library_path())} exec {shlex.quote(path)} "$@"\n'
            )
            (commands / name).write_text(script)
            (commands / name).chmod(0o755)
        self.environment = {
            "SLURM_CONF": str(self.directory / "slurm.conf"),
            "PATH": f"{commands}:{os.environ['PATH']}",
        }

    def _configure(self) -> None:
        directory, root = self.directory, os.environ.get(ROOT_VARIABLE)
        (directory / "munge").mkdir(mode=0o700)
        (directory / "state").mkdir()
        key = directory / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        plugins = next(Path(root).rglob("auth_munge.so")).parent if root else None
        (directory / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost=host1\nSlurmUser=root\nSlurmdUser=root\n"
            f"AuthType=auth/munge\nAuthInfo=socket={directory}/munge.sock\nCredType=cred/munge\n"
            f"StateSaveLocation={directory}/state\nSlurmdSpoolDir={directory}/spool-%n\n"
            f"SlurmctldPidFile={directory}/slurmctld.pid\nSlurmdPidFile={directory}/slurmd-%n.pid\n"
            f"SlurmctldLogFile={directory}/slurmctld.log\nSlurmdLogFile={directory}/slurmd-%n.log\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n"
            "MpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\n"
            "SelectTypeParameters=CR_Core\nKillWait=5\n"
            + (f"PluginDir={plugins}\n" if plugins else "")
            + f"NodeName=host[1-{len(self.network.hosts)}] CPUs=2 State=UNKNOWN\n"
            f"PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        )

    def run(self, *argv: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
        """A user's command on host1."""
        return subprocess.run(
            self.login.argv(*argv, cwd=cwd),
            env={**os.environ, **self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )

    @property
    def login(self) -> Host:
        """Where users type."""
        return self.network.hosts[0]

    def count_idle(self) -> int:
        """Nodes that wait for work."""
        listed = self.run("sinfo", "-h", "-N", "-o", "%t", cwd=self.directory).stdout.split()
        return listed.count("idle")

    def wait_until_idle(self) -> None:
        """Until no job is left."""
        self._wait(lambda: self.count_idle() == len(self.network.hosts), "the jobs' end")

    def _wait(self, condition, what: str) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"no {what}: see {self.directory}"
            time.sleep(0.2)

    def end(self) -> None:
        """Stop the daemons; what they started ends with the network."""
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(20)
