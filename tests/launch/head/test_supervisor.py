"""One machine's job from start to end: exit status, the first and the second Ctrl-C, nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from alphazero.run.rank_watch import Limits
from tests.support.paths import REPOSITORY, SUPPORT

AGENT = [sys.executable, str(SUPPORT / "launch" / "fake_agent.py")]
STOPPING = "stopping: ranks finish their step and save a checkpoint (Ctrl-C again ends at once)"


class Launch:
    """A launcher in a process of its own, over the fake agent."""

    def __init__(self, directory: Path, *modes: str) -> None:
        self.directory = directory
        self.num_ranks = len(modes)
        program = (
            "import sys; from alphazero.launch.head import supervisor; "
            "from alphazero.launch.head.lines import say; "
            "from alphazero.launch.plan.launch_plan import Command, HostPlan, LaunchPlan, Remote; "
            "ranks, directory, *argv = sys.argv[1:]; "
            "supervisor.build_command = lambda *arguments: Command(tuple(argv)); "
            "supervisor.banner = lambda *arguments: []; "
            "host = HostPlan(Remote('here'), '127.0.0.1', int(ranks)); "
            "plan = LaunchPlan((host,), 'cpu', '127.0.0.1', 12355, directory=directory, grace_s=1.0); "
            "choose = lambda device: supervisor.ChosenRun(directory, ()); "
            "job = supervisor.Supervision(plan, (), choose, directory); "
            "sys.exit(supervisor.Supervisor(job, say).run())"
        )
        agent = [*AGENT, str(directory), *modes]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(len(modes)), str(directory), *agent],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Tests that run under nohup ignore it, and so would the launcher, as it should.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    def notes(self, rank: int) -> list[str]:
        """What a rank wrote."""
        path = self.directory / f"rank-{rank}"
        return path.read_text().splitlines() if path.exists() else []

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """At most 30 s."""
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, self.directory
            time.sleep(0.02)

    def wait_for_ranks(self) -> None:
        """Until every rank runs and the launcher has had time to see it."""
        self.wait_until(lambda: all(self.notes(rank) for rank in range(self.num_ranks)))
        time.sleep(0.5)

    def pids(self) -> list[int]:
        """Ranks and their children, the agent."""
        found = [int(pid) for rank in range(self.num_ranks) for pid in self.notes(rank)[0].split()]
        return found + [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def launcher(self) -> psutil.Process:
        """The fake agent, which stands where torchrun does."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in below if "fake_agent.py" in " ".join(child.cmdline()))

    def end(self) -> tuple[int, str]:
        """Exit status and what was said."""
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said


@pytest.fixture
def launch(tmp_path: Path):
    """Starts launches and ends what is left of them."""
    started: list[Launch] = []

    def start(*modes: str) -> Launch:
        started.append(Launch(tmp_path, *modes))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def assert_all_gone(pids: list[int]) -> None:
    """None of these processes runs."""
    left = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
    assert left == []


def test_a_job_that_ends_well_ends_with_status_0_and_no_word(launch):
    assert launch("exit:0", "exit:0").end() == (0, "")


def test_the_exit_status_is_that_of_the_job_and_the_log_is_named(launch):
    job = launch("exit:0", "exit:7")
    log = job.directory / "logs" / "here-node.log"
    said = f"alphazero: error: here launcher ended with exit status 7 (log: here:{log})\n"
    assert job.end() == (7, said)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        *(
            pytest.param(*end, marks=pytest.mark.slow)
            for end in ((signal.SIGHUP, 129), (signal.SIGUSR1, 138))
        ),
    ],
)
def test_one_signal_lets_every_rank_save_and_reaches_nothing_but_ranks(launch, number: int, status: int):
    job = launch("run", "run")
    job.wait_for_ranks()
    pids = job.pids()
    job.process.send_signal(number)
    assert job.end() == (status, f"alphazero: {STOPPING}\n")
    for rank in (0, 1):
        assert job.notes(rank)[1:] == ["SIGTERM", "saved, child alive"]
    assert_all_gone(pids)


def test_a_job_that_was_suspended_goes_on(launch):
    """As by `scontrol suspend` or `docker pause`: nobody heard of anybody for longer than the limit."""
    job = launch("run", "run")
    job.wait_for_ranks()
    processes = [job.process, *map(psutil.Process, job.pids())]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(Limits().silence_s + 2)
    for process in reversed(processes):
        process.send_signal(signal.SIGCONT)
    time.sleep(1)
    job.process.send_signal(signal.SIGTERM)
    status, said = job.end()
    assert status == 143 and "lost" not in said
    assert [job.notes(rank)[1:] for rank in (0, 1)] == [["SIGTERM", "saved, child alive"]] * 2


