"""Starts a job on its hosts, and again after a failure: hosts are compared first, a fresh port is taken."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.base.log import Say, stamped
from alphazero.base.place_name import is_url
from alphazero.base.text import counted, escaped, signal_name
from alphazero.launch.agent.processes import SignalInbox
from alphazero.launch.agent.protocol import Output
from alphazero.launch.head.attempt import Attempt, StartOutcome
from alphazero.launch.head.compare import Examined, examine, job_device
from alphazero.launch.head.lines import banner
from alphazero.launch.head.probe import Question
from alphazero.launch.head.sync_data import data_digest, send
from alphazero.launch.plan import programs
from alphazero.launch.plan.commands import RANK_VARIABLES, actor_commands, build_command
from alphazero.launch.plan.launch_plan import Command, LaunchPlan, Variable
from alphazero.launch.plan.node import with_devices
from alphazero.machine.machine import interface_towards
from alphazero.run.directory import RESTART_VARIABLE
from alphazero.run.next_command import RESUME, without
from alphazero.run.rank import ONE_HEAD_VARIABLE, Failure
from alphazero.run.rank_watch import Limits

FIRST_DELAY_S = 2.0
LONGEST_DELAY_S = 60.0
MOST_PORT_CHANGES = 5  # ports are taken as fast as they are chosen: better to report it
OUR_LINE = "alphazero: "  # how a line of ours begins in the output of a host
# Stages of the preflight have separate limits, which name who is behind; this one is for all of it.
PREFLIGHT_S = 240.0
MISTAKE = 2  # the exit status of an AlphaZeroError: starting again does not mend it
# What ranks on other hosts get of the head's environment; all else there is that host's own.
PASSED_ON = (
    *("NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "CUBLAS_", "DS_", "WANDB_", "ALPHAZERO_"),
    "ACCELERATE_",
)


@dataclass(frozen=True)
class ChosenRun:
    """Where a run lives, and the trainer's arguments; starting again with these continues the run."""

    directory: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Supervision:
    """How a plan is started, and what must hold before.

    choose_run: from the device (cuda or cpu) to the run's absolute directory and the arguments of the
    trainer. runs_directory: where the run will be, until it is known. data: paths that every host must have
    as the head does; sync_data: send it where it is missing. place: where actors of the plan meet the ranks,
    "" for the run's own; actor_flags: what their command has beside it. quiet: print nothing of how ranks are
    started. is_strict: start only on hosts in which the comparison finds no fault, and let all ranks meet for
    a moment before a start that uses hosts which the start before it did not.
    """

    plan: LaunchPlan
    trainer: tuple[str, ...]
    choose_run: Callable[[str], ChosenRun]
    runs_directory: str
    data: tuple[str, ...] = ()
    sync_data: bool = False
    place: str = ""
    actor_flags: tuple[str, ...] = ()
    quiet: bool = False
    is_strict: bool = True
    first_delay_s: float = FIRST_DELAY_S


