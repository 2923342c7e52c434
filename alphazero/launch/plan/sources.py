"""Where the values of a launch come from: flags, files, environments; and what this machine is in the job.

Each source is read and checked by itself; resolve.py decides each setting, and finds out whether they agree.
Which names and addresses mean this machine, and which would mean another one on every host, is decided here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from alphazero.base.errors import LaunchError
from alphazero.base.section import flag_of
from alphazero.launch.plan.hostfile import Host, choose_hosts, read_hostfile
from alphazero.launch.plan.launch_plan import HEAD, LOCAL, NODE, SLURM
from alphazero.launch.plan.outer import OuterLauncher, SettingClaim, SlurmJob, read_outer, read_slurm
from alphazero.machine.machine import Machine, names_link, names_loopback, outward_addresses
from alphazero.settings.cluster import ClusterConfig, ClusterFile

T = TypeVar("T")


@dataclass(frozen=True)
class LaunchRequest(ClusterConfig):
    """The flags of the command line, None where a flag was not given."""

    device: str = "auto"
    node_rank: int | None = None


@dataclass(frozen=True)
class Sources:
    """Everything that a launch is decided from.

    chosen: hosts of a hostfile after the filter, those that only play last, () where there is none; origin:
    what errors call that list. slurm is None where there is no SLURM.
    """

    request: LaunchRequest
    file: ClusterFile
    chosen: tuple[Host, ...]
    origin: str
    slurm: SlurmJob | None
    outer: OuterLauncher
    machine: Machine

    def claims(self, key: str, kind: type[T]) -> list[SettingClaim[T]]:
        """What the flag and [cluster] give for a setting, in this order."""
        claims: list[SettingClaim[T]] = []
        value = getattr(self.request, key)
        if value is not None:
            assert isinstance(value, kind)
            claims.append(SettingClaim(value, f"{flag_of(key)} {value}"))
        if key in self.file.places:
            claims.append(SettingClaim(getattr(self.file.config, key), self.file.shown(key)))
        return claims

    def choice(self, key: str, kind: type[T], default: T) -> T:
        """Of a setting that sources may give differently, the first."""
        return next((claim.value for claim in self.claims(key, kind)), default)


def read_sources(
    request: LaunchRequest, machine: Machine, environment: Mapping[str, str], file: ClusterFile
) -> Sources:
    """Flags, [cluster], hostfile, SLURM and other launchers, read and checked by themselves.

    Raises LaunchError for values that no source may have. Whether the sources agree is found where each
    setting is decided.
    """
    outer = read_outer(environment)
    # mpirun runs inside an allocation and numbers its own processes, whatever started its daemons.
    slurm = None if outer.mpi_variable and "SLURM_STEP_ID" not in environment else read_slurm(environment)
    if outer.mpi_variable not in ("", "PMI_SIZE"):
        slurm = None
    if slurm is not None and slurm.in_step:
        outer = OuterLauncher(master_addr=outer.master_addr)
    hosts: tuple[Host, ...] = ()
    origin = ""
    if request.hostfile is not None:
        hosts, origin = read_hostfile(Path(request.hostfile)), f"--hostfile {request.hostfile}"
    elif file.config.hostfile is not None:
        hosts, origin = read_hostfile(Path(file.config.hostfile)), file.shown("hostfile")
    include, exclude = request.include, request.exclude
    if include is None and exclude is None:
        include, exclude = file.config.include, file.config.exclude
    if not hosts and (include is not None or exclude is not None):
        flag = f"--include {include}" if include is not None else f"--exclude {exclude}"
        raise LaunchError(f"{flag}: expected --hostfile beside it")
    chosen = choose_hosts(hosts, include, exclude, origin) if hosts else ()
    if include is None and exclude is None:
        chosen = chosen[: request.nodes]  # the first ones, as DeepSpeed's launcher takes them
    chosen = tuple(sorted(chosen, key=lambda host: host.actors >= (len(host.chosen) or host.slots)))
    return Sources(request, file, chosen, origin, slurm, outer, machine)


def agreed(claims: Sequence[SettingClaim[T]]) -> SettingClaim[T] | None:
    """The first claim, None where there is none; LaunchError where another one differs from it."""
    for other in claims[1:]:
        if other.value != claims[0].value:
            raise LaunchError(f"{claims[0].text} contradicts {other.text}: expected one of them, or the same")
    return claims[0] if claims else None


def is_this_machine(address: str, machine: Machine) -> bool:
    """True where a host's name or address is this machine's own; asks no name server."""
    name, own = address.lower(), machine.host_name.lower()
    if names_loopback(name) or name == own:
        return True
    if any(name == address for _, address in machine.addresses):
        return True
    # One of the two may carry its domain.
    has_one_domain = bool(name) and ("." in name) != ("." in own)
    return has_one_domain and name.partition(".")[0] == own.partition(".")[0] and not is_ip(name)


def is_ip(name: str) -> bool:
    """True for an IP address, of version 4 or 6."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def refuse_loopback(
    master_addr: str, machine: Machine, addresses_of: Callable[[str], tuple[str, ...]]
) -> None:
    """LaunchError where other hosts would take the master's address for themselves."""
    loopbacks = [address for address in addresses_of(master_addr) if names_loopback(address)]
    if names_loopback(master_addr):
        what = "is the loopback"
    elif ":" in master_addr and "%" not in master_addr and names_link(master_addr):
        what = "is an address of one link, and does not say of which"
    elif loopbacks:
        what = f"resolves to {loopbacks[0]} on {machine.host_name}, the loopback (a line of /etc/hosts)"
    else:
        return
    own = outward_addresses(machine.addresses)
    here = f"; this machine has {', '.join(own)}" if own else ""
    raise LaunchError(
        f"--master-addr {master_addr}: {what}, which other machines cannot reach; "
        f"expected the address of node 0 in the network{here}"
    )


