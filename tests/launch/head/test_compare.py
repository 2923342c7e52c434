"""What the answers of hosts say when they are compared."""

from dataclasses import replace

import pytest

from alphazero.base.records import from_output, to_json
from alphazero.launch.head.compare import Examined, compare, examine
from alphazero.launch.head.probe import MARK, HostFault, Probe, Question, look
from alphazero.launch.head.remote import explain_ssh
from alphazero.launch.plan.launch_plan import HostPlan, Remote
from alphazero.machine.machine import Machine
from alphazero.machine.nvml import Device

QUESTION = Question("/srv/az", "/srv/az/runs/x", "a", 12355, False, "auto")


def probe(**changed) -> Probe:
    """A host without a fault, with two GPUs."""
    devices = tuple(Device(index, f"GPU-{index}", "H200") for index in range(2))
    usual = {
        "machine": Machine("a", devices, 16, (("eth0", "10.0.0.1"),), False),
        "python": "/venv/bin/python",
        "versions": {"python": "3.11.2", "torch": "2.13.0", "deepspeed": "0.19.8"},
        "commit": "0123456789ab",
        "has_directory": True,
        "run_writable": True,
        "visible": ("0", "1"),
        "master_addresses": ("10.0.0.1",),
        "interface": "eth0",
        "port_is_free": True,
        "free_port": 20000,
        "data": {},
    }
    return Probe(**{**usual, **changed})


def lines_of(examined: list[Examined], question: Question = QUESTION) -> list[str]:
    """Lines about what is wrong, failures marked."""
    compared = [(one.name, fault) for one in compare(examined, question) for fault in one.faults]
    return [f"{'E' if fault.is_failure else 'W'} {name}: {fault.text}" for name, fault in compared]


def found(second: Probe, question: Question = QUESTION) -> list[str]:
    """Lines about two hosts of which the first is well."""
    first = Examined(HostPlan(Remote("a"), "a", 2), probe())
    other = Examined(HostPlan(Remote("b", "b"), "b", 2), second)
    return lines_of([first, other], question)


def test_hosts_alike_have_no_findings():
    assert found(probe()) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"visible": ("0",)}, "E b: slots=2, but 1 GPUs found; expected at most as many slots"),
        (
            {"versions": {"python": "3.11.2", "torch": "2.12.0", "deepspeed": "0.19.8"}},
            "E b: torch 2.12.0; expected 2.13.0 as on a",
        ),
        (
            {"commit": "0123456789ab+ff"},
            "E b: alphazero commit 0123456789ab+ff; expected 0123456789ab as on a",
        ),
        ({"has_directory": False}, "E b: no directory /srv/az; expected the one the head was started in"),
        ({"run_writable": False}, "E b: /srv/az/runs/x: cannot be written; expected a directory for the run"),
        (
            {"master_addresses": ()},
            "E b: master address a does not resolve; expected --master-addr ADDRESS that does",
        ),
        ({"fault": "the driver does not answer"}, "E b: the driver does not answer"),
        ({"health": (HostFault("GPU 0 is hot", False),)}, "W b: GPU 0 is hot"),
        ({"health": (HostFault("ECC", True),)}, "E b: ECC"),
    ],
)
def test_each_difference_is_one_line_that_names_host_found_and_wanted(changed: dict, line: str):
    assert found(probe(**changed)) == [line]


def test_a_host_that_only_plays_is_compared_but_needs_neither_master_nor_data():
    question = replace(QUESTION, data={"games": "aa"}, interface="eth0", mark="/srv/az/runs/.m")
    first = Examined(HostPlan(Remote("a"), "a", 2), probe(data={"games": "aa"}))
    player = HostPlan(Remote("b", "b"), "b", 0, num_actors=2)
    machine = replace(probe().machine, addresses=(("ib0", "10.0.0.2"),))
    lacks = {"master_addresses": (), "machine": machine}
    assert lines_of([first, Examined(player, probe(**lacks))], question) == []
    faulty = probe(**lacks, visible=("0",), commit="ff", has_mark=False, health=(HostFault("ECC"),))
    assert lines_of([first, Examined(player, faulty)], question) == [
        "E b: slots=2, but 1 GPUs found; expected at most as many slots",
        "E b: /srv/az/runs: is another directory than on the first host; expected one that "
        "actors and learner see, or --place URL (docs/actors.md)",
        "E b: ECC",
        "E b: alphazero commit ff; expected 0123456789ab as on a",
    ]
    trains = replace(player, num_ranks=2, num_actors=0)
    alike = probe(data={"games": "aa"}, has_mark=False)
    assert lines_of([first, Examined(trains, alike)], question) == []  # it plays no games