class Supervisor:
    """Runs a job to its end, over as many starts as are allowed."""

    def __init__(self, job: Supervision, say: Say) -> None:
        self._job = job
        self._show = say
        self._inbox = SignalInbox()
        self._asked: list[int] = []  # what agents got, of a batch system
        self._run: ChosenRun | None = None
        self._idle_starts = 0  # in a row that finished no step
        self._checked: frozenset[str] = frozenset()  # the hosts that have passed the preflight
        self._has_started = False
        self.has_saved = False  # some start of this job saved a checkpoint
        self._num_port_changes = 0

    def run(self) -> int:
        """The exit status: 0, that of the first failure, or 128 + N after the signal N that asked to stop."""
        with self._inbox.open():
            num_restarts = 0
            while True:
                ready = self._prepare_checked(is_restart=num_restarts > 0)
                if self._signals:
                    return 128 + self._signals[0]
                if isinstance(ready, int):
                    status = ready
                else:
                    outcome = self._start(ready)
                    if self._signals or outcome.failure is None:
                        return self._last_word(outcome)
                    if self._takes_another_port(outcome, is_restart=num_restarts > 0):
                        continue  # nothing had begun: this is no restart
                    self._say(f"error: {outcome.failure.line}")
                    status = outcome.failure.status
                    if not self._may_restart(outcome, status):
                        return status
                if num_restarts == self._job.plan.max_restarts or (
                    isinstance(ready, int) and num_restarts == 0
                ):
                    return status
                num_restarts += 1
                if not self._wait(num_restarts):
                    return 128 + self._signals[0]

    def _say(self, text: str) -> None:
        """Show a line, and keep it in the run once ranks have logs there: why they were started again."""
        self._show(text)
        logs = Path(self._run.directory, "logs") if self._run and not self._job.plan.node_rank else None
        if logs and logs.is_dir():
            with contextlib.suppress(OSError), (logs / "launcher.log").open("a") as file:
                file.write(f"{stamped(escaped(text))}\n")

    @property
    def _signals(self) -> list[int]:
        """The requests to stop, those to this process first."""
        return [*self._inbox.received, *self._asked]

    def _last_word(self, outcome: StartOutcome) -> int:
        if not self._signals:
            if not outcome.stopped:
                return 0
            self._say("the job was stopped by a signal to another node or to one of its ranks")
            return 128 + outcome.stopped
        if not self._inbox.received:
            self._say(f"the job was ended by {signal_name(self._asked[0])} to its processes")
        if outcome.failure is not None:
            bad_end = f"the job did not end well: {outcome.failure.line}"
            self._say(bad_end if outcome.begun else "stopped before the ranks had begun")
            is_left = outcome.newest_checkpoint >= 0
            self._say("the newest complete checkpoint remains" if is_left else "no checkpoint was saved")
        return 128 + self._signals[0]

    def _takes_another_port(self, outcome: StartOutcome, is_restart: bool) -> bool:
        """True where the port was taken between our look at it and the start, and another one will do."""
        failure, plan = outcome.failure, self._job.plan
        if failure is None or failure.kind != PortInUseError.kind:
            return False
        is_chosen = plan.port_is_chosen and not is_restart
        if plan.is_by_hand or is_chosen or self._num_port_changes == MOST_PORT_CHANGES:
            return False
        self._num_port_changes += 1
        self._say(f"{failure.host}: {failure.cause or failure.fate}: starting with another one")
        return True

    def _may_restart(self, outcome: StartOutcome, status: int) -> bool:
        self._idle_starts = 0 if outcome.advanced or outcome.saved else self._idle_starts + 1
        if outcome.saved:
            # The run has gone beyond what --resume named: from now on its own newest checkpoint counts.
            assert self._run is not None
            self._run = replace(self._run, arguments=tuple(without(self._run.arguments, RESUME)))
        if self._job.plan.max_restarts == 0:
            return False
        if status == MISTAKE and not outcome.advanced:
            return False
        if self._idle_starts >= 2:
            self._say("not starting again: no step advanced between two restarts")
            return False
        return True

    def _wait(self, num_restarts: int) -> bool:
        """The pause before a restart; False if a signal asks for the end meanwhile."""
        delay_s = min(LONGEST_DELAY_S, self._job.first_delay_s * 2 ** min(num_restarts, 5))
        self._say(f"restart {num_restarts} of {self._job.plan.max_restarts} in {delay_s:.0f} s")
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline:
            if self._signals:
                return False
            time.sleep(0.05)
        return True

    def _prepare_checked(self, is_restart: bool) -> LaunchPlan | int:
        """Hosts that passed both the host comparison and the preflight, or the exit status."""
        while True:
            ready = self._prepare(is_restart)
            if ready is None:
                return MISTAKE
            if self._signals or not self._needs_preflight(ready):
                break
            outcome = self._run_preflight(ready)
            if self._takes_another_port(outcome, is_restart):
                continue
            if outcome.failure is not None and not self._signals:
                self._say(f"error: preflight: {explain_preflight(outcome.failure, ready)}")
                return outcome.failure.status
            break
        self._checked = _names(ready)
        return ready

    def _needs_preflight(self, ready: LaunchPlan) -> bool:
        """Several hosts, or GPUs of one, unless the last start had them all: it takes seconds."""
        if not self._job.is_strict or ready.is_by_hand:
            return False
        if ready.num_nodes == 1 and (ready.device == "cpu" or sum(ready.ranks) == 1):
            return False
        return not _names(ready) <= self._checked

    def _run_preflight(self, ready: LaunchPlan) -> StartOutcome:
        """All ranks together for a moment, started as the job will be."""
        run = self._run = self._run or self._job.choose_run(ready.device)
        limits = Limits(start_s=PREFLIGHT_S, silence_s=ready.limits.silence_s)
        directory = str(Path(run.directory, "preflight"))  # its logs are not the job's
        hosts = [host for host in ready.started.values() if not host.only_plays]
        plan = replace(ready, launcher="torchrun", limits=limits, run_directory=directory).with_started(hosts)
        program = (*programs.words_of(programs.PREFLIGHT), "--device", plan.device)
        plan = self._with_commands(plan, program)
        has_begun = False

        def take(host: str, output: Output) -> None:
            nonlocal has_begun
            has_begun = has_begun or output.rank is not None
            who = "" if output.rank == 0 else f"preflight: {host}: "  # nodes that wait for each other say why
            for line in output.text.splitlines() if output.rank == 0 or not has_begun else ():
                if line.startswith(OUR_LINE):
                    self._say(f"{who}{line.removeprefix(OUR_LINE)}")

        return self._attempt(plan, take)

    def _prepare(self, is_restart: bool) -> LaunchPlan | None:
        """Compare the hosts; the plan of a start, or None where too few are fit."""
        job, plan = self._job, self._job.plan
        hosts = tuple(plan.started.values())
        while True:
            has_first = hosts[0].remote.name == plan.hosts[0].remote.name
            master = plan.master_addr if has_first or plan.is_by_hand else hosts[0].address
            run_directory = self._run.directory if self._run else job.runs_directory
            place = job.place.removeprefix("file://") or run_directory
            marks = len(hosts) > 1 and any(host.num_actors for host in hosts) and not is_url(place)
            question = Question(
                directory=plan.directory,
                run_directory=run_directory,
                master_addr=master if sum(not host.only_plays for host in hosts) > 1 else "",
                master_port=plan.master_port,
                port_is_chosen=plan.port_is_chosen and not is_restart,
                # On the machine of another node the port is not needed, or is node 0's own by now.
                is_master=plan.is_head or plan.node_rank == 0,
                device=plan.device,
                interface=plan.interface,
                data={path: data_digest(Path(path)) for path in job.data} if len(plan.started) > 1 else {},
                mark=str(Path(place, f".alphazero-{uuid.uuid4().hex}")) if marks else "",
            )
            examined = examine(hosts, question)
            if job.sync_data and self._send_data(examined, question):
                examined = examine(hosts, question)
            fit = self._judge(examined, is_restart)
            if fit is None:
                return None
            if len(fit) == len(hosts):
                break
            hosts = tuple(peer.host for peer in fit)  # asked again: the master may be another now
        return self._completed(fit, master, is_restart)

    def _completed(self, fit: Sequence[Examined], master: str, is_restart: bool) -> LaunchPlan:
        """The plan with what the hosts report of themselves."""
        plan, first = self._job.plan, fit[0].probe
        assert first is not None
        device = job_device(fit, plan.device)
        hosts = []
        for peer in fit:
            assert peer.probe is not None
            machine, interface = peer.probe.machine, peer.probe.interface
            if plan.is_by_hand:
                interface = interface_towards(plan.master_addr, machine.addresses)
            host = with_devices(peer.host, peer.probe.visible if device == "cuda" else ())
            hosts.append(replace(host, machine=machine, interface=interface))
        plan = plan.with_started(hosts)
        # Started by hand on several machines, all were given the port.
        is_fresh = is_restart or self._num_port_changes > 0 or not first.port_is_free
        return replace(
            plan,
            device=device,
            master_addr=master if plan.num_nodes > 1 else "127.0.0.1",
            master_port=first.free_port if is_fresh and not plan.is_by_hand else plan.master_port,
        )

    def _send_data(self, examined: Sequence[Examined], question: Question) -> bool:
        """Send data to hosts that lack it; True if any did."""
        trained = [peer for peer in examined if not peer.host.only_plays]
        lacking = [peer.host.remote for peer in trained if peer.probe and peer.probe.data != question.data]
        for remote in lacking:
            try:
                size = send([Path(path) for path in question.data], remote)
            except LaunchError as error:
                self._say(f"error: {error}")
            else:
                self._say(f"{remote.name}: sent {size / (1 << 20):.1f} MiB of data")
        return bool(lacking)

    def _judge(self, examined: Sequence[Examined], is_restart: bool) -> list[Examined] | None:
        """The hosts to use, None where they are too few; prints what was found."""
        job = self._job
        needs_all = not (is_restart or job.plan.min_nodes)  # also those that only play
        for peer in examined:
            for fault in peer.faults:
                self._say(f"{'error' if fault.is_failure else 'warning'}: {peer.name}: {fault.text}")
        fit = [peer for peer in examined if peer.is_fit or (not job.is_strict and peer.probe)]
        num_hosts = sum(needs_all or not host.only_plays for host in job.plan.started.values())
        num_fit = sum(needs_all or not peer.host.only_plays for peer in fit)
        needed = job.plan.min_nodes or num_hosts
        if num_fit < needed:
            self._say(f"error: {num_fit} of {num_hosts} hosts can start; expected {needed}: nothing started")
            return None
        if len(fit) < len(examined):
            left_out = ", ".join(peer.name for peer in examined if peer not in fit)
            self._say(f"continuing with {len(fit)} of {len(job.plan.started)} hosts, without {left_out}")
        return fit

    def _start(self, ready: LaunchPlan) -> StartOutcome:
        # Chosen once: retries of a fresh start resume its run.
        run = self._run = self._run or self._job.choose_run(ready.device)
        columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
        plan = replace(ready, columns=columns, run_directory=run.directory)
        plan = self._with_commands(plan, (*self._job.trainer, *run.arguments), is_job=True)
        if plan.is_head:
            on = counted(plan.num_nodes, "host")
            actors = sum(host.num_actors for host in plan.hosts)
            on += f", {counted(actors, 'actor')}" if actors else ""
            master = f"master {plan.master_addr}:{plan.master_port}"
            self._say(f"{counted(sum(plan.ranks), 'process', 'processes')} on {on}, {master}")
        self._has_started = True
        outcome = self._attempt(plan)
        self.has_saved = self.has_saved or outcome.saved
        return outcome

    def _attempt(self, plan: LaunchPlan, take: Callable[[str, Output], None] | None = None) -> StartOutcome:
        """Start the agents and see their part to its end."""
        shows_start = take is None and not self._job.quiet
        outcome = Attempt(plan, self._inbox, self._say, take, shows_start).run()
        self._asked += outcome.asked
        return outcome

    @property
    def run_directory(self) -> Path | None:
        """Where the run lives, once it is known."""
        return Path(self._run.directory) if self._run else None

    def _with_commands(self, plan: LaunchPlan, program: Sequence[str], is_job: bool = False) -> LaunchPlan:
        """The plan of a start with what each host's agent starts: the trainer, or the preflight."""
        of_start = [Variable(ONE_HEAD_VARIABLE, "1", "one head shows all output")] if plan.is_head else []
        if self._has_started:
            of_start.append(Variable(RESTART_VARIABLE, "1", "a restart"))
        hosts = []
        for rank, host in plan.started.items():
            environment: Mapping[str, str] = os.environ
            passed_on: list[Variable] = []
            if host.remote.target:
                given = os.environ.items()
                environment = {name: value for name, value in given if name.startswith(PASSED_ON)}
                passed_on = [Variable(name, value, "from the head") for name, value in environment.items()]
            if not host.only_plays:
                command = build_command(plan, rank, environment, sys.executable, program)
                if is_job and not (plan.is_head or self._job.quiet):
                    for line in banner(plan, command):
                        self._say(line)
                variables = (*passed_on, *command.variables, *of_start)
                host = replace(host, command=Command(command.argv, variables, RANK_VARIABLES))
            if is_job and self._run is not None:
                words = ("selfplay", "--for", self._job.place or self._run.directory, *self._job.actor_flags)
                play = actor_commands(host, environment, sys.executable, words)
                sent = (Command(actor.argv, (*passed_on, *actor.variables), RANK_VARIABLES) for actor in play)
                host = replace(host, actors=tuple(sent))
            hosts.append(host)
        return replace(plan.with_started(hosts), token=uuid.uuid4().hex)


def _names(plan: LaunchPlan) -> frozenset[str]:
    return frozenset(host.remote.name for host in plan.started.values() if not host.only_plays)


def explain_preflight(failure: Failure, plan: LaunchPlan) -> str:
    """What is wrong, with the hosts at fault: the rank that reports it may be another one."""
    if not failure.ranks:
        return failure.line
    hosts = [host.remote.name for host in plan.hosts for _ in range(host.num_ranks or 0)]
    at_fault = sorted({hosts[rank] for rank in failure.ranks if rank < len(hosts)})
    return f"{', '.join(at_fault) or failure.host}: {failure.cause}"
