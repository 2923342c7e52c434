"""The meeting of nodes: who waits for whom, which lines appear, what is refused; strangers do no harm."""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.node import meeting as meetings
from alphazero.launch.node.meeting import (
    MeetingPoint,
    Participant,
    closed_ports,
    decode_participant,
    meet,
)
from alphazero.machine.machine import ANY_PORT, listen_on
from tests.support.jobs.jobs import free_port


class Node(threading.Thread):
    """One node in a thread: what it said, and how it ended."""

    def __init__(self, act: Callable[[Callable[[str], None]], None]) -> None:
        super().__init__(daemon=True)
        self.said: list[str] = []
        self.fault = ""
        self._act = act
        self.start()

    def run(self) -> None:
        try:
            self._act(self.said.append)
        except LaunchError as error:
            self.fault = str(error)

    def wait_until_said(self, beginning: str, times: int = 1) -> None:
        """Lines that begin so."""
        deadline = time.monotonic() + 10
        while sum(line.startswith(beginning) for line in self.said) < times:
            assert time.monotonic() < deadline, (self.said, self.fault)
            time.sleep(0.02)

    def end(self) -> str:
        """How it ended: "" for go."""
        self.join(40)
        assert not self.is_alive()
        return self.fault


@pytest.fixture
def meeting():
    """A listener, and where it is."""
    listener = listen_on("127.0.0.1", ANY_PORT)
    yield listener, MeetingPoint("127.0.0.1", listener.getsockname()[1])
    listener.close()


def first(meeting, count: int, limit_s: float = 20.0, machine: str = "m0") -> Node:
    listener, point = meeting
    return Node(lambda say: meet(Participant(0, count, "host0", machine), point, limit_s, say, listener))


def other(meeting, rank: int, count: int, limit_s: float = 20.0, machine: str | None = None) -> Node:
    member = Participant(rank, count, f"host{rank}", machine or f"m{rank}")
    return Node(lambda say: meet(member, meeting[1], limit_s, say))


def test_all_nodes_go_when_the_last_one_has_come(meeting):
    nodes = [first(meeting, 3), other(meeting, 2, 3)]
    time.sleep(0.5)
    assert all(node.is_alive() for node in nodes)
    nodes.append(other(meeting, 1, 3))
    assert [node.end() for node in nodes] == ["", "", ""]


def test_a_port_that_cannot_be_reached_is_named_on_all_nodes(meeting, monkeypatch: pytest.MonkeyPatch):
    """A firewall on host2 that lets nobody in but at the master's port."""

    def closed(nodes: list[Participant], own_rank: int, point: MeetingPoint) -> list[str]:
        assert [(node.host, node.address) for node in sorted(nodes, key=lambda node: node.rank)] == [
            (f"host{rank}", "127.0.0.1") for rank in range(3)
        ]
        assert closed_ports(nodes, own_rank, point) == []
        shut = [node if node.rank != 2 else replace(node, port=free_port()) for node in nodes]
        return closed_ports(shut, own_rank, point)

    monkeypatch.setattr(meetings, "closed_ports", closed)
    nodes = [first(meeting, 3), other(meeting, 1, 3), other(meeting, 2, 3)]
    for node in nodes:
        assert re.fullmatch(
            r"node 0 \(host0\) cannot reach node 2 \(host2\) at 127.0.0.1:\d+: the connection is refused .*; "
            r"node 1 \(host1\) cannot reach node 2 \(host2\) at 127.0.0.1:\d+: the connection is refused .*; "
            r"expected machines that reach each other at all TCP ports .*",
            node.end(),
        )


def test_who_waits_says_for_whom_and_where(meeting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meetings, "REPORT_S", 0.4)
    line = f"waiting for nodes 1 and 3 of 4 at 127.0.0.1:{meeting[1].port}, "
    nodes = [first(meeting, 4), other(meeting, 2, 4)]
    for node in nodes:
        node.wait_until_said(line, times=2)
    nodes += [other(meeting, 1, 4), other(meeting, 3, 4)]
    assert [node.end() for node in nodes] == [""] * 4


def test_a_node_that_does_not_come_is_named_to_all_after_the_limit(meeting):
    nodes = [first(meeting, 3, limit_s=3.0), other(meeting, 1, 3)]
    expected = f"node 2 of 3 did not connect to {meeting[1].shown} within 3 s: expected each to be started"
    for node in nodes:
        assert node.end().startswith(expected)