def test_the_mark_is_in_the_nearest_directory_that_exists_and_goes_again(tmp_path):
    hosts = [HostPlan(Remote("a"), "a", 1), HostPlan(Remote("b"), "b", 0, num_actors=1)]
    question = Question(str(tmp_path), "runs", "", 0, False, "cpu", mark="runs/x/.m")
    seen = examine(hosts, question)
    assert [one.probe.has_mark for one in seen] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_a_host_under_two_names_is_an_error_that_names_both():
    first = Examined(HostPlan(Remote("a"), "a", 2), probe(identity="boot net:[1]"))
    alias = Examined(HostPlan(Remote("10.0.0.1", "10.0.0.1"), "10.0.0.1", 2), probe(identity="boot net:[1]"))
    other = Examined(HostPlan(Remote("c", "c"), "c", 2), probe(identity="boot net:[2]"))
    lines = lines_of([first, alias, other])
    assert len(lines) == 1 and lines[0].startswith("E 10.0.0.1: ") and "same machine as a;" in lines[0]


def test_a_host_knows_its_identity_and_tells_it():
    own = look(Question(".", ".", "", 0, False, "cpu"))
    assert own.identity.endswith("]")
    told = from_output(Probe, MARK, MARK + to_json(own))
    assert told is not None
    assert told.identity == own.identity


def test_a_host_without_gpus_fails_a_job_on_gpus_and_not_one_on_cpus():
    without = probe(visible=())
    assert len(found(without)) == 1
    assert found(without, replace(QUESTION, device="cpu")) == []


def test_data_that_differs_is_named_with_the_flag_that_sends_it():
    question = replace(QUESTION, data={"games": "aa"})
    first_too = found(probe(data={"games": "bb"}), question)
    assert any("games is bb" in line and "--sync-data" in line for line in first_too)


def test_a_probe_survives_the_way_to_the_head_and_login_scripts_around_it():
    whole = probe(health=(HostFault("x", True),), data={"games": "aa"})
    assert from_output(Probe, MARK, f"Welcome!\n{MARK}{to_json(whole)}\n") == whole
    assert from_output(Probe, MARK, "Welcome!\n") is None


def test_this_machine_answers():
    answer = look(Question(".", "runs/x", "", 0, False, "cpu"))
    assert answer.has_directory
    assert answer.versions["deepspeed"] == "0.19.8"
    assert from_output(Probe, MARK, MARK + to_json(answer)) == answer


@pytest.mark.parametrize(
    ("said", "phrase"),
    [
        ("Host key verification failed.", "its ssh host key is not the one in known_hosts"),
        ("b: Permission denied (publickey).", "ssh login refused"),
        ("ssh: Could not resolve hostname b: Name or service not known", "its name is not known here"),
        ("ssh: connect to host b port 22: Connection timed out", "no answer"),
        ("ssh: connect to host b port 22: Connection refused", "no ssh server answers"),
        ("client_loop: send disconnect: Broken pipe", "the connection broke"),
        ("", "its program there was killed by a signal"),
        ("Too many authentication failures", "ssh failed: Too many"),
    ],
)
def test_what_ssh_says_becomes_one_phrase(said: str, phrase: str):
    assert explain_ssh(said).startswith(phrase)
    assert "expected" in explain_ssh(said)


def test_an_agent_that_has_spoken_was_killed_whatever_a_login_script_prints():
    assert explain_ssh("Welcome", has_answered=True) == explain_ssh("")
    assert explain_ssh("client_loop: send disconnect: Broken pipe", has_answered=True) != explain_ssh("")
