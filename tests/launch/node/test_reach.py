"""Nodes that notice each other's end by the connections between them."""

import socket
import threading
import time

import pytest

from alphazero.launch.node import reach
from alphazero.launch.node.reach import Bond, Loss, closed_text


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch):
    """Losses are reported at once."""
    monkeypatch.setattr(reach, "SETTLE_S", 0.0)


class Pair:
    """Node 0 with a bond to node 1, and the other end of it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.other = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
        self.losses: list[Loss] = []
        self.heard = threading.Event()
        self.bond = Bond({"node 1 (host2)": accepted}, 10.0, self._lost)

    def _lost(self, loss: Loss) -> None:
        self.losses.append(loss)
        self.heard.set()


def test_a_node_that_is_gone_without_a_word_is_lost():
    pair = Pair()
    time.sleep(0.2)
    assert not pair.heard.is_set()
    pair.other.close()
    assert pair.heard.wait(10)
    assert pair.losses == [Loss("node 1 (host2)", "its launcher is gone", 1)]


def test_a_node_that_fails_passes_its_reason_and_its_status_on():
    pair = Pair()
    Bond({"node 0": pair.other}, 10.0, lambda loss: None).end(137, "rank 3 (pid 7) was killed by SIGKILL")
    assert pair.heard.wait(10)
    assert pair.losses == [Loss("node 1 (host2)", "rank 3 (pid 7) was killed by SIGKILL", 137)]


def test_a_node_that_ends_well_is_not_lost():
    pair = Pair()
    Bond({"node 0": pair.other}, 10.0, lambda loss: None).end(0, "")
    pair.bond.join(10)
    assert not pair.bond.is_alive()
    assert not pair.losses


def test_many_closed_ports_are_one_line():
    assert closed_text([f"a{number}" for number in range(6)]).startswith(
        "a0; a1; a2; a3; and 2 more; expected"
    )
