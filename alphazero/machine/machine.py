"""What this host has: NVIDIA devices as NVML counts them, cores, network addresses.

No torch here: a login node answers at once. A host without an NVIDIA device is a CPU host; one that has a
device whose driver does not answer is an error, so that a broken driver never becomes a silent CPU run.

A socket that listens where its peers look for it and nowhere else: the loopback for one machine alone.

What the kernel counts of this host's network: TCP segments sent, and those that had to be sent again.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.machine.memory import ROOT, processor_quota

# Addresses of documentation (RFC 5737, RFC 3849): nobody has them, so that the default route leads there.
OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
INFINIBAND = Path("/sys/class/infiniband")
# Tells the ranks of a host their weight, where its line of the hostfile has one.
HOST_WEIGHT_VARIABLE = "ALPHAZERO_HOST_WEIGHT"


@dataclass(frozen=True)
class Device:
    """A GPU that NVML lists. `uuid` begins with GPU-; `mig_uuids` are its MIG devices, if it is split."""

    index: int
    uuid: str
    name: str
    in_mig_mode: bool = False
    mig_uuids: tuple[str, ...] = ()


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
    """The machine this process runs on, its GPUs not asked for when `device` is cpu.

    Raises LaunchError where an NVIDIA device does not answer.
    """
    return Machine(
        host_name=socket.gethostname(),
        devices=() if device == "cpu" else list_devices(device_files_present()),
        num_cores=count_cores(),
        addresses=list_addresses(),
        has_infiniband=INFINIBAND.is_dir() and any(INFINIBAND.iterdir()),
    )


def device_files_present() -> bool:
    """True where the kernel shows an NVIDIA device, whatever NVML thinks of it."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or any(Path("/proc/driver/nvidia/gpus").glob("*"))


def list_devices(files_present: bool) -> tuple[Device, ...]:
    """All GPUs of this host, CUDA_VISIBLE_DEVICES not applied; empty where there is none.

    Raises LaunchError where the kernel shows a device (`files_present`) and NVML cannot list it.
    """
    try:
        import pynvml
    except ImportError as error:
        if files_present:
            raise LaunchError(
                "NVIDIA device found, but Python package nvidia-ml-py is missing; expected `make setup`"
            ) from error
        return ()
    try:
        pynvml.nvmlInit()
        try:
            devices = tuple(_describe(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if files_present:
            raise LaunchError(
                f"NVIDIA device found, but its driver does not answer (NVML: {error}); "
                "expected a working driver, or --device cpu"
            ) from error
        return ()
    if files_present and not devices:
        raise LaunchError(
            "NVIDIA device found, but NVML lists none; expected a working driver, or --device cpu"
        )
    return devices


def _describe(nvml: Any, index: int) -> Device:  # noqa: ANN401 - pynvml has no types
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mig_uuids: list[str] = []
    try:
        in_mig_mode = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # devices that cannot be split say "not supported", old drivers "no such function"
        in_mig_mode = False
    if in_mig_mode:
        for instance in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                mig_handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance)
            except nvml.NVMLError_NotFound:
                continue
            mig_uuids.append(nvml.nvmlDeviceGetUUID(mig_handle))
    return Device(
        index, nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle), in_mig_mode, tuple(mig_uuids)
    )


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
    if entry.startswith("MIG-GPU-"):  # the form of drivers before 470: MIG-<GPU UUID>/<instances>
        found = [device for device in devices if entry[4:].startswith(device.uuid + "/")]
    elif entry.startswith("MIG-"):
        found = [device for device in devices if entry in device.mig_uuids]
    elif entry.startswith("GPU-"):
        found = [device for device in devices if device.uuid.startswith(entry)]
    else:
        raise LaunchError(f"{where}: {entry!r}: expected an index, GPU-<uuid> or MIG-<uuid>")
    if len(found) != 1:
        raise LaunchError(f"{where}: {entry!r} means {len(found)} of the devices here; expected one")
    return found[0].index


def count_processors(root: Path = ROOT) -> int:
    """Processors (hardware threads) this process may use by affinity and container quota, at least 1."""
    allowed, quota = len(os.sched_getaffinity(0)), processor_quota(root)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def count_cores(root: Path = ROOT) -> int:
    """Physical cores this process may use by affinity and container quota, at least 1."""
    import psutil

    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed, quota = len(os.sched_getaffinity(0)) * physical / logical, processor_quota(root)
    return max(1, int(allowed if quota is None else min(allowed, quota)))


