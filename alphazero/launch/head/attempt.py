"""One start of a job on its hosts: output, signals, failures and hangs, until nothing of it runs."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from alphazero.base.awake_clock import AwakeClock
from alphazero.base.log import FIRST_SILENCE_S, FORMAT_VARIABLE, JSON, Say, Work, in_json, stamped
from alphazero.base.text import counted, exit_text, last_line, signal_name
from alphazero.launch.agent import protocol
from alphazero.launch.agent.processes import SignalInbox
from alphazero.launch.agent.protocol import Beat, Ended, Message, Output
from alphazero.launch.blame import HANG, order_in_job
from alphazero.launch.head.lines import show
from alphazero.launch.head.remote import AgentLink, explain_ssh
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.run.rank import Failure
from alphazero.run.rank_watch import RankState, find_hang

TICK_S = 0.1
SETTLE_S = 2.0  # after the first failure: reports of others may name an earlier one
CONNECT_S = 30.0  # until an agent's first word
END_S = 10.0  # beyond the grace: from the request to end to the agent's account
STACKS_S = 2.0
HANG_STATUS = 124  # as timeout(1)
LOST_STATUS = 1

STARTING = "ranks are loading PyTorch and DeepSpeed"


@dataclass
class StartOutcome:
    """How a start ended.

    failure: the first one. lost: hosts that could no longer be reached. advanced: some rank finished a step.
    saved: there is a newer checkpoint than before. begun: some rank opened its run. newest_checkpoint: the
    step of the newest one, -1 for none. asked: the signals by which a batch system asked agents for the end
    of the job. stopped: that to a rank for which all ended early, 0 for none.
    """

    failure: Failure | None = None
    lost: set[str] = field(default_factory=set)
    advanced: bool = False
    saved: bool = False
    begun: bool = False
    newest_checkpoint: int = -1
    asked: list[int] = field(default_factory=list)
    stopped: int = 0


@dataclass(eq=False)
class Attempt:
    """Starts the agents of a plan and watches over them.

    take_output: gets what the job prints, and on which host, in the place of the terminal. shows_start: print
    now and then how long the ranks have been starting, until the first of them prints something or makes a
    step.
    """

    plan: LaunchPlan
    inbox: SignalInbox
    say: Say
    take_output: Callable[[str, Output], None] | None = None
    shows_start: bool = False

    def __post_init__(self) -> None:
        self._clock = AwakeClock()
        self._links = [AgentLink(self.plan, rank, self._clock) for rank in self.plan.started]
        self._open = list(self._links)
        self._has_rank_0 = 0 in self.plan.started
        self._starting = Work(STARTING) if self.shows_start else None
        self._next_word_s = FIRST_SILENCE_S
        self._selector = selectors.DefaultSelector()
        self._states: dict[str, tuple[RankState, ...]] = {}
        self._first_steps: dict[int, int] = {}
        self._failures: list[Failure] = []
        self._checkpoints_before: dict[str, int] = {}
        self._outcome = StartOutcome()
        self._stop_sent = False
        self._end_at: float | None = None  # when the request to end goes out
        self._end_sent_at: float | None = None

    def run(self) -> StartOutcome:
        """Until every host has ended or is lost."""
        for link in self._links:
            for descriptor in link.descriptors:
                self._selector.register(descriptor, selectors.EVENT_READ, link)
        over = threading.Event()
        beats = threading.Thread(target=self._beat, args=(over,), daemon=True)
        beats.start()
        next_look = 0.0
        try:
            while self._open:
                self._read()
                now = self._clock()
                if now >= next_look:
                    next_look = now + protocol.BEAT_S
                    self._look_for_hangs(now)
                    self._show_start()
                self._pass_signals_on(now)
                for link in list(self._open):
                    limit_s = self.plan.limits.silence_s if link.has_answered else CONNECT_S
                    if now - link.heard > limit_s:
                        self._lose(link, f"is lost: no sign of life for {limit_s:.0f} s", LOST_STATUS)
                self._end_when_due(now)
        finally:
            over.set()
            beats.join()
            for link in self._links:
                link.close()
        self._outcome.failure = min(self._failures, key=order_in_job, default=None)
        return self._outcome

    def _show_start(self) -> None:
        """Ranks load for seconds, on a loaded machine for a minute, before they print anything."""
        if self._starting is None or self._outcome.begun or self._stop_sent:
            return
        states = [state for states in self._states.values() for state in states]
        if self.plan.is_by_hand and not any(state.pid for state in states):
            self._starting = Work(STARTING)  # nodes meet first, and report who is missing
        if self._starting.seconds >= self._next_word_s:
            self._next_word_s *= 2
            self.say(self._starting.line())

    def _beat(self, over: threading.Event) -> None:
        """Runs in a separate thread: a terminal that is held (Ctrl-S, a pager) must not silence the head."""
        while not over.wait(protocol.BEAT_S):
            for link in self._links:
                link.send(protocol.BEAT)

    def _send(self, request: str) -> None:
        for link in self._open:
            link.send(request)

    def _read(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            link: AgentLink = key.data
            if not link.read(key.fd, lambda message, link=link: self._take(link, message)):  # type: ignore[misc]
                self._selector.unregister(key.fd)
                if key.fd == link.descriptors[0] and link in self._open:
                    self._connection_ended(link)

    def _take(self, link: AgentLink, message: Message) -> None:
        if isinstance(message, Output):
            if self._has_rank_0 and (message.rank is not None or not self.plan.is_by_hand):
                self._starting = None
            if self.take_output is not None:
                self.take_output(link.remote.name, message)
            else:
                self._show(link, message)
        elif isinstance(message, Beat):
            self._states[link.remote.name] = message.ranks
            self._note_checkpoint(link, message.newest_checkpoint)
            for state in message.ranks:
                if state.step >= 0:
                    self._outcome.begun = True
                    self._outcome.advanced |= state.step > self._first_steps.setdefault(
                        state.rank, state.step
                    )
        elif isinstance(message, Ended):
            self._host_ended(link, message)

    def _show(self, link: AgentLink, output: Output) -> None:
        """The output of rank 0 is shown as it is, that of others with its source."""
        if os.environ.get(FORMAT_VARIABLE) == JSON:
            rank = "" if output.rank is None else f" rank {output.rank}"
            show(in_json(output.text, f"{link.remote.name}{rank}"))
        elif output.rank == 0 or (output.rank is None and len(self._links) == 1):
            show(output.text if self.plan.columns else stamped(output.text))
        else:
            who = link.remote.name if output.rank is None else f"{link.remote.name} rank {output.rank}"
            clear = "\r\x1b[K" if self.plan.columns else ""  # a progress bar may stand there
            text = "".join(f"{clear}{who}: {line}\n" for line in output.text.splitlines())
            show(text if self.plan.columns else stamped(text))

    def _note_checkpoint(self, link: AgentLink, step: int) -> None:
        before = self._checkpoints_before.setdefault(link.remote.name, step)
        self._outcome.saved |= step > before
        self._outcome.newest_checkpoint = max(self._outcome.newest_checkpoint, step)

    def _host_ended(self, link: AgentLink, ended: Ended) -> None:
        self._open.remove(link)
        self._note_checkpoint(link, ended.newest_checkpoint)
        if ended.asked:
            self._host_was_asked(link, ended)
        if ended.stopped:
            self._outcome.stopped = ended.stopped
        if ended.num_left:
            left = counted(ended.num_left, "process", "processes")
            self.say(f"{link.remote.name}: ended {left} that outlived the launcher")
        self._states.pop(link.remote.name, None)  # those still running keep the limits of their phases
        if ended.failure is not None and self._end_sent_at is None:  # later ones are ended by us
            self._note_failure(link, replace(ended.failure, at=self._clock() - ended.seconds_ago))

    def _host_was_asked(self, link: AgentLink, ended: Ended) -> None:
        """A signal came to the agent: SLURM means the whole job, another machine itself, as it shuts down."""
        number, remote = ended.asked, link.remote
        if remote.by_srun:
            self._outcome.asked.append(number)
            return
        fate = f"was asked to end by {signal_name(number)}"
        at = self._clock() - ended.seconds_ago
        failure = Failure(remote.name, None, fate, log=ended.log, status=128 + number, at=at)
        if link.only_plays:
            self._note_failure(link, failure)
        else:
            self._failures.append(failure)

    def _note_failure(self, link: AgentLink, failure: Failure) -> None:
        if link.only_plays:  # actors have no state: whatever becomes of them, the others train
            self.say(f"{failure.host} {failure.fate}: training continues without its actors")
            return
        self._failures.append(failure)
        if self._end_at is None:
            self._end_at = self._clock() + SETTLE_S

    def _connection_ended(self, link: AgentLink) -> None:
        """The agent is gone without an account: its host, its connection or itself has died."""
        status = link.exit_code()
        for descriptor in link.descriptors[1:]:
            if descriptor in self._selector.get_map():
                link.read(descriptor, lambda message: None)
        if link.remote.target and status == 255:
            fate = f"is lost: {explain_ssh(link.errors, has_answered=link.has_answered)}"
        elif status < 0:
            fate = f"is lost: its node agent {exit_text(status)}"
        elif last := last_line(link.errors):
            fate = f"is lost: {last}"
        else:
            fate = f"is lost: its node agent ended with exit status {status} and no account"
        self._lose(link, fate, 128 - status if status < 0 else LOST_STATUS)

    def _lose(self, link: AgentLink, fate: str, status: int) -> None:
        self._open.remove(link)
        self._outcome.lost.add(link.remote.name)
        self._states.pop(link.remote.name, None)
        if self._end_sent_at is None:
            self._note_failure(link, Failure(link.remote.name, None, fate, status=status, at=link.heard))

    def _look_for_hangs(self, now: float) -> None:
        """Where one is found every rank shows its stacks, then all is ended."""
        if self._end_at is not None:
            return
        states = [state for states in self._states.values() for state in states]
        hang = find_hang(states, self.plan.limits)
        # A host that has just fallen silent is the reason, and is found out in a moment.
        if hang is None or any(now - link.heard >= self.plan.limits.silence_s / 3 for link in self._open):
            return
        host = next(name for name, states in self._states.items() if hang.state in states)
        self.say(f"rank {hang.state.rank} on {host} {hang.fate}; stacks of all ranks follow")
        self._send(protocol.STACKS)
        rank, fate, now = hang.state.rank, hang.fate + hang.expected, self._clock()
        log = f"{self.plan.run_directory}/logs/{host}-rank{rank}.log"
        self._failures.append(Failure(host, rank, fate, "", log, HANG_STATUS, HANG, at=now))
        self._end_at = now + STACKS_S

    def _pass_signals_on(self, now: float) -> None:
        if self.inbox.received and not self._stop_sent:
            self._stop_sent = True
            self.say("stopping: ranks finish their step and save a checkpoint (Ctrl-C again ends at once)")
            self._send(protocol.STOP)
        if len(self.inbox.received) > 1 and self._end_sent_at is None:
            self.say("ending at once")
            self._end_at = now

    def _end_when_due(self, now: float) -> None:
        if self._end_at is None and all(link.only_plays for link in self._open):
            self._end_at = now  # training is over
        if self._end_at is not None and self._end_sent_at is None and now >= self._end_at:
            self._end_sent_at = now
            self._send(protocol.END)
        if self._end_sent_at is not None:
            for link in list(self._open):
                if now - self._end_sent_at > self.plan.grace_s + END_S:
                    self._lose(link, "did not end", LOST_STATUS)
