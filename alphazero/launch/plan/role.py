"""The part of a job that this process plays: all of it, one node, or the head that starts the nodes.

Which names and addresses mean this machine, and which would mean another one on every host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from alphazero.base.errors import LaunchError
from alphazero.launch.plan.claims import Sources, agreed
from alphazero.launch.plan.launch_plan import HEAD, LOCAL, NODE, SLURM, SLURM_TASK
from alphazero.launch.plan.outer import SettingClaim, SlurmJob
from alphazero.machine.machine import Machine, names_link, names_loopback, outward_addresses


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


def is_slurm_node(host: str, slurm: SlurmJob, machine: Machine) -> bool:
    """True where SLURM's node `host` is this machine."""
    return host == slurm.node_name if slurm.node_name else is_this_machine(host, machine)


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
    found = [address for address in addresses_of(master_addr) if names_loopback(address)]
    if names_loopback(master_addr):
        what = "is the loopback"
    elif ":" in master_addr and "%" not in master_addr and names_link(master_addr):
        what = "is an address of one link, and does not say of which"
    elif found:
        what = f"resolves to {found[0]} on {machine.host_name}, the loopback (a line of /etc/hosts)"
    else:
        return
    own = outward_addresses(machine.addresses)
    here = f"; this machine has {', '.join(own)}" if own else ""
    raise LaunchError(
        f"--master-addr {master_addr}: {what}, which other machines cannot reach; "
        f"expected the address of node 0 in the network{here}"
    )


AUTO_RANK = "auto"


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
    if request.node_rank == AUTO_RANK:
        claims.append(SettingClaim(_own_line(sources), "--node-rank auto"))
    elif isinstance(request.node_rank, int):
        claims.append(SettingClaim(request.node_rank, f"--node-rank {request.node_rank}"))
    if slurm is not None and slurm.node_rank is not None:
        claims.append(SettingClaim(slurm.node_rank, f"SLURM_NODEID={slurm.node_rank}"))
    if sources.outer.node_rank is not None:
        claims.append(sources.outer.node_rank)
    rank = agreed(claims)
    if rank is not None and not 0 <= rank.value < nodes.value:
        raise LaunchError(f"{rank.text}: expected 0 to {nodes.value - 1} ({nodes.text or '--nodes 1'})")
    if rank is not None and nodes.value > 1:
        by_slurm = slurm is not None and slurm.in_step and not sources.chosen and len(claims) == 1
        return (SLURM_TASK if by_slurm else NODE), rank.value
    if sources.chosen:
        return _role_of_hostfile(sources)
    if slurm is not None and not slurm.in_step:
        places = (r for r, host in enumerate(slurm.hosts) if is_slurm_node(host, slurm, sources.machine))
        own = next(places, None)
        return (SLURM, own) if nodes.value > 1 or own is None else (LOCAL, 0)
    if nodes.value > 1:
        raise LaunchError(f"{nodes.text}: expected --node-rank beside it, 0 to {nodes.value - 1}")
    return LOCAL, 0


def _role_of_hostfile(sources: Sources) -> tuple[str, int | None]:
    """The head of a job over the hosts of a list; the job itself where they are this machine alone."""
    own = _own_places(sources)
    if len(sources.chosen) == 1:
        return (LOCAL, 0) if own else (HEAD, None)
    for chosen in sources.chosen:
        if names_loopback(chosen.host.address):
            raise LaunchError(
                f"{sources.origin}, line {chosen.host.line}: {chosen.host.address} is another machine on "
                "every host; expected the name or address that the other hosts reach it by"
            )
    if len(own) > 1:
        names = " and ".join(sources.chosen[rank].host.address for rank in own)
        raise LaunchError(f"{sources.origin}: {names} are both this machine; expected each machine once")
    return HEAD, own[0] if own else None


def _own_places(sources: Sources) -> list[int]:
    """The places of this machine in the list."""
    addresses = [chosen.host.address for chosen in sources.chosen]
    return [rank for rank, address in enumerate(addresses) if is_this_machine(address, sources.machine)]


def _own_line(sources: Sources) -> int:
    """Which host of the list this machine is."""
    if not sources.chosen:
        raise LaunchError("--node-rank auto: expected --hostfile beside it, which names this machine")
    machine, own = sources.machine, _own_places(sources)
    if len(own) != 1:
        addresses = ", ".join(outward_addresses(machine.addresses))
        found = "does not name" if not own else f"names {len(own)} times"
        raise LaunchError(
            f"--node-rank auto: {sources.origin} {found} this machine ({machine.host_name}, {addresses}); "
            "expected it once, or --node-rank R"
        )
    return own[0]
