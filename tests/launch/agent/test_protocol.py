"""Messages of agents: whole, and not to be mistaken for what a job prints."""

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.agent.protocol import (
    VERSION,
    Beat,
    Ended,
    Output,
    decode,
    decode_plan,
    encode,
    encode_plan,
)
from alphazero.launch.plan.launch_plan import Command, HostPlan, LaunchPlan, Remote, Variable
from alphazero.machine.machine import Machine
from alphazero.machine.nvml import Device
from alphazero.run.rank import Failure, Phase
from alphazero.run.rank_watch import RankState

MESSAGES = [
    Output(3, "a line\nand a piece"),
    Output(None, "\x1b[31m\u00e9"),
    Beat((RankState(0, 5, Phase.SELF_PLAY, 12, 0.1, 0.2, 77, "S"),), -1),
    Ended(
        137, Failure("b", 3, "(pid 7) was killed by SIGKILL", "", "/b-rank3.log", 137), 0.5, "/log", 0, 100
    ),
    Ended(2, Failure("b", 1, "ended", "rank 2 is missing", kind="launch", ranks=(2, 4)), 0.5, "/log", 0, -1),
    Ended(0, None, 0.0, "/log", 0, 100, stopped=2),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was(message):
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize(
    "line", [b"hello", b"", b"{}", b"[" * 100_000, b"[1]", b'{"beat": 1}', b'{"ended": {"status": 0}}']
)
def test_what_a_login_script_prints_is_no_message(line: bytes):
    assert decode(line) is None


def test_a_job_that_prints_a_message_only_prints_it():
    forged = encode(MESSAGES[3]).decode()
    assert decode(encode(Output(0, forged))) == Output(0, forged)


def test_a_plan_arrives_as_it_was_and_another_version_is_refused():
    machine = Machine("b", (Device(0, "GPU-aa", "H200"),), 8, (("eth0", "10.0.0.5"),), has_infiniband=True)
    command = Command(("python", "a b"), (Variable("A", "1", "why"),), ("RANK",))
    own = HostPlan(
        Remote("b", "me@b", ssh_config="/etc/ssh"), "b", 2, 0.5, (0,), machine, ("0",), "eth0", command
    )
    plan = LaunchPlan(
        (HostPlan(Remote("a"), "a", 2), own), "cuda", "a", 12355, token="t", directory="/srv/az"
    )
    line = encode_plan(plan, 1)
    assert decode_plan(line) == (plan, 1)
    assert decode_plan(encode_plan(plan, 0))[0].hosts[1].command is None  # what is another host's
    with pytest.raises(LaunchError, match=f"protocol 1; expected {VERSION}"):
        decode_plan(line.replace(f'"version": {VERSION}'.encode(), b'"version": 1'))
    with pytest.raises(LaunchError, match="is no plan"):
        decode_plan(b"hello\n")