def choose_role(sources: Sources, nodes: SettingClaim[int]) -> tuple[str, int | None]:
    """What this process does, and which node of the job this machine is (None: no part of it)."""
    request, slurm = sources.request, sources.slurm
    if request.launcher == "slurm" and slurm is None:
        raise LaunchError(
            "--launcher slurm: expected a SLURM allocation (sbatch, salloc), there is none here"
        )
    if request.launcher == "slurm" and sources.chosen:
        raise LaunchError(f"--launcher slurm contradicts {sources.origin}: expected one of the two")
    claims: list[SettingClaim[int]] = []
    if request.node_rank is not None:
        claims.append(SettingClaim(request.node_rank, f"--node-rank {request.node_rank}"))
    if slurm is not None and slurm.node_rank is not None:
        claims.append(SettingClaim(slurm.node_rank, f"SLURM_NODEID={slurm.node_rank}"))
    if sources.outer.node_rank is not None:
        claims.append(sources.outer.node_rank)
    rank = agreed(claims)
    if rank is not None and not 0 <= rank.value < nodes.value:
        raise LaunchError(f"{rank.text}: expected 0 to {nodes.value - 1} ({nodes.text or '--nodes 1'})")
    if rank is not None and nodes.value > 1:
        return NODE, rank.value
    if sources.chosen:
        return _role_of_hostfile(sources)
    if slurm is not None and not slurm.in_step:
        name = slurm.node_name
        is_own = [host == name if name else is_this_machine(host, sources.machine) for host in slurm.hosts]
        own = is_own.index(True) if True in is_own else None
        return (SLURM, own) if nodes.value > 1 or own is None else (LOCAL, 0)
    if nodes.value > 1:
        raise LaunchError(f"{nodes.text}: expected --node-rank beside it, 0 to {nodes.value - 1}")
    return LOCAL, 0


def _role_of_hostfile(sources: Sources) -> tuple[str, int | None]:
    """The head of a job over the hosts of a list; the job itself where they are this machine alone."""
    hosts, machine = sources.chosen, sources.machine
    own = [rank for rank, host in enumerate(hosts) if is_this_machine(host.address, machine)]
    if len(hosts) == 1:
        return (LOCAL, 0) if own else (HEAD, None)
    for host in sources.chosen:
        if names_loopback(host.address):
            raise LaunchError(
                f"{sources.origin}, line {host.line}: {host.address} is another machine on every host; "
                "expected the name or address that the other hosts reach it by"
            )
    if len(own) > 1:
        names = " and ".join(sources.chosen[rank].address for rank in own)
        raise LaunchError(f"{sources.origin}: {names} are both this machine; expected each machine once")
    return HEAD, own[0] if own else None
