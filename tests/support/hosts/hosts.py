"""Hosts in network namespaces: each with its own address, name, processes, sshd and private directories.

A host is the init of a process namespace: killing it ends everything that ever ran there, sshd's sessions
included. All namespaces are anonymous and die with the test's process, however it ends.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from alphazero.machine.die_with_parent import guarded

NETWORK = "10.213.57"
REQUIRE_VARIABLE = "ALPHAZERO_REQUIRE_MULTINODE"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
UNSHARE = ("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")


def cannot_run(reason: str) -> NoReturn:
    """Skip a test of several hosts, or fail it where a green run shall have tried every one of them."""
    if os.environ.get(REQUIRE_VARIABLE, "0") not in ("", "0"):
        pytest.fail(f"{reason} ({REQUIRE_VARIABLE} is set; as root: make test-packages)", pytrace=False)
    pytest.skip(reason)


def why_not() -> str:
    """Why hosts cannot be made here, "" where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("unshare", "nsenter", "ip", "ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if SSHD is None:
        return "sshd (openssh-server) is not installed"
    script = "ip link add test0 type bridge && ip link add test1 type veth peer name test2"
    tried = subprocess.run([*UNSHARE, "sh", "-c", script], capture_output=True, text=True)
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else ""


def run(argv: Sequence[str], **options) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{shlex.join(argv)}: {done.stderr}"
    return done.stdout


@dataclass
class Namespace:
    """The holder of namespaces: `pid` is its init as this process sees it."""

    holder: subprocess.Popen
    pid: int

    @classmethod
    def start(cls, script: str) -> "Namespace":
        """Run a shell script as init of new namespaces; it must exec something that stays."""
        holder = subprocess.Popen(guarded((*UNSHARE, "sh", "-c", script)), stdin=subprocess.DEVNULL)
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        deadline = time.monotonic() + 10
        while not (found := children.read_text().split()):
            assert holder.poll() is None, "the namespaces' init has ended"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return cls(holder, int(found[0]))

    def link(self, arguments: str) -> None:
        """`ip link` in its network; processes have the numbers that they have outside."""
        run(["nsenter", "-t", str(self.pid), "-n", "ip", "link", *arguments.split()])

    def end(self) -> None:
        """End all that runs within."""
        if self.holder.poll() is None:
            self.holder.kill()  # --kill-child: init goes too, and with it all the rest
        self.holder.wait()


@dataclass
class Host:
    """A machine of the test's network."""

    name: str
    address: str
    number: int
    space: Namespace
    directory: Path  # its sshd's files, and what lies behind its private directories
    network: "Network"
    environment: dict[str, str] = field(default_factory=dict)

    def argv(self, *argv: str, cwd: Path | None = None) -> list[str]:
        """A command as it runs on this host."""
        where = ["--wdns=" + str(cwd)] if cwd else []
        words = ["env", *(f"{name}={value}" for name, value in self.environment.items()), *argv]
        return ["nsenter", "-t", str(self.space.pid), "-n", "-m", "-u", "-p", *where, *words]

    def run(self, *argv: str, **options) -> str:
        """Output of a command on this host."""
        return run(self.argv(*argv), **options)

    def popen(self, *argv: str, cwd: Path | None = None, **options) -> subprocess.Popen:
        """A process on this host, in its own session."""
        return subprocess.Popen(self.argv(*argv, cwd=cwd), start_new_session=True, **options)

    def processes(self) -> dict[int, str]:
        """Command lines by pid as this host numbers them; its init, sshd and this look are left out."""
        script = (
            "for p in /proc/[0-9]*; do echo \"${p#/proc/} $(tr '\\0' ' ' < $p/cmdline)\"; done 2>/dev/null"
        )
        lines = self.run("sh", "-c", script).splitlines()
        found = {int(pid): command.strip() for pid, _, command in (line.partition(" ") for line in lines)}
        ours = ("sshd:", "/usr/sbin/sshd", "sh -c for p in", "nsenter")
        return {pid: line for pid, line in found.items() if line and pid != 1 and not line.startswith(ours)}

    def python_processes(self) -> dict[int, str]:
        """Those of a job: whatever our interpreter runs."""
        return {pid: line for pid, line in self.processes().items() if sys.executable in line}

    def environment_of(self, pid: int) -> dict[str, str]:
        """The environment a process of this host was started with."""
        lines = self.run("sh", "-c", f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def wait_until_idle(self, limit_s: float) -> None:
        """Until nothing of a job runs here."""
        deadline = time.monotonic() + limit_s
        while left := self.python_processes():
            assert time.monotonic() < deadline, f"{self.name}: still running: {left}"
            time.sleep(0.1)

    def close_ports(self, *open_ports: int) -> None:
        """A firewall that drops what comes in at all TCP ports but these, and is no answer from these."""
        self.run("ip", "rule", "add", "pref", "100", "lookup", "local")
        self.run("ip", "rule", "del", "pref", "0")
        tcp = ("iif", "eth0", "ipproto", "tcp")
        for port in map(str, open_ports):
            for side in ("sport", "dport"):
                self.run("ip", "rule", "add", "pref", "5", *tcp, side, port, "lookup", "local")
        self.run("ip", "rule", "add", "pref", "10", *tcp, "blackhole")

    def cut_off(self) -> None:
        """Pull the plug of its network."""
        self.network.switch.link(f"set port{self.number} down")

    def reconnect(self) -> None:
        """Plug it in again."""
        self.network.switch.link(f"set port{self.number} up")

    def make_private(self, path: Path) -> None:
        """Give `path` a content that other hosts do not see."""
        behind = self.directory / "private" / str(path).strip("/").replace("/", "_")
        behind.mkdir(parents=True, exist_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        self.run("mount", "--bind", str(behind), str(path))


@dataclass
class Network:
    """A switch and the hosts on it; host1 ... hostN know each other's names and keys."""

    directory: Path
    switch: Namespace
    hosts: list[Host] = field(default_factory=list)

    @classmethod
    def build(cls, directory: Path, num_hosts: int, sshd_options: str = "") -> "Network":
        """Make it; end() takes it down. sshd_options: of its configuration; {directory} is the host's."""
        directory.mkdir(parents=True, exist_ok=True)
        bridge = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up && exec sleep 100000"
        network = cls(directory, Namespace.start(bridge))
        try:
            cls._make_keys(directory, num_hosts)
            made = "until ip link show br0; do sleep 0.02; done"
            run(["nsenter", "-t", str(network.switch.pid), "-n", "sh", "-c", made], timeout=20)
            for number in range(1, num_hosts + 1):
                network.hosts.append(network._add(number, sshd_options))
            for host in network.hosts:
                network._wait_for_ssh(host)
        except BaseException:
            network.end()
            raise
        return network

    @staticmethod
    def _make_keys(directory: Path, num_hosts: int) -> None:
        def make(path: Path) -> str:
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)])
            return path.with_suffix(".pub").read_text()

        ssh = directory / "ssh"  # becomes /root/.ssh of every host
        ssh.mkdir(mode=0o700)
        (ssh / "authorized_keys").write_text(make(ssh / "id_ed25519"))
        known, names = [], ["127.0.0.1 localhost\n"]
        for number in range(1, num_hosts + 1):
            key = " ".join(make(directory / f"host_key{number}").split()[:2])
            known.append(f"host{number},{NETWORK}.{number} {key}\n")
            names.append(f"{NETWORK}.{number} host{number}\n")
        (ssh / "known_hosts").write_text("".join(known))
        (directory / "hosts").write_text("".join(names))

    def _add(self, number: int, options: str) -> Host:
        home = self.directory / f"host{number}"
        home.mkdir()
        # Copies: a test may spoil those of one host.
        shutil.copytree(self.directory / "ssh", home / "ssh")
        shutil.copy(self.directory / "hosts", home / "hosts")
        (home / "sshd_config").write_text(
            f"HostKey {self.directory}/host_key{number}\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"PermitRootLogin yes\nAuthorizedKeysFile /root/.ssh/authorized_keys\n"
            f"ListenAddress 0.0.0.0\nMaxStartups 100\n{options.format(directory=home)}\n"
        )
        words = {name: shlex.quote(str(home / name)) for name in ("ssh", "hosts", "sshd_config", "sshd.log")}
        script = f"""
            set -e
            hostname host{number}
            mkdir -p /run/sshd /root/.ssh
            mount --bind {words["ssh"]} /root/.ssh
            mount --bind {words["hosts"]} /etc/hosts
            ip link set lo up
            until ip addr add {NETWORK}.{number}/24 dev eth0 2>/dev/null; do sleep 0.02; done
            ip link set eth0 up
            exec {SSHD} -D -f {words["sshd_config"]} -E {words["sshd.log"]}
        """
        space = Namespace.start(script)
        host = Host(f"host{number}", f"{NETWORK}.{number}", number, space, home, self)
        self.switch.link(f"add port{number} type veth peer name eth0 netns {space.pid}")
        self.switch.link(f"set port{number} master br0 up")
        return host

    def _wait_for_ssh(self, host: Host) -> None:
        deadline = time.monotonic() + 20
        argv = self.hosts[0].argv("ssh", "-o", "BatchMode=yes", host.name, "true")
        while subprocess.run(argv, capture_output=True).returncode:
            assert time.monotonic() < deadline, (host.directory / "sshd.log").read_text()
            assert host.space.holder.poll() is None, f"{host.name} has ended"
            time.sleep(0.1)

    def end(self) -> None:
        """Take everything down."""
        for host in self.hosts:
            host.space.end()
        self.switch.end()
