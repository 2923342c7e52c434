"""Starts a job on its hosts, and again after a failure: probes first, fresh port, the hosts that are left."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alphazero.cluster.agent_protocol import NodeJob
from alphazero.cluster.attempt import Attempt, Outcome, Say
from alphazero.cluster.commands import RANK_VARIABLES, build_command
from alphazero.cluster.fan_out import AgentLink
from alphazero.cluster.hang_watch import Limits
from alphazero.cluster.preflight import Examined, JobHost, Report, examine, job_device, table
from alphazero.cluster.probe import Question
from alphazero.cluster.resolve import LaunchPlan
from alphazero.cluster.signals import SignalInbox

FIRST_DELAY_S = 2.0
LONGEST_DELAY_S = 60.0
MISTAKE = 2  # the exit status of an AlphaZeroError: starting again does not mend it
# What the head's environment tells ranks on other hosts; all else there is that host's own.
PASSED_ON = ("NCCL_", "GLOO_", "TORCH_", "OMP_", "MKL_", "DS_", "WANDB_", "PYTORCH_", "CUBLAS_", "ALPHAZERO_")


@dataclass(frozen=True)
class Supervision:
    """What to start, where, and how often.

    hosts: in order of node rank. master_addr: "" for the first host's name. directory: where the job runs
    on every host; run_directory: absolute. arguments: of the trainer. stores: that every host must have.
    min_nodes: go on with so many hosts, 0 for all. check: whether preflight errors
    keep hosts out.
    """

    hosts: tuple[JobHost, ...]
    trainer: tuple[str, ...]
    arguments: tuple[str, ...]
    directory: str
    run_directory: str
    master_addr: str
    master_port: int
    port_is_chosen: bool = False
    device: str = "auto"
    launcher: str = "torchrun"
    stores: tuple[str, ...] = ()
    max_restarts: int = 0
    min_nodes: int = 0
    check: bool = True
    limits: Limits = field(default_factory=Limits)
    grace_s: float = 5.0
    first_delay_s: float = FIRST_DELAY_S


@dataclass(frozen=True)
class _Ready:
    """The hosts that a start will use, and what they said."""

    hosts: tuple[Examined, ...]
    device: str
    master_addr: str
    port: int


class Supervisor:
    """Runs a job to its end, over as many starts as are allowed."""

    def __init__(self, job: Supervision, python: str, environment: Mapping[str, str], say: Say) -> None:
        self._job = job
        self._python = python
        self._environment = environment
        self._say = say
        self._inbox = SignalInbox()
        self._arguments = job.arguments
        self._idle_starts = 0  # in a row that finished no step

    def run(self) -> int:
        """The exit status: 0, that of the first failure, or 128 + N after the user's signal N."""
        with self._inbox.open():
            num_restarts = 0
            while True:
                ready = self._prepare(is_restart=num_restarts > 0)
                if ready is None:
                    status = MISTAKE
                else:
                    outcome = self._start(ready)
                    if self._inbox.received or outcome.failure is None:
                        return self._last_word(outcome)
                    self._say(f"error: {outcome.failure.line}")
                    status = outcome.failure.status
                    if not self._may_restart(outcome):
                        return status
                if num_restarts == self._job.max_restarts or (ready is None and num_restarts == 0):
                    return status
                num_restarts += 1
                if not self._wait(num_restarts):
                    return 128 + int(self._inbox.received[0])

    def _last_word(self, outcome: Outcome) -> int:
        if not self._inbox.received:
            return 0
        if outcome.failure is not None:
            self._say(f"the job did not end well: {outcome.failure.line}")
            self._say("the newest complete checkpoint remains")
        return 128 + int(self._inbox.received[0])

    def _may_restart(self, outcome: Outcome) -> bool:
        self._idle_starts = 0 if outcome.advanced or outcome.saved else self._idle_starts + 1
        if outcome.saved:
            # The run has gone beyond what --resume named: from now on its own newest checkpoint counts.
            self._arguments = tuple(without_resume(self._arguments))
        if self._job.max_restarts == 0:
            return False
        if outcome.status == MISTAKE and not outcome.advanced:
            return False
        if self._idle_starts >= 2:
            self._say("not starting again: no step advanced between two restarts")
            return False
        return True

    def _wait(self, num_restarts: int) -> bool:
        """The pause before a restart; False if the user wants the end meanwhile."""
        delay_s = min(LONGEST_DELAY_S, self._job.first_delay_s * 2 ** max(self._idle_starts, 0))
        self._say(f"restart {num_restarts} of {self._job.max_restarts} in {delay_s:.0f} s")
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline:
            if self._inbox.received:
                return False
            time.sleep(0.05)
        return True

    def _prepare(self, is_restart: bool) -> _Ready | None:
        """Probe the hosts; those to start on, or None where too few are fit."""
        job = self._job
        hosts = job.hosts
        while True:
            master = job.master_addr if hosts[0] is job.hosts[0] and job.master_addr else hosts[0].address
            question = Question(
                directory=job.directory,
                run_directory=job.run_directory,
                master_addr=master if len(hosts) > 1 else "",
                master_port=job.master_port,
                port_is_chosen=job.port_is_chosen and not is_restart,
                is_master=False,
                device=job.device,
                stores=job.stores,
            )
            report = examine(hosts, question, self._python)
            fit = self._judge(report, is_restart)
            if fit is None:
                return None
            if len(fit) == len(hosts):
                break
            hosts = tuple(one.host for one in fit)  # asked again: the master may be another now
        first = fit[0].probe
        assert first is not None
        fresh = is_restart or not first.port_is_free
        return _Ready(
            fit,
            job_device(fit, job.device),
            master if len(hosts) > 1 else "127.0.0.1",
            first.free_port if fresh else job.master_port,
        )

    def _judge(self, report: Report, is_restart: bool) -> tuple[Examined, ...] | None:
        """The hosts to use, None where they are too few; says what was found."""
        job = self._job
        if len(report.examined) > 1 and not is_restart:
            for line in table(report):
                self._say(line)
        for finding in report.findings:
            self._say(f"{'error' if finding.is_error else 'warning'}: {finding.line}")
        fit = report.passed()
        if not job.check:
            fit = tuple(one for one in report.examined if one.probe is not None)
        needed = job.min_nodes or len(job.hosts)
        if len(fit) < needed:
            self._say(
                f"error: {len(fit)} of {len(job.hosts)} hosts can start; wanted {needed}: nothing started"
            )
            return None
        if len(fit) < len(report.examined):
            left_out = [one.host.remote.name for one in report.examined if one not in fit]
            self._say(f"going on with {len(fit)} of {len(job.hosts)} hosts, without {', '.join(left_out)}")
        return fit

    def _start(self, ready: _Ready) -> Outcome:
        links = [AgentLink(job_of.remote, node, self._python) for job_of, node in self._node_jobs(ready)]
        return Attempt(links, self._inbox, self._job.limits, self._say).run()

    def _node_jobs(self, ready: _Ready) -> list[tuple[JobHost, NodeJob]]:
        job, jobs, first_rank = self._job, [], 0
        token = uuid.uuid4().hex
        columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
        for node_rank, one in enumerate(ready.hosts):
            assert one.probe is not None
            plan = LaunchPlan(
                num_nodes=len(ready.hosts),
                node_rank=node_rank,
                num_processes=one.host.slots,
                device=ready.device,
                visible=one.probe.visible[: one.host.slots],
                master_addr=ready.master_addr,
                master_port=ready.port,
                launcher=job.launcher,
            )
            command = build_command(
                plan,
                one.probe.machine,
                one.probe.interface,
                self._environment,
                self._python,
                job.trainer,
                self._arguments,
            )
            passed_on = passed_on_variables(self._environment) if one.host.remote.target else {}
            variables = passed_on | {variable.name: variable.value for variable in command.variables}
            node = NodeJob(
                token=token,
                host=one.host.remote.name,
                argv=command.argv,
                variables=variables,
                removed=RANK_VARIABLES,
                directory=job.directory,
                run_directory=job.run_directory,
                first_rank=first_rank,
                num_ranks=one.host.slots,
                silence_s=job.limits.silence_s,
                grace_s=job.grace_s,
                columns=columns,
            )
            jobs.append((one.host, node))
            first_rank += one.host.slots
        return jobs


def passed_on_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What ranks on other hosts are told of the head's environment."""
    return {name: value for name, value in environment.items() if name.startswith(PASSED_ON)}


def without_resume(arguments: Sequence[str]) -> list[str]:
    """The trainer's arguments less --resume and its value: a run goes on from its newest checkpoint."""
    kept: list[str] = []
    after_resume = False
    for argument in arguments:
        is_value = after_resume and not argument.startswith("-")
        after_resume = argument == "--resume"
        if not (is_value or after_resume or argument.startswith("--resume=")):
            kept.append(argument)
    return kept
