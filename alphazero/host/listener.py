"""A socket that listens where its peers look for it and nowhere else: the loopback for one machine alone."""

from __future__ import annotations

import errno
import ipaddress
import socket

from alphazero.errors import LaunchError, PortInUseError

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
