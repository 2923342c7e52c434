"""This host: its GPUs, its processors and which of them are near a GPU, its addresses, ports and sockets.

A host without an NVIDIA device is a CPU host; one that has a device whose driver does not answer is an error,
so that a broken driver never becomes a silent CPU run.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.machine.memory import ROOT, count_cores
from alphazero.machine.nvml import Device, NvmlUnusable, device_files_present, open_nvml

# Addresses of documentation (RFC 5737, RFC 3849): no host has them, so that the default route leads there.
OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
INFINIBAND = Path("/sys/class/infiniband")
# The weight of a host for its ranks, where its line of the hostfile has one.
HOST_WEIGHT_VARIABLE = "ALPHAZERO_HOST_WEIGHT"
# The user's OMP_NUM_THREADS in a job of the launcher, which sets that one itself where the user did not.
THREADS_VARIABLE = "ALPHAZERO_THREADS"
# The descriptor by which a worker is connected to its command (play/workers.py). What it starts has none.
WORKER_VARIABLE = "ALPHAZERO_WORKER"

# Numbers of hardware threads.
Processors = frozenset[int]


@dataclass(frozen=True)
class Machine:
    """What the launcher needs to know about this host.

    num_cores: physical cores this process may use (affinity and container quota counted), at least 1.
    addresses: (interface, IP address) pairs, IPv4 first within an interface.
    """

    host_name: str
    devices: tuple[Device, ...]
    num_cores: int
    addresses: tuple[tuple[str, str], ...]
    has_infiniband: bool


def look_at_this_machine(device: str = "auto") -> Machine:
    """The machine this process runs on, without its GPUs when `device` is cpu.

    Raises LaunchError where an NVIDIA device does not answer.
    """
    return Machine(
        host_name=socket.gethostname(),
        devices=() if device == "cpu" else list_devices(device_files_present()),
        num_cores=count_cores(),
        addresses=list_addresses(),
        has_infiniband=INFINIBAND.is_dir() and any(INFINIBAND.iterdir()),
    )


def list_devices(files_present: bool) -> tuple[Device, ...]:
    """All GPUs of this host, CUDA_VISIBLE_DEVICES not applied; empty where there is none.

    Raises LaunchError where the kernel shows a device (`files_present`) and NVML cannot list it.
    """
    try:
        with open_nvml() as nvml:
            devices = nvml.devices()
    except NvmlUnusable as error:
        if not files_present:
            return ()
        if error.code is None:
            raise LaunchError(
                "NVIDIA device found, but Python package nvidia-ml-py is missing; expected it installed"
            ) from error
        raise LaunchError(
            f"NVIDIA device found, but its driver does not answer (NVML: {error}); "
            "expected a working driver, or --device cpu"
        ) from error
    if files_present and not devices:
        raise LaunchError(
            "NVIDIA device found, but NVML lists none; expected a working driver, or --device cpu"
        )
    return devices


def visible_devices(devices: tuple[Device, ...], visible: str | None) -> tuple[str, ...]:
    """The CUDA_VISIBLE_DEVICES entries (indices or UUIDs) that processes of this host can use.

    `visible` is that variable (None: unset, all devices). CUDA ignores an entry it does not know and all
    that follow; here that is a LaunchError. A process sees one MIG device at most, so MIG counts as one.
    """
    if visible is None:
        whole = tuple(str(device.index) for device in devices if not device.in_mig_mode)
        return whole or tuple(uuid for device in devices for uuid in device.mig_uuids)[:1]
    entries = [entry.strip() for entry in visible.split(",")]
    if entries in ([""], ["-1"]):
        return ()
    where = f"CUDA_VISIBLE_DEVICES={visible}"
    owners = [_owner(entry, devices, where) for entry in entries]
    if len(entries) > 1 and any(entry.startswith("MIG-") for entry in entries):
        raise LaunchError(f"{where}: CUDA uses one MIG device per process; expected that one alone")
    if len(set(owners)) < len(owners):
        raise LaunchError(f"{where}: names a device twice; expected each once")
    return tuple(entries)


def _owner(entry: str, devices: tuple[Device, ...], where: str) -> int:
    """Index of the device that `entry` means: an index, a GPU UUID or the beginning of one, a MIG UUID."""
    if entry.isdecimal():
        if int(entry) >= len(devices):
            raise LaunchError(f"{where}: no device {entry} here; expected indices below {len(devices)}")
        return int(entry)
    if entry.startswith("MIG-"):
        owners = [device for device in devices if entry in device.mig_uuids]
    elif entry.startswith("GPU-"):
        owners = [device for device in devices if device.uuid.startswith(entry)]
    else:
        raise LaunchError(f"{where}: {entry!r}: expected an index, GPU-<uuid> or MIG-<uuid>")
    if len(owners) != 1:
        raise LaunchError(f"{where}: {entry!r} means {len(owners)} of the devices here; expected one")
    return owners[0].index


def processors_near(address: str, root: Path = ROOT) -> Processors:
    """The processors near the PCI device at `address`, as 0000:17:00.0; none where unknown.

    root: where /sys is found.
    """
    path = root / "sys/bus/pci/devices" / address / "local_cpulist"  # such as 0-3,8
    try:
        parts = [part.partition("-") for part in path.read_text(encoding="ascii").strip().split(",") if part]
        pairs = [(int(first), int(last or first)) for first, _, last in parts]
    except (OSError, ValueError):
        return frozenset()
    return frozenset(number for first, last in pairs for number in range(first, last + 1))


def processors_text(processors: Processors) -> str:
    """As the kernel writes it: 0-3,8."""
    runs = groupby(enumerate(sorted(processors)), key=lambda pair: pair[1] - pair[0])
    ends = [(numbers[0], numbers[-1]) for numbers in ([number for _, number in run] for _, run in runs)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def omp_threads(environment: Mapping[str, str], name: str = "OMP_NUM_THREADS") -> int:
    """The number of threads that a variable asks for, 0 where it is not set or is no number."""
    text = environment.get(name, "")
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,3}", text) else 0


def is_bound_by_launcher() -> bool:
    """True where this process may use other processors than its parent: it was bound."""
    with contextlib.suppress(OSError):
        return os.sched_getaffinity(os.getppid()) != os.sched_getaffinity(0)
    return False


def bind(processors: Processors) -> None:
    """Keep every thread of this process, and those to come, to these processors. May raise OSError."""
    os.sched_setaffinity(0, processors)
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), processors)


def list_addresses() -> tuple[tuple[str, str], ...]:
    """(interface, IP address) of every interface that is up."""
    import psutil

    stats = psutil.net_if_stats()
    families = {socket.AF_INET: 0, socket.AF_INET6: 1}
    addresses = [
        (name, families[entry.family], entry.address.partition("%")[0])
        for name, entries in psutil.net_if_addrs().items()
        if name in stats and stats[name].isup
        for entry in entries
        if entry.family in families
    ]
    return tuple((name, address) for name, _, address in sorted(addresses))


def interface_towards(address: str, addresses: tuple[tuple[str, str], ...]) -> str:
    """The interface whose packets reach `address`, a name or IP address; "" where there is no route.

    Sends nothing, except to the name server where `address` is a name. Raises LaunchError for a name that
    does not resolve.
    """
    local = [_address_towards(family, target) for family, target in _resolved(address, 9)]
    return next((name for towards in local for name, own in addresses if own == towards), "")


def _resolved(address: str, port: int) -> list[tuple[int, Any]]:
    """Families and targets of a name or IP address. Raises LaunchError for a name that does not resolve."""
    try:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # unknown, or not a valid host name
        raise LaunchError(
            f"--master-addr {address}: {_reason(error)}; expected the address of node 0"
        ) from error
    return [(int(family), target) for family, _, _, _, target in infos]


def _address_towards(family: int, target: Any) -> str:  # noqa: ANN401 - of the family
    """The address from which packets reach a target, by the kernel's routing table; "" without a route.

    Nothing is sent: the socket is UDP.
    """
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0]).partition("%")[0]
    return ""


def outward_address(addresses: tuple[tuple[str, str], ...], interface: str = "") -> str:
    """The address by which other machines are likely to know this one; "" where it has none.

    That of `interface`, else of the route to the default gateway, else the first one that may mean it.
    """
    own = outward_addresses(addresses, interface)
    local = [] if interface else [_address_towards(family, (outside, 9)) for family, outside in OUTSIDE]
    return next((address for address in (*local, *own) if address in own), "")


def outward_addresses(addresses: tuple[tuple[str, str], ...], interface: str = "") -> list[str]:
    """Those that may mean this machine elsewhere: neither the loopback nor of one link alone."""
    return [
        address
        for name, address in addresses
        if interface in ("", name) and not names_loopback(address) and not names_link(address)
    ]


def names_link(address: str) -> bool:
    """True for an address of one link alone (fe80::...), which machines may share."""
    ip = _ip(address)
    return ip is not None and ip.is_link_local


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0])
    return None


def addresses_of(name: str) -> tuple[str, ...]:
    """The IP addresses that `name` resolves to here, () where it does not."""
    with contextlib.suppress(LaunchError):
        resolved = (str(target[0]).partition("%")[0] for _, target in _resolved(name, ANY_PORT))
        return tuple(dict.fromkeys(resolved))
    return ()


def port_is_free(port: int) -> bool:
    """True where a server could listen on `port` on all interfaces now."""
    try:
        _listener_everywhere(port).close()
    except OSError:
        return False
    return True


def find_free_port() -> int:
    """A port on which nothing listens now, on any interface."""
    with _listener_everywhere(ANY_PORT) as listener:
        return int(listener.getsockname()[1])


def _listener_everywhere(port: int) -> socket.socket:
    """On all interfaces, by IPv6 and IPv4 where the host has both. Raises OSError."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=BACKLOG)