def list_addresses() -> tuple[tuple[str, str], ...]:
    """(interface, IP address) of every interface that is up."""
    import psutil

    stats = psutil.net_if_stats()
    families = {socket.AF_INET: 0, socket.AF_INET6: 1}
    found = [
        (name, families[entry.family], entry.address.partition("%")[0])
        for name, entries in psutil.net_if_addrs().items()
        if name in stats and stats[name].isup
        for entry in entries
        if entry.family in families
    ]
    return tuple((name, address) for name, _, address in sorted(found))


def interface_towards(address: str, addresses: tuple[tuple[str, str], ...]) -> str:
    """The interface whose packets reach `address`, a name or IP address; "" where there is no route.

    Asks the kernel's routing table (a connected UDP socket); sends nothing, except to the name server
    where `address` is a name. Raises LaunchError for a name that does not resolve.
    """
    try:
        infos = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise LaunchError(
            f"--master-addr {address}: {error.strerror}; expected the address of node 0"
        ) from error
    for family, kind, protocol, _, target in infos:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
            except OSError:
                continue
            local = probe.getsockname()[0].partition("%")[0]
        for name, own in addresses:
            if own == local:
                return name
    return ""


def outward_address(addresses: tuple[tuple[str, str], ...], interface: str = "") -> str:
    """The address by which other machines are likely to know this one; "" where it has none.

    That of `interface`, else of the route to the default gateway (a connected UDP socket: nothing is sent),
    else the first one that is not the loopback or of the link alone.
    """
    outward = [(name, own) for name, own in addresses if _reaches_further(own)]
    if interface:
        return next((own for name, own in outward if name == interface), "")
    for family, outside in OUTSIDE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))
            local = str(probe.getsockname()[0]).partition("%")[0]
            if any(own == local for _, own in outward):
                return local
    return next((own for _, own in outward), "")


def _reaches_further(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or parsed.is_link_local)


def addresses_of(name: str) -> tuple[str, ...]:
    """The IP addresses that `name` resolves to here, () where it does not."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a name no name server would be asked for
        return ()
    return tuple(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found))


def port_is_free(port: int) -> bool:
    """True where a server could listen on `port` on all interfaces now."""
    return _can_listen(socket.AF_INET, "0.0.0.0", port) and _can_listen(socket.AF_INET6, "::", port)


def _can_listen(family: socket.AddressFamily, everywhere: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((everywhere, port))
            probe.listen(1)
    except OSError as error:
        # Any other error of IPv6 says that this host has none, which is no hindrance.
        return family == socket.AF_INET6 and error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def find_free_port() -> int:
    """A port nobody listens on now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if port_is_free(port):
            return port


BACKLOG = 1024
ANY_PORT = 0
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def listen_on(address: str, port: int) -> socket.socket:
    """A listening socket on `address`, a name or IP address of this machine; ANY_PORT for a free one.

    Where the address is none of this machine's own (translated by a router, or given to a load balancer) it
    listens on all interfaces. Raises PortInUseError, or LaunchError where the name does not resolve or the
    port is not allowed.
    """
    try:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LaunchError(
            f"--master-addr {address}: {_reason(error)}; expected the address of node 0"
        ) from error
    for family, _, _, _, target in infos:
        if _is_loopback(str(target[0])) and not names_loopback(address):
            continue  # a line `127.0.1.1 <own name>` of /etc/hosts, by which no other machine gets here
        listener = _bound(family, str(target[0]), port, address)
        if listener is not None:
            return listener
    everywhere = _bound(infos[0][0], "::" if infos[0][0] == socket.AF_INET6 else "0.0.0.0", port, address)
    if everywhere is None:
        raise LaunchError(f"--master-addr {address}: this machine cannot listen on port {port}")
    return everywhere


def names_loopback(address: str) -> bool:
    """True for localhost and loopback addresses, as written."""
    return address.lower() in LOOPBACK_NAMES or _is_loopback(address)


def is_everywhere(listener: socket.socket) -> bool:
    """True where it listens on all interfaces."""
    return listener.getsockname()[0] in ("0.0.0.0", "::")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _bound(family: socket.AddressFamily | int, host: str, port: int, address: str) -> socket.socket | None:
    """None where `host` is no address of this machine."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"port {port} of {address} is in use; expected a free one") from error
        raise LaunchError(f"port {port} of {address}: {_reason(error)}; expected another port") from error
    return listener


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


TCP_COUNTERS = Path("/proc/net/snmp")


def tcp_segments(path: Path = TCP_COUNTERS) -> tuple[int, int]:
    """TCP segments that this host (its network namespace) has sent, and those sent again; 0, 0 if unknown."""
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        names, values = (row[1:] for row in rows if row and row[0] == "Tcp:")
        counters = dict(zip(names, map(int, values), strict=True))
        return counters["OutSegs"], counters["RetransSegs"]
    except (OSError, ValueError, KeyError):
        return 0, 0
