"""The store in which the ranks of a job find each other: torchrun's, or that of rank 0.

It is served on the master's address alone, where torch's own listens on all interfaces.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, MutableMapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.machine.machine import ANY_PORT, find_free_port, is_everywhere, listen_on

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, TCPStore

STORE_TIMEOUT = timedelta(seconds=60)
RESTARTS_VARIABLE = "TORCHELASTIC_RESTART_COUNT"
STARTED_AGAIN = "started-again"  # a scheme of torch's rendezvous


def open_store(environment: Mapping[str, str], rank: int, timeout_s: float) -> Store:
    """The job's store: torchrun's own, or that of rank 0 (`served_store`). Waits for no rank but rank 0.

    torchrun's outlives its ranks, whose addresses stand in it: ranks that it starts again have separate keys.
    Raises LaunchError where it is not served within `timeout_s`.
    """
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    is_torchruns = _launcher_serves(environment)
    try:
        # At rank 0 it shares the server that is there: torch's lives as long as one of its stores.
        is_master = rank == 0 and not is_torchruns
        store = _store(address, port, timedelta(seconds=timeout_s), is_master=is_master)
    except RuntimeError as error:
        server = "torchrun on node 0" if is_torchruns else "rank 0"
        raise LaunchError(
            f"rank {rank}: {server} did not answer at {address}:{port} within {timeout_s:g} s"
        ) from error
    if not _is_started_again(environment):
        return store
    from torch._C._distributed_c10d import PrefixStore

    return PrefixStore(f"start {environment[RESTARTS_VARIABLE]}", store)


def init_method(environment: Mapping[str, str]) -> str | None:
    """How the process group finds its store: torch's own way, but in ranks that torchrun started again."""
    if not _is_started_again(environment):
        return None
    import torch.distributed

    def rendezvous(url: str, timeout: timedelta, **options: object) -> Iterator[tuple[Store, int, int]]:
        rank, world_size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        yield open_store(environment, rank, timeout.total_seconds()), rank, world_size

    distributed: Any = torch.distributed  # this function has no types
    distributed.register_rendezvous_handler(STARTED_AGAIN, rendezvous)
    return f"{STARTED_AGAIN}://"


def _is_started_again(environment: Mapping[str, str]) -> bool:
    return _launcher_serves(environment) and environment.get(RESTARTS_VARIABLE, "0") != "0"


def serve_store(listener: socket.socket) -> TCPStore:
    """A store behind a listening socket; its server lives as long as it, or a store beside it, does.

    torch gives every further store of this process that is to serve the same port this one's server.
    """
    host, port = listener.getsockname()[:2]
    host = "localhost" if is_everywhere(listener) else host
    return _store(host, port, STORE_TIMEOUT, is_master=True, master_listen_fd=listener.detach())


def _store(host: str, port: int, timeout: timedelta, **options: Any) -> TCPStore:  # noqa: ANN401
    # torch.distributed has the same name, but does not export it to type checkers.
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(
        host_name=host, port=port, timeout=timeout, wait_for_workers=False, multi_tenant=True, **options
    )


def _launcher_serves(environment: Mapping[str, str]) -> bool:
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


@contextlib.contextmanager
def served_store(environment: MutableMapping[str, str]) -> Iterator[None]:
    """While ranks meet: rank 0 serves the store, on MASTER_ADDR alone, unless a launcher above it does.

    A process that is alone takes another port where its own was taken meanwhile.
    """
    serves = environment.get("RANK") == "0" and not _launcher_serves(environment)
    if not serves or "MASTER_ADDR" not in environment:
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
    del store  # the process group has another one by now, with the same server


def lone_process_environment() -> dict[str, str]:
    """Rendezvous variables for one process that no launcher started, which talks to no other machine."""
    lone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    own = {name: os.environ.get(name, "lo") for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return {**lone, **own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
