"""The agent of one host by itself, as its head sees it: signals at the moment it starts its launcher."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from alphazero.launch.agent import protocol
from alphazero.launch.agent.processes import processes_of
from alphazero.launch.plan.launch_plan import Command, HostPlan, LaunchPlan, Remote
from alphazero.run.rank_watch import Limits
from tests.support.paths import REPOSITORY, SUPPORT

SIGNALLED_AGENT = SUPPORT / "launch" / "signalled_agent.py"


def test_a_warning_while_the_launcher_starts_is_heard_and_does_not_kill_it(tmp_path: Path):
    """There are no ranks to save anything: the launcher is ended as after any other request to stop."""
    launcher = ("sleep", "300")
    host = HostPlan(Remote("here"), "127.0.0.1", 1, command=Command(launcher))
    place = {"directory": str(tmp_path), "run_directory": str(tmp_path)}
    limits = Limits(silence_s=60.0)
    plan = LaunchPlan((host,), "cpu", "127.0.0.1", 12355, token="warned", limits=limits, **place)
    agent = subprocess.Popen(
        [sys.executable, str(SIGNALLED_AGENT)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        agent.stdin.write(protocol.encode_plan(plan, 0))
        agent.stdin.flush()  # and is left open: a head that is gone would end the job, too
        lines = agent.stdout.read().splitlines()
        assert agent.wait(30) == 0
    finally:
        agent.kill()
        agent.wait()
    ended = protocol.decode(lines[-1])
    assert isinstance(ended, protocol.Ended)
    assert ended.status == 143 and "SIGTERM" in ended.failure.fate
    assert ended.asked == signal.SIGUSR1
    assert processes_of("warned") == []
