"""Starts a job on its hosts, and again after a failure: hosts are compared first, a fresh port is taken."""

from __future__ import annotations

import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.cluster.agent.processes import SignalInbox
from alphazero.cluster.agent.protocol import NodeJob
from alphazero.cluster.launch import preflight_verdict
from alphazero.cluster.launch.attempt import Attempt, Outcome, Say
from alphazero.cluster.launch.compare import Examined, JobHost, Report, examine, job_device, lacks_data, table
from alphazero.cluster.launch.dry_run import banner
from alphazero.cluster.launch.probe import Question
from alphazero.cluster.launch.remote import AgentLink
from alphazero.cluster.launch.sync_data import data_digest, send
from alphazero.cluster.plan.commands import RANK_VARIABLES, build_command
from alphazero.cluster.plan.launch_plan import LaunchPlan, Limits
from alphazero.machine.machine import interface_towards
from alphazero.run.directory import RESTART_VARIABLE
from alphazero.run.next_command import without_resume
from alphazero.run.rank import ONE_HEAD_VARIABLE

FIRST_DELAY_S = 2.0
LONGEST_DELAY_S = 60.0
MOST_PORT_CHANGES = 5  # somebody takes ports as fast as they are chosen: rather say so
MISTAKE = 2  # the exit status of an AlphaZeroError: starting again does not mend it
# What the head's environment tells ranks on other hosts; all else there is that host's own.
PASSED_ON = ("NCCL_", "GLOO_", "TORCH_", "OMP_", "MKL_", "DS_", "WANDB_", "PYTORCH_", "CUBLAS_", "ALPHAZERO_")