BACKLOG = 1024
ANY_PORT = 0
EVERYWHERE = ("0.0.0.0", "::")
DEFAULT_PORT = 12355  # of rank 0 (docs/cluster.md)
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def listen_on(address: str, port: int) -> socket.socket:
    """A listening socket on `address`, a name or IP address of this machine; ANY_PORT for a free one.

    Where the address is none of this machine's own (translated by a router, or given to a load balancer) it
    listens on all interfaces. Raises PortInUseError, or LaunchError where the name does not resolve or the
    port is not allowed.
    """
    targets = _resolved(address, port)
    for family, target in targets:
        if names_loopback(str(target[0])) and not names_loopback(address):
            continue  # a line `127.0.1.1 <own name>` of /etc/hosts, by which no other machine gets here
        listener = _bound(family, str(target[0]), port, address)
        if listener is not None:
            return listener
    family = targets[0][0]
    everywhere = _bound(family, "::" if family == socket.AF_INET6 else "0.0.0.0", port, address)
    if everywhere is None:
        raise LaunchError(f"--master-addr {address}: this machine cannot listen on port {port}")
    return everywhere


def names_loopback(address: str) -> bool:
    """True for localhost and loopback addresses, as written."""
    ip = _ip(address)
    return address.lower() in LOOPBACK_NAMES if ip is None else ip.is_loopback


def is_everywhere(listener: socket.socket) -> bool:
    """True where it listens on all interfaces."""
    return listener.getsockname()[0] in EVERYWHERE


def _bound(family: int, host: str, port: int, address: str) -> socket.socket | None:
    """None where `host` is not an address of this machine."""
    dual = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"port {port} of {address} is in use; expected a free one") from error
        raise LaunchError(f"port {port} of {address}: {_reason(error)}; expected another port") from error


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def machine_identity() -> str:
    """The same for two names or addresses of one host: its boot and its network namespace; "" if unknown.

    Containers with separate networks, and hosts that tests make of namespaces, share a kernel and are
    hosts to their peers.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return ""