def signal_everything_below(job: Launch, number: int) -> list[int]:
    """What SLURM does to a step; the pids. Children of ranks have not learned what to do and are left out."""
    below = psutil.Process(job.process.pid).children(recursive=True)
    processes = [process for process in below if process.cmdline()[0] != "sleep"]
    assert len(processes) == 1 + job.num_ranks  # launcher
    for process in processes:
        process.send_signal(number)
    return [process.pid for process in processes]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGUSR1, 138), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_to_every_process_is_a_request_to_stop_and_no_failure(launch, number, status):
    job = launch("run", "run")
    job.wait_for_ranks()
    job.process.send_signal(number)
    pids = signal_everything_below(job, number)
    assert job.end() == (status, f"alphazero: {STOPPING}\n")
    for rank in (0, 1):
        assert job.notes(rank)[1] == signal.Signals(number).name
        assert job.notes(rank)[-1] == "saved, child alive"
    assert_all_gone(pids)


def test_a_killed_launch_takes_its_ranks_with_it(launch):
    job = launch("run", "run")
    job.wait_for_ranks()
    pids = [int(pid) for rank in (0, 1) for pid in job.notes(rank)[0].split()[:1]]
    launcher = job.launcher().pid
    job.process.kill()
    job.process.wait()
    job.wait_until(lambda: not any(psutil.pid_exists(pid) for pid in [*pids, launcher]))


def test_the_death_of_the_launcher_of_ranks_that_had_ended_well_is_no_bad_end(launch):
    """scancel: SIGTERM to everything at once, which kills torchrun but not before its ranks have ended."""
    job = launch("run", "run")
    job.wait_for_ranks()
    job.process.send_signal(signal.SIGTERM)
    pids = signal_everything_below(job, signal.SIGTERM)
    assert job.end() == (143, f"alphazero: {STOPPING}\n")
    assert_all_gone(pids)


def test_the_second_signal_ends_everything_within_seconds(launch):
    job = launch("stubborn", "stubborn")
    job.wait_for_ranks()
    pids = job.pids()
    job.process.send_signal(signal.SIGINT)
    job.wait_until(lambda: all("SIGTERM" in job.notes(rank) for rank in (0, 1)))
    begin = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    status, said = job.end()
    assert 1 < time.monotonic() - begin < 15
    assert status == 130
    assert said.splitlines()[0].endswith(STOPPING) and "ending at once" in said.splitlines()[1]
    assert_all_gone(pids)


def test_a_signal_before_the_ranks_can_hear_it_ends_the_job_too(launch):
    job = launch("early", "early")
    job.wait_for_ranks()
    pids = job.pids()
    job.process.send_signal(signal.SIGTERM)
    status, said = job.end()
    assert status == 143
    # A rank may be seen while it dies with its launcher.
    assert [line.rpartition(" ")[2] for line in said.splitlines()[-2:]] == ["begun", "saved"]
    assert_all_gone(
        [pid for pid in pids if pid not in {int(job.notes(rank)[0].split()[1]) for rank in (0, 1)}]
    )


def test_ranks_do_not_outlive_the_agent_that_started_them(launch):
    job = launch("run", "stubborn")
    job.wait_for_ranks()
    pids = job.pids()
    job.launcher().kill()
    status, said = job.end()
    assert status == 128 + signal.SIGKILL
    assert "outlived the launcher" in said
    assert_all_gone(pids)


def test_a_process_that_was_not_started_here_is_left_alone(launch):
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "LOCAL_RANK": "0"}, start_new_session=True)
    try:
        job = launch("stubborn")
        job.wait_for_ranks()
        job.process.send_signal(signal.SIGINT)
        job.wait_until(lambda: "SIGTERM" in job.notes(0))
        job.process.send_signal(signal.SIGINT)
        job.end()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_program_that_is_not_there_is_one_line(launch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "AGENT", ["/no/such/python"])
    status, said = launch("run").end()
    assert status == 2
    assert said.startswith(
        "alphazero: error: here could not start the launcher: /no/such/python: No such file or directory"
    )
    assert said.count("\n") == 1