@dataclass(frozen=True)
class ChosenRun:
    """Where a run lives, and what the trainer is told; starting again with that continues the run."""

    directory: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Supervision:
    """What to start, where, and how often.

    hosts: in order of node rank. master_addr: "" for the first host's name. directory: where the job runs
    on every host. choose_run: from the device (cuda or cpu) to the run's absolute directory and the
    arguments of the trainer. plan: of this machine's part where it is decided already (one machine, or one
    of several that are started by hand), else None. data: paths that every host must have as the head does;
    sync_data: send it where it is missing. quiet: say nothing of how ranks are started.
    interface: of gloo and NCCL, "" for the one on each host's route to the master.
    min_nodes: go on with so many hosts, 0 for all. unfit_hosts_stay: start in spite of what the host
    comparison found. preflight: let all ranks meet for a moment before a start that uses hosts which the
    start before it did not; compared: configuration files that must be the same everywhere.
    """

    hosts: tuple[JobHost, ...]
    trainer: tuple[str, ...]
    choose_run: Callable[[str], ChosenRun]
    directory: str
    runs_directory: str
    master_addr: str
    master_port: int
    port_is_chosen: bool = False
    plan: LaunchPlan | None = None
    device: str = "auto"
    launcher: str = "torchrun"
    interface: str = ""
    data: tuple[str, ...] = ()
    sync_data: bool = False
    quiet: bool = False
    max_restarts: int = 0
    min_nodes: int = 0
    unfit_hosts_stay: bool = False
    preflight: bool = False
    compared: tuple[str, ...] = ()
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
        self._asked: list[signal.Signals] = []  # what agents got, of a batch system
        self._run: ChosenRun | None = None
        self._idle_starts = 0  # in a row that finished no step
        self._checked: frozenset[str] = frozenset()  # the hosts that have passed the preflight
        self._has_started = False
        self.has_saved = False  # some start of this job saved a checkpoint
        self._num_port_changes = 0
        self._vain = 0  # starts and attempts to start in a row that finished no step

    def run(self) -> int:
        """The exit status: 0, that of the first failure, or 128 + N after the signal N that asked to stop."""
        with self._inbox.open():
            num_restarts = 0
            while True:
                ready = self._prepare_checked(is_restart=num_restarts > 0)
                if self._signals:
                    return 128 + int(self._signals[0])
                if isinstance(ready, int):
                    status = ready
                    self._vain += 1
                else:
                    outcome = self._start(ready)
                    if self._signals or outcome.failure is None:
                        return self._last_word(outcome)
                    if self._takes_another_port(outcome, is_restart=num_restarts > 0):
                        continue  # nothing had begun: this is no restart
                    self._say(f"error: {outcome.failure.line}")
                    status = outcome.failure.status
                    if not self._may_restart(outcome):
                        return status
                if num_restarts == self._job.max_restarts or (isinstance(ready, int) and num_restarts == 0):
                    return status
                num_restarts += 1
                if not self._wait(num_restarts):
                    return 128 + int(self._signals[0])

    @property
    def _signals(self) -> list[signal.Signals]:
        """The wishes to stop, those of this process first."""
        return self._inbox.received + self._asked

    def _last_word(self, outcome: Outcome) -> int:
        if not self._signals:
            return 0
        if not self._inbox.received:
            self._say(f"the job was ended by {self._asked[0].name} to its processes")
        if outcome.failure is not None:
            self._say(f"the job did not end well: {outcome.failure.line}")
            self._say("the newest complete checkpoint remains")
        return 128 + int(self._signals[0])

    def _takes_another_port(self, outcome: Outcome, is_restart: bool) -> bool:
        """True where the port was taken between our look at it and the start, and another one will do."""
        failure, job = outcome.failure, self._job
        if failure is None or failure.kind != PortInUseError.kind:
            return False
        by_hand = job.plan is not None and job.plan.num_nodes > 1
        is_chosen = job.port_is_chosen and not is_restart
        if by_hand or is_chosen or self._num_port_changes == MOST_PORT_CHANGES:
            return False
        self._num_port_changes += 1
        self._say(f"{failure.host}: {failure.cause or failure.fate}: starting with another one")
        return True

    def _may_restart(self, outcome: Outcome) -> bool:
        self._idle_starts = 0 if outcome.advanced or outcome.saved else self._idle_starts + 1
        self._vain = 0 if self._idle_starts == 0 else self._vain + 1
        if outcome.saved:
            # The run has gone beyond what --resume named: from now on its own newest checkpoint counts.
            assert self._run is not None
            self._run = replace(self._run, arguments=tuple(without_resume(self._run.arguments)))
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
        delay_s = min(LONGEST_DELAY_S, self._job.first_delay_s * 2**self._vain)
        self._say(f"restart {num_restarts} of {self._job.max_restarts} in {delay_s:.0f} s")
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline:
            if self._signals:
                return False
            time.sleep(0.05)
        return True

    def _prepare_checked(self, is_restart: bool) -> _Ready | int:
        """Hosts that passed both the host comparison and the preflight, or the exit status."""
        without: frozenset[str] = frozenset()
        while True:
            ready = self._prepare(is_restart or bool(without), without)
            if ready is None:
                return MISTAKE
            if self._signals or not self._needs_preflight(ready):
                break
            verdict = self._run_preflight(ready, is_restart)
            if self._signals:
                break
            if verdict is None:
                continue
            for line in verdict.lines:
                self._say(line)
            if verdict.status == 0:
                break
            left = len(ready.hosts) - len(verdict.culprits)
            if not verdict.culprits or not 0 < self._job.min_nodes <= left:
                return verdict.status
            without |= verdict.culprits
            self._say_who_is_left_out(left, sorted(verdict.culprits))
        self._checked = frozenset(one.host.remote.name for one in ready.hosts)
        return ready

    def _needs_preflight(self, ready: _Ready) -> bool:
        """Several hosts, or GPUs of one, unless the last start had them all: it takes seconds."""
        by_hand = self._job.plan is not None and self._job.plan.num_nodes > 1
        if not self._job.preflight or by_hand:
            return False
        is_small = ready.device == "cpu" or sum(one.host.num_ranks for one in ready.hosts) == 1
        if len(ready.hosts) == 1 and is_small:
            return False
        return not {one.host.remote.name for one in ready.hosts} <= self._checked

    def _run_preflight(self, ready: _Ready, is_restart: bool) -> preflight_verdict.Verdict | None:
        """All ranks together for a moment, started as the job will be; None where its port was taken."""
        job = self._job
        run = self._run = self._run or job.choose_run(ready.device)
        names = [one.host.remote.name for one in ready.hosts]
        slots = [one.host.num_ranks for one in ready.hosts]
        told = preflight_verdict.arguments(ready.device, names, slots, job.compared)
        directory = str(Path(run.directory, preflight_verdict.LOG_DIRECTORY))
        nodes = self._node_jobs(ready, ChosenRun(directory, told), is_preflight=True)
        links = [AgentLink(host.remote, node, self._python) for host, node in nodes]
        listener = preflight_verdict.Listener()
        limits = replace(preflight_verdict.LIMITS, silence_s=job.limits.silence_s)
        outcome = Attempt(links, self._inbox, limits, self._say, listener.take).run()
        self._asked += outcome.asked
        if self._takes_another_port(outcome, is_restart):
            return None
        return preflight_verdict.judge(listener.report(), outcome, names, slots)

    def _prepare(self, is_restart: bool, without: frozenset[str] = frozenset()) -> _Ready | None:
        """Compare the hosts but those of `without`; those to start on, or None where too few are fit."""
        job = self._job
        hosts = tuple(host for host in job.hosts if host.remote.name not in without)
        while True:
            master = job.master_addr if hosts[0] is job.hosts[0] and job.master_addr else hosts[0].address
            question = Question(
                directory=job.directory,
                run_directory=self._run.directory if self._run else job.runs_directory,
                master_addr=master if len(hosts) > 1 else "",
                master_port=job.master_port,
                port_is_chosen=job.port_is_chosen and not is_restart,
                # On the machine of another node the port is not needed, or is node 0's own by now.
                is_master=job.plan is None or job.plan.node_rank == 0,
                device=job.device,
                interface=job.interface,
                data={path: data_digest(Path(path)) for path in job.data} if len(job.hosts) > 1 else {},
            )
            report = examine(hosts, question, self._python)
            if job.sync_data and self._send_data(report, question):
                report = examine(hosts, question, self._python)
            fit = self._judge(report, is_restart)
            if fit is None:
                return None
            if len(fit) == len(hosts):
                break
            hosts = tuple(one.host for one in fit)  # asked again: the master may be another now
        first = fit[0].probe
        assert first is not None
        # Started by hand on several machines, all were told the port.
        by_hand = job.plan is not None and job.plan.num_nodes > 1
        fresh = not by_hand and (is_restart or self._num_port_changes > 0 or not first.port_is_free)
        return _Ready(
            fit,
            job_device(fit, job.device),
            master if len(hosts) > 1 else "127.0.0.1",
            first.free_port if fresh else job.master_port,
        )

    def _send_data(self, report: Report, question: Question) -> bool:
        """Send data to hosts that lack it; True if any did."""
        lacking = [one.host.remote for one in report.examined if lacks_data(one, question)]
        for remote in lacking:
            try:
                size = send([Path(path) for path in question.data], remote, self._python)
            except LaunchError as error:
                self._say(f"error: {error}")
            else:
                self._say(f"{remote.name}: sent {size / (1 << 20):.1f} MiB of data")
        return bool(lacking)

    def _judge(self, report: Report, is_restart: bool) -> tuple[Examined, ...] | None:
        """The hosts to use, None where they are too few; says what was found."""
        job = self._job
        if len(report.examined) > 1 and not is_restart:
            for line in table(report):
                self._say(line)
        for finding in report.findings:
            self._say(f"{'error' if finding.is_error else 'warning'}: {finding.line}")
        fit = report.passed()
        if job.unfit_hosts_stay:
            fit = tuple(one for one in report.examined if one.probe is not None)
        needed = job.min_nodes or len(job.hosts)
        if len(fit) < needed:
            self._say(
                f"error: {len(fit)} of {len(job.hosts)} hosts can start; expected {needed}: nothing started"
            )
            return None
        if len(fit) < len(report.examined):
            left_out = [one.host.remote.name for one in report.examined if one not in fit]
            self._say_who_is_left_out(len(fit), left_out)
        return fit

    def _say_who_is_left_out(self, num_left: int, names: Sequence[str]) -> None:
        self._say(f"going on with {num_left} of {len(self._job.hosts)} hosts, without {', '.join(names)}")

    def _start(self, ready: _Ready) -> Outcome:
        # Chosen once: a fresh start begins anew only the first time.
        run = self._run = self._run or self._job.choose_run(ready.device)
        nodes = self._node_jobs(ready, run)
        links = [AgentLink(host.remote, node, self._python) for host, node in nodes]
        self._has_started = True
        outcome = Attempt(
            links, self._inbox, self._job.limits, self._say, tells_of_start=not self._job.quiet
        ).run()
        self._asked += outcome.asked
        self.has_saved = self.has_saved or outcome.saved
        return outcome

    @property
    def run_directory(self) -> Path | None:
        """Where the run lives, once it is known."""
        return Path(self._run.directory) if self._run else None

    def _variables(self) -> dict[str, str]:
        """What the ranks are told of this start."""
        told = {RESTART_VARIABLE: "1"} if self._has_started else {}
        if self._job.plan is None:
            told[ONE_HEAD_VARIABLE] = "1"
        return told

    def _node_jobs(
        self, ready: _Ready, run: ChosenRun, is_preflight: bool = False
    ) -> list[tuple[JobHost, NodeJob]]:
        """What each host's agent is told: the trainer's part, or the preflight's."""
        job = self._job
        token = uuid.uuid4().hex
        columns = shutil.get_terminal_size().columns if sys.stderr.isatty() and not is_preflight else 0
        slots = [one.host.num_ranks for one in ready.hosts]
        if job.plan:
            slots = list(job.plan.processes_by_node)
        jobs = []
        for node_rank, one in enumerate(ready.hosts):
            plan = job.plan or self._plan(ready, node_rank)
            launcher = "torchrun" if is_preflight else plan.launcher
            plan = replace(plan, master_port=ready.port, launcher=launcher)
            assert one.probe is not None
            interface = one.probe.interface
            if job.plan and job.plan.num_nodes > 1:
                interface = interface_towards(job.plan.master_addr, one.probe.machine.addresses)
            passed_on = passed_on_variables(self._environment) if one.host.remote.target else {}
            command = build_command(
                plan,
                one.probe.machine,
                interface,
                passed_on if one.host.remote.target else self._environment,
                self._python,
                preflight_verdict.PROGRAM if is_preflight else job.trainer,
                run.arguments,
                slots,
            )
            if job.plan and not is_preflight and not job.quiet:
                for line in banner(plan, one.probe.machine, command):
                    self._say(line)
            node = NodeJob(
                token=token,
                host=one.host.remote.name,
                argv=command.argv,
                variables=passed_on
                | {variable.name: variable.value for variable in command.variables}
                | self._variables(),
                removed=RANK_VARIABLES,
                directory=job.directory,
                run_directory=run.directory,
                first_rank=sum(slots[: plan.node_rank]),
                num_ranks=one.host.num_ranks,
                silence_s=job.limits.silence_s,
                grace_s=job.grace_s,
                columns=columns,
            )
            jobs.append((one.host, node))
        if not (job.plan or is_preflight):
            on = "1 host" if len(jobs) == 1 else f"{len(jobs)} hosts"
            self._say(f"{sum(slots)} processes on {on}, master {ready.master_addr}:{ready.port}")
        return jobs

    def _plan(self, ready: _Ready, node_rank: int) -> LaunchPlan:
        one = ready.hosts[node_rank]
        assert one.probe is not None
        return LaunchPlan(
            num_nodes=len(ready.hosts),
            node_rank=node_rank,
            num_processes=one.host.num_ranks,
            device=ready.device,
            visible=one.host.devices(one.probe.visible) if ready.device == "cuda" else (),
            master_addr=ready.master_addr,
            master_port=ready.port,
            launcher=self._job.launcher,
            weight=one.host.weight,
            interface=self._job.interface,
            port_is_chosen=self._job.port_is_chosen,
            start_s=self._job.limits.start_s,
        )


def passed_on_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What ranks on other hosts are told of the head's environment."""
    return {name: value for name, value in environment.items() if name.startswith(PASSED_ON)}