def test_a_node_0_that_cannot_be_reached_is_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meetings, "REPORT_S", 0.3)
    port = free_port()
    node = other((None, MeetingPoint("127.0.0.1", port)), 1, 2, limit_s=1.0)
    assert node.end().startswith("node 1: node 0 did") and f"127.0.0.1:{port} within 1 s: " in node.end()
    assert f"node 0 of 2 at 127.0.0.1:{port}, " in node.said[0]
    node = other((None, MeetingPoint("no.such.host.invalid", port)), 1, 2, limit_s=1.0)
    assert "is not known" in node.end()


def test_a_server_that_says_nothing_is_no_node_0_and_that_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meetings, "REPORT_S", 0.3)
    with listen_on("127.0.0.1", ANY_PORT) as listener:  # the kernel accepts connections for it
        node = other((None, MeetingPoint("127.0.0.1", listener.getsockname()[1])), 1, 2, limit_s=3.0)
        trouble = "it accepts and does not answer; another program may have the port"
        assert trouble in node.end()
    assert node.said
    assert all(line.startswith("waiting for node 0 of 2 at ") and trouble in line for line in node.said)


def test_a_node_that_comes_before_node_0_waits_for_it():
    port = free_port()
    point = MeetingPoint("127.0.0.1", port)
    early = other((None, point), 1, 2)
    time.sleep(0.7)
    with listen_on("127.0.0.1", port) as listener:
        assert first((listener, point), 2).end() == ""
        assert early.end() == ""


@pytest.mark.parametrize(
    ("intruder", "message"),
    [
        (
            Participant(1, 3, "elsewhere", "m9"),
            "node 1 was started twice, on host1 and on elsewhere; expected",
        ),
        (Participant(0, 3, "elsewhere", "m9"), "node 0 was started twice, on host0 and on elsewhere"),
        (
            Participant(2, 4, "elsewhere", "m9"),
            "node 2 (elsewhere) was started with --nodes 4, node 0 (host0)",
        ),
        (
            Participant(2, 3, "alias", "m1"),
            "node 2 (alias) is on the same machine as node 1 (host1); expected",
        ),
    ],
)
def test_nodes_that_cannot_be_of_one_job_are_named_on_all_of_them(
    meeting, monkeypatch: pytest.MonkeyPatch, intruder: Participant, message: str
):
    monkeypatch.setattr(meetings, "REPORT_S", 0.2)
    nodes = [first(meeting, 3), other(meeting, 1, 3)]
    nodes[1].wait_until_said("waiting for node 2 of 3 at ")  # so that it is the first one with its number
    nodes.append(Node(lambda say: meet(intruder, meeting[1], 10.0, say)))
    for node in nodes:
        assert node.end().startswith(message)


def test_one_machine_may_play_all_nodes_where_it_was_asked_to(meeting):
    listener, point = meeting
    point = MeetingPoint(point.address, point.port, same_machine=True)
    nodes = [first((listener, point), 2, machine="m"), other((None, point), 1, 2, machine="m")]
    assert [node.end() for node in nodes] == ["", ""]


def test_a_node_that_goes_away_is_missed_and_may_come_again(meeting):
    node = first(meeting, 2)
    with socket.create_connection(("127.0.0.1", meeting[1].port)) as leaving:
        leaving.sendall(json.dumps(asdict(Participant(2, 3, "x"))).encode())  # no whole line
    assert other(meeting, 1, 2).end() == ""
    assert node.end() == ""


@pytest.mark.parametrize(
    "junk",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04\x95\n", b"x" * 100_000, b"[" * 4000 + b"\n", b"{}\n", b"\n", b""],
)
def test_strangers_are_not_answered_and_do_no_harm(meeting, junk: bytes):
    node = first(meeting, 2)
    with socket.create_connection(("127.0.0.1", meeting[1].port), 5) as stranger:
        stranger.sendall(junk)
        if junk.endswith(b"\n") or len(junk) > 4096:
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
        assert node.is_alive()
        assert other(meeting, 1, 2).end() == ""
    assert node.end() == ""


@pytest.mark.parametrize(
    "changed",
    [{"alphazero": 1}, {"rank": 2}, {"rank": True}, {"host": "a\u001b[2J"}, {"host": 3}, {"more": 1}],
)
def test_an_introduction_is_of_this_version_and_sound_or_none(changed: dict):
    sound = Participant(1, 2, "a", "m")
    assert decode_participant(asdict(sound)) == sound
    assert decode_participant(asdict(sound) | changed) is None
    assert decode_participant(None) is None
