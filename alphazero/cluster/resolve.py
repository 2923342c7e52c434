"""From flags, hostfile and machine to the plan of a launch: nodes, processes, device, address, port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from alphazero.cluster.health import Machine, visible_devices
from alphazero.cluster.hostfile import Host, read_hostfile
from alphazero.errors import LaunchError

DEFAULT_PORT = 12355
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


@dataclass(frozen=True)
class LaunchRequest:
    """What the command line asked for; None where a flag was not given. gpus -1 is all of them."""

    gpus: int | None = None
    device: str = "auto"
    nodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    hostfile: Path | None = None
    launcher: str = "auto"


@dataclass(frozen=True)
class LaunchPlan:
    """One node's part of a job, everything decided.

    device: cuda or cpu. visible: the CUDA_VISIBLE_DEVICES entries of this node's processes, one each,
    empty on cpu. launcher: torchrun or deepspeed. notices: what a person must be told.
    """

    num_nodes: int
    node_rank: int
    num_processes: int
    device: str
    visible: tuple[str, ...]
    master_addr: str
    master_port: int
    launcher: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class HandLaunch:
    """Several hosts: what to type on each, as this launcher does not reach other hosts yet."""

    hosts: tuple[Host, ...]
    master_port: int


def resolve(
    request: LaunchRequest,
    machine: Machine,
    environment: Mapping[str, str],
    port_is_free: Callable[[int], bool],
    find_free_port: Callable[[], int],
) -> LaunchPlan | HandLaunch:
    """What to start on this machine, or what to type on several.

    Raises LaunchError for flags that contradict each other, the hostfile or the machine.
    """
    notices: list[str] = []
    slots = None
    if request.hostfile is not None:
        hosts = read_hostfile(request.hostfile)
        _refuse_beside_hostfile(request)
        if len(hosts) > 1 or not is_this_machine(hosts[0], machine):
            return HandLaunch(hosts, request.master_port or DEFAULT_PORT)
        slots = hosts[0].slots
    num_nodes, node_rank = _resolve_nodes(request)
    launcher = _resolve_launcher(request, num_nodes)
    visible, device = _resolve_device(request, machine, environment, notices)
    num_processes = _resolve_processes(request, slots, visible, device, environment)
    if device == "cpu":
        notices.append(_cpu_notice(request, machine, num_processes, slots))
    master_addr = request.master_addr or LOOPBACK
    return LaunchPlan(
        num_nodes=num_nodes,
        node_rank=node_rank,
        num_processes=num_processes,
        device=device,
        visible=visible[:num_processes],
        master_addr=master_addr,
        master_port=_resolve_port(request, num_nodes, node_rank, port_is_free, find_free_port, notices),
        launcher=launcher,
        notices=tuple(notices),
    )


def _refuse_beside_hostfile(request: LaunchRequest) -> None:
    given = (
        ("--nodes", request.nodes),
        ("--node-rank", request.node_rank),
        ("--master-addr", request.master_addr),
    )
    for flag, value in given:
        if value is not None:
            raise LaunchError(
                f"{flag} {value} contradicts --hostfile {request.hostfile}: wanted one of the two"
            )


def is_this_machine(host: Host, machine: Machine) -> bool:
    """True where the host's name or address is this machine's own."""
    name = host.address.lower()
    own_names = (*LOOPBACK_NAMES, machine.host_name.lower())
    return name in own_names or any(name == address for _, address in machine.addresses)


def _resolve_nodes(request: LaunchRequest) -> tuple[int, int]:
    num_nodes = 1 if request.nodes is None else request.nodes
    if num_nodes < 1:
        raise LaunchError(f"--nodes {num_nodes}: wanted at least 1")
    if num_nodes > 1 and request.node_rank is None:
        raise LaunchError(f"--nodes {num_nodes}: wanted --node-rank beside it, 0 to {num_nodes - 1}")
    if num_nodes > 1 and not request.master_addr:
        raise LaunchError(f"--nodes {num_nodes}: wanted --master-addr beside it, the address of node 0")
    node_rank = request.node_rank or 0
    if not 0 <= node_rank < num_nodes:
        raise LaunchError(f"--node-rank {node_rank}: wanted 0 to {num_nodes - 1} (--nodes {num_nodes})")
    return num_nodes, node_rank


def _resolve_launcher(request: LaunchRequest, num_nodes: int) -> str:
    launcher = "torchrun" if request.launcher == "auto" else request.launcher
    if launcher == "deepspeed" and num_nodes > 1:
        raise LaunchError("--launcher deepspeed: starts one machine only; wanted --launcher torchrun")
    return launcher


def _resolve_device(
    request: LaunchRequest, machine: Machine, environment: Mapping[str, str], notices: list[str]
) -> tuple[tuple[str, ...], str]:
    """The devices that processes may use here, and cuda or cpu."""
    if request.device == "cpu":
        return (), "cpu"
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    visible = visible_devices(machine.devices, setting) if machine.devices else ()
    if request.device == "cuda" and not visible:
        reason = f"CUDA_VISIBLE_DEVICES={setting} hides all" if machine.devices else "there is none"
        raise LaunchError(f"--device cuda: wanted an NVIDIA device, {reason} on {machine.host_name}")
    if not visible and machine.devices:
        notices.append(f"CUDA_VISIBLE_DEVICES={setting or ''} hides all NVIDIA devices")
    return visible, "cuda" if visible else "cpu"


def _resolve_processes(
    request: LaunchRequest,
    slots: int | None,
    visible: tuple[str, ...],
    device: str,
    environment: Mapping[str, str],
) -> int:
    gpus = request.gpus
    if gpus is not None and gpus != -1 and gpus < 1:
        raise LaunchError(f"--gpus {gpus}: wanted a number of processes from 1, or -1 for all devices")
    if slots is not None and gpus not in (None, slots):
        raise LaunchError(f"--gpus {gpus} contradicts slots={slots} of --hostfile {request.hostfile}")
    asked = gpus if slots is None else slots
    if device == "cpu":
        return 1 if asked in (None, -1) else int(asked or 1)
    if asked in (None, -1):
        return len(visible)
    if int(asked or 1) > len(visible):
        source = f"--gpus {asked}" if slots is None else f"{request.hostfile}: slots={asked}"
        setting = environment.get("CUDA_VISIBLE_DEVICES")
        limit = f" (CUDA_VISIBLE_DEVICES={setting})" if setting is not None else ""
        raise LaunchError(
            f"{source}: this machine has {len(visible)} NVIDIA devices{limit}; "
            "wanted at most as many, or --device cpu"
        )
    return int(asked or 1)


def _cpu_notice(request: LaunchRequest, machine: Machine, num_processes: int, slots: int | None) -> str:
    if request.device == "cpu":
        reason = "--device cpu"
    elif machine.devices:
        reason = "NO VISIBLE NVIDIA DEVICE"
    else:
        reason = "NO NVIDIA DEVICE ON THIS MACHINE"
    if slots is not None:
        source = f"slots={slots}"
    elif request.gpus in (None, -1):
        source = "more with --gpus N"
    else:
        source = f"--gpus {request.gpus}"
    ranks = "1 CPU rank" if num_processes == 1 else f"{num_processes} CPU ranks"
    return f"{reason}: training on the CPU with {ranks} ({source}; {machine.num_cores} cores here)"


def _resolve_port(
    request: LaunchRequest,
    num_nodes: int,
    node_rank: int,
    port_is_free: Callable[[int], bool],
    find_free_port: Callable[[], int],
    notices: list[str],
) -> int:
    port = DEFAULT_PORT if request.master_port is None else request.master_port
    if not 1 <= port <= 65535:
        raise LaunchError(f"--master-port {port}: wanted 1 to 65535")
    if node_rank != 0 or port_is_free(port):
        return port
    other = find_free_port()
    if request.master_port is not None:
        raise LaunchError(f"--master-port {port}: is in use here (or not allowed); {other} is free")
    if num_nodes > 1:
        raise LaunchError(
            f"port {port} is in use here; {other} is free: give --master-port {other} on every node"
        )
    notices.append(f"port {port} is in use here: taking {other}")
    return other
