"""Nodes that notice each other's end by the connections between them."""

import socket
import threading
import time

import pytest

from alphazero.launch.node import host_link
from alphazero.launch.node.host_link import LostNode, tell_nodes, watch_nodes


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch):
    """Losses are reported at once."""
    monkeypatch.setattr(host_link, "SETTLE_S", 0.0)


class Pair:
    """Node 0 with a link to node 1, and the other end of it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.other = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
        self.losses: list[LostNode] = []
        self.heard = threading.Event()
        (self.watch,) = watch_nodes({"node 1 (host2)": accepted}, 10.0, self._lost)

    def _lost(self, loss: LostNode) -> None:
        self.losses.append(loss)
        self.heard.set()


def test_a_node_that_is_gone_without_a_word_is_lost():
    pair = Pair()
    time.sleep(0.2)
    assert not pair.heard.is_set()
    pair.other.close()
    assert pair.heard.wait(10)
    (loss,) = pair.losses
    assert (loss.name, loss.status) == ("node 1 (host2)", 1) and "gone" in loss.fate


def test_a_node_that_fails_passes_its_reason_and_its_status_on():
    pair = Pair()
    tell_nodes([pair.other], 137, "rank 3 (pid 7) was killed by SIGKILL")
    assert pair.heard.wait(10)
    assert pair.losses == [LostNode("node 1 (host2)", "rank 3 (pid 7) was killed by SIGKILL", 137)]


def test_a_node_that_ends_well_is_not_lost():
    pair = Pair()
    tell_nodes([pair.other], 0, "")
    pair.watch.join(10)
    assert not pair.watch.is_alive()
    assert not pair.losses
