"""The store where ranks meet, served on the master's address alone: torch's own listens on all interfaces."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, MutableMapping
from datetime import timedelta

# torch.distributed has the same names, but does not export them to type checkers.
from torch._C._distributed_c10d import TCPStore

from alphazero.errors import PortInUseError
from alphazero.host.listener import ANY_PORT, is_everywhere, listen_on

CONNECT_TIMEOUT = timedelta(seconds=60)


def serve_store(listener: socket.socket) -> TCPStore:
    """A store behind a socket that listens already; its server goes on while it or a store beside it lives.

    torch gives every further store of this process that is to serve the same port this one's server.
    """
    host, port = listener.getsockname()[:2]
    return TCPStore(
        host_name="localhost" if is_everywhere(listener) else host,
        port=port,
        is_master=True,
        timeout=CONNECT_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener.detach(),
    )


@contextlib.contextmanager
def served_store(environment: MutableMapping[str, str]) -> Iterator[None]:
    """While ranks meet: rank 0 serves the store, on MASTER_ADDR alone, unless a launcher above it does.

    A process that is alone takes another port where its own was taken meanwhile.
    """
    launcher_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if environment.get("RANK") != "0" or launcher_serves or "MASTER_ADDR" not in environment:
        yield
        return
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    try:
        listener = listen_on(address, port)
    except PortInUseError:
        if environment.get("WORLD_SIZE", "1") != "1":
            raise
        listener = listen_on(address, ANY_PORT)
        environment["MASTER_PORT"] = str(listener.getsockname()[1])
    store = serve_store(listener)
    yield
    del store  # the process group has one of its own by now, with the same server
