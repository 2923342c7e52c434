"""The network of the engine: read on a thread of its own, so that the protocol is answered meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from alphazero.search.batched import Evaluator


@dataclass(frozen=True)
class NetworkRequest:
    """Which network, and how it shall be computed. threads, minibatch_size: 0 leaves the choice."""

    weights: str
    threads: int
    minibatch_size: int


@dataclass(frozen=True)
class LoadedNetwork:
    """A network that evaluates chess positions, and one line about it."""

    evaluator: Evaluator
    description: str


class OpenNetwork(Protocol):
    """Reads a network; raises AlphaZeroError for one that cannot be used."""

    def __call__(self, request: NetworkRequest) -> LoadedNetwork: ...


@dataclass(frozen=True)
class Loading:
    """How reading a network ended: with a network, an error, or neither where another was asked for since."""

    request: NetworkRequest
    network: LoadedNetwork | None = None
    error: Exception | None = None


class NetworkLoader:
    """Reads networks one after the other; `tell` hears of each on the loader's thread."""

    def __init__(self, open_network: OpenNetwork, tell: Callable[[Loading], None]) -> None:
        self._open = open_network
        self._tell = tell
        self._turn = threading.Lock()
        self._newest: NetworkRequest | None = None

    def load(self, request: NetworkRequest) -> None:
        """Begin to read a network; one that was asked for before and not begun is left out."""
        self._newest = request
        threading.Thread(target=self._load, args=(request,), name="network", daemon=True).start()

    def _load(self, request: NetworkRequest) -> None:
        with self._turn:
            try:
                is_wanted = request is self._newest
                loading = Loading(request, network=self._open(request) if is_wanted else None)
            except Exception as error:  # told, whatever it is: the engine decides what becomes of it
                loading = Loading(request, error=error)
        self._tell(loading)
