"""A port that was taken between the look at it and the start: another one is taken, which is no restart."""

import sys
from pathlib import Path

import pytest

from alphazero.launch.head import supervisor
from alphazero.launch.head.supervisor import MOST_PORT_CHANGES, ChosenRun, Supervision, Supervisor
from alphazero.launch.plan.launch_plan import LOCAL, NODE, Command, HostPlan, LaunchPlan, Remote
from alphazero.machine.machine import ANY_PORT, listen_on

PORT = 12355
# A launcher whose port others have for its first TAKEN starts; it notes the port of each.
LAUNCHER = """
import os, sys
from pathlib import Path
from alphazero.base.errors import PortInUseError
from alphazero.launch.node.torchrun import refuse
ports, taken, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
starts = ports.read_text().split() if ports.exists() else []
ports.write_text(" ".join([*starts, port]))
sys.exit(refuse(PortInUseError(f"port {port} is in use")) if len(starts) < taken else 0)
"""


def run(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    taken: int,
    port_is_chosen: bool = False,
    port: int = PORT,
    num_nodes: int = 1,
    node_rank: int = 0,
) -> tuple[int, list[str], list[int]]:
    """Exit status, what was said, and the port of every start."""
    notes = directory / "ports"

    def build(plan: LaunchPlan, *rest: object) -> Command:
        return Command((sys.executable, "-c", LAUNCHER, str(notes), str(taken), str(plan.master_port)))

    monkeypatch.setattr(supervisor, "build_command", build)
    monkeypatch.setattr(supervisor, "banner", lambda *rest: [])
    said: list[str] = []
    plan = LaunchPlan(
        (HostPlan(Remote("here"), "127.0.0.1", 1),) * num_nodes,
        "cpu",
        "127.0.0.1",
        port,
        role=NODE if num_nodes > 1 else LOCAL,
        node_rank=node_rank,
        port_is_chosen=port_is_chosen,
        directory=str(directory),
        grace_s=1.0,
    )
    job = Supervision(plan, (), lambda device: ChosenRun(str(directory), ()), str(directory), quiet=True)
    status = Supervisor(job, said.append).run()
    return status, said, [int(word) for word in notes.read_text().split()] if notes.exists() else []


def test_the_job_goes_on_with_another_port_without_counting_a_restart(tmp_path: Path, monkeypatch):
    status, said, ports = run(tmp_path, monkeypatch, taken=2)
    assert status == 0
    assert len(set(ports)) == 3
    assert f"port {ports[0]} is in use" in said[0]
    assert not any("restart" in line for line in said)


def test_a_port_that_the_user_chose_is_an_error_of_one_line(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("alphazero.launch.head.probe.port_is_free", lambda port: True)
    status, said, ports = run(tmp_path, monkeypatch, taken=1, port_is_chosen=True)
    assert (status, ports) == (2, [PORT])
    assert len(said) == 1
    assert said[0].startswith(f"error: here could not start its ranks: port {PORT} is in use (log: ")


def test_where_every_port_is_taken_the_job_ends(tmp_path: Path, monkeypatch):
    status, said, ports = run(tmp_path, monkeypatch, taken=100)
    assert (status, len(ports)) == (2, 1 + MOST_PORT_CHANGES)
    assert said[-1].startswith("error: here could not start its ranks: port ")


def test_of_nodes_started_by_hand_only_node_0_needs_the_port(tmp_path: Path, monkeypatch):
    """Node 0 listens there already when node 1 is started a little later on the same machine."""
    with listen_on("127.0.0.1", ANY_PORT) as listener:
        port = listener.getsockname()[1]
        by_hand = {"port_is_chosen": True, "port": port, "num_nodes": 2}
        assert run(tmp_path, monkeypatch, 0, node_rank=1, **by_hand) == (0, [], [port])
        (tmp_path / "ports").unlink()
        status, said, ports = run(tmp_path, monkeypatch, 0, node_rank=0, **by_hand)
    assert (status, ports) == (2, [])
    assert said[0].startswith(f"error: here: port {port} is in use; expected a free one: --master-port ")
