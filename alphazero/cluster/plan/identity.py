"""Which names and addresses mean this machine, and which would mean another one on every host."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from alphazero.cluster.plan.slurm import SlurmJob
from alphazero.errors import LaunchError
from alphazero.host.listener import names_loopback
from alphazero.host.machine import Machine

LOOPBACK = "127.0.0.1"


def is_this_machine(address: str, machine: Machine) -> bool:
    """True where a host's name or address is this machine's own; asks no name server."""
    name, own = address.lower(), machine.host_name.lower()
    if is_loopback_name(name) or name == own:
        return True
    if any(name == address for _, address in machine.addresses):
        return True
    # One of the two may carry its domain.
    return bool(name) and ("." in name) != ("." in own) and _short(name) == _short(own) and not is_ip(name)


def is_slurm_node(host: str, slurm: SlurmJob, machine: Machine) -> bool:
    """True where SLURM's node `host` is this machine."""
    return host == slurm.node_name if slurm.node_name else is_this_machine(host, machine)


def _short(name: str) -> str:
    return name.partition(".")[0]


def is_ip(name: str) -> bool:
    """True for an IP address, of version 4 or 6."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback_name(address: str) -> bool:
    """True for localhost and loopback addresses, as written."""
    return names_loopback(address)


def refuse_loopback(
    master_addr: str, machine: Machine, addresses_of: Callable[[str], tuple[str, ...]]
) -> None:
    """LaunchError where other hosts would take the master's address for themselves."""
    found = [address for address in addresses_of(master_addr) if is_loopback_name(address)]
    if is_loopback_name(master_addr):
        what = "is the loopback"
    elif found:
        what = f"resolves to {found[0]} on {machine.host_name}, the loopback (a line of /etc/hosts)"
    else:
        return
    own = [address for _, address in machine.addresses if not is_loopback_name(address)]
    here = f"; this machine has {', '.join(own)}" if own else ""
    raise LaunchError(
        f"--master-addr {master_addr}: {what}, which other machines cannot reach; "
        f"expected the address of node 0 in the network{here}"
    )
