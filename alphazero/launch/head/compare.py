"""The host comparison before a job starts: all hosts' probes side by side, one line per failure."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphazero.base.records import from_output, to_json
from alphazero.base.text import last_line
from alphazero.launch.head import probe as probes
from alphazero.launch.head.probe import HostFault, Probe, Question
from alphazero.launch.head.remote import (
    FORBIDDEN,
    NO_CHECKOUT,
    NO_INTERPRETER,
    SSH_FAILED,
    Answer,
    explain_ssh,
    run_everywhere,
)
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import HostPlan, Remote
from alphazero.machine.environment import CHECKOUT, NOT_INSTALLED, set_up
from alphazero.machine.machine import names_loopback

PROBE_TIMEOUT_S = 25.0


@dataclass(frozen=True)
class Examined:
    """A host with its answer (None: it gave none), and what is wrong."""

    host: HostPlan
    probe: Probe | None
    faults: tuple[HostFault, ...] = ()

    @property
    def name(self) -> str:
        """As messages call the host."""
        return self.host.remote.name

    @property
    def is_fit(self) -> bool:
        """True where nothing keeps the job from starting there."""
        return not any(fault.is_failure for fault in self.faults)


def examine(hosts: Sequence[HostPlan], question: Question) -> tuple[Examined, ...]:
    """Probe all hosts at once and compare; where the master is among them, it is the first one."""
    with contextlib.ExitStack() as after:
        if question.mark and _change_mark(hosts[0].remote, question):
            after.callback(_change_mark, hosts[0].remote, question)
        elif question.mark:  # what is wrong with the first host is found as with the others
            question = replace(question, mark="")
        return compare(_ask(hosts, question), question)


def _change_mark(first: Remote, question: Question) -> bool:
    """Whether the first host left the mark that the others look for, or the second time removed it."""
    words = (*programs.words_of(programs.HOST_PROBE), "mark")
    return run_everywhere([first], words, [to_json(question) + "\n"], PROBE_TIMEOUT_S)[0].status == 0


def _of_host(question: Question, host: HostPlan) -> Question:
    """What concerns a host: one that only plays reads no data and meets no ranks."""
    return replace(question, master_addr="", interface="", data={}) if host.only_plays else question


def _ask(hosts: Sequence[HostPlan], question: Question) -> list[Examined]:
    questions = [
        replace(_of_host(question, host), is_master=question.is_master and host is hosts[0]) for host in hosts
    ]
    asked = [rank for rank, host in enumerate(hosts) if host.remote.target]
    inputs = [to_json(replace(questions[rank], checkout=str(CHECKOUT))) + "\n" for rank in asked]
    remotes = [hosts[rank].remote for rank in asked]
    answers = run_everywhere(remotes, programs.words_of(programs.HOST_PROBE), inputs, PROBE_TIMEOUT_S)
    by_name = {answer.remote.name: answer for answer in answers}
    examined = []
    for host, own_question in zip(hosts, questions, strict=True):
        answer = by_name.get(host.remote.name)
        faults: tuple[HostFault, ...] = ()
        if answer is None:  # this machine
            probe: Probe | None = probes.look(own_question)
        else:
            probe = from_output(Probe, probes.MARK, answer.output) if answer.status == 0 else None
            faults = () if probe else (HostFault(explain(answer, PROBE_TIMEOUT_S)),)
        if probe and host.num_ranks is None:
            host = replace(host, num_ranks=max(1, len(probe.visible) - host.num_actors))
        examined.append(Examined(host, probe, faults))
    return examined


def explain(answer: Answer, timeout_s: float) -> str:
    """Why a program gave no answer there, and what was expected."""
    if answer.status is None:
        return f"no answer within {timeout_s:.0f} s; expected a host that is up"
    if answer.status == NO_CHECKOUT:
        return f"no code at {CHECKOUT}; expected the same path as on the head"
    if answer.status == NO_INTERPRETER:
        return f"no interpreter {sys.executable}; expected the same environment as on the head"
    if answer.status == FORBIDDEN:
        return f"may not run {sys.executable}; expected the permission to, and to what its link leads to"
    if answer.status == SSH_FAILED and answer.remote.target:
        return explain_ssh(answer.errors)
    last = last_line(answer.errors) or "no output"
    return f"its probe ended with exit status {answer.status}: {last}; expected {set_up()} there"


def compare(examined: Sequence[Examined], question: Question) -> tuple[Examined, ...]:
    """The hosts with everything wrong in their answers; versions are those of the first that answered."""
    question = replace(question, device=job_device(examined, question.device))
    answers = [(peer.name, peer.probe) for peer in examined if peer.probe]

    def faults_of(peer: Examined) -> Iterator[HostFault]:
        yield from peer.faults
        if peer.probe is not None:
            yield from _own_faults(peer.host, peer.probe, _of_host(question, peer.host))
            yield from _address_faults(peer.probe, _of_host(question, peer.host))
            if len(examined) > 1:
                yield from _faults_beside(peer, peer.probe, answers)
                yield from _master_elsewhere(peer.probe, examined[0], question)

    return tuple(replace(peer, faults=tuple(faults_of(peer))) for peer in examined)


def job_device(examined: Sequence[Examined], wanted: str) -> str:
    """cuda or cpu for the whole job: auto is cuda where any host has a device to use."""
    if wanted != "auto":
        return wanted
    return "cuda" if any(peer.probe and peer.probe.visible for peer in examined) else "cpu"


def _own_faults(host: HostPlan, probe: Probe, question: Question) -> Iterator[HostFault]:
    if probe.fault:
        yield HostFault(probe.fault)
    if not probe.has_directory:
        yield HostFault(f"no directory {question.directory}; expected the one the head was started in")
    for name, version in probe.versions.items():
        if version == NOT_INSTALLED:
            yield HostFault(f"{probe.python} has no {name}; expected {set_up()} there")
    slots = max(((host.num_ranks or 0) + host.num_actors, *(slot + 1 for slot in host.slots)))
    visible = len(probe.visible)
    if question.device == "cuda" and visible < slots and not probe.fault:
        yield HostFault(f"slots={slots}, but {visible} GPUs found; expected at most as many slots")
    if not probe.run_writable:
        yield HostFault(f"{question.run_directory}: cannot be written; expected a directory for the run")
    if host.num_actors and not probe.has_mark:
        yield HostFault(
            f"{Path(question.mark).parent}: is another directory than on the first host; expected one that "
            "actors and learner see, or --place URL (docs/actors.md)"
        )
    yield from probe.health
    for path, wanted in question.data.items():
        if (digest := probe.data.get(path, "")) != wanted:
            state = f"is {digest[:12]} there, {wanted[:12]} on the head" if digest else "is not there"
            yield HostFault(f"data {path} {state}; expected the same: --sync-data sends it")


def _address_faults(probe: Probe, question: Question) -> Iterator[HostFault]:
    name = question.master_addr
    if name and not probe.master_addresses:
        yield HostFault(f"master address {name} does not resolve; expected --master-addr ADDRESS that does")
    if address := next(filter(names_loopback, probe.master_addresses), ""):
        yield HostFault(
            f"master address {name} is {address} there, which other hosts cannot reach; "
            "expected --master-addr with the master's address in the network (or /etc/hosts mended)"
        )
    if question.port_is_chosen and not probe.port_is_free:
        free = f"--master-port {probe.free_port}"
        yield HostFault(f"port {question.master_port} is in use; expected a free one: {free}")
    interfaces = list(dict.fromkeys(interface for interface, _ in probe.machine.addresses))
    if question.interface and question.interface not in interfaces:
        known = ", ".join(interfaces)
        yield HostFault(f"no network interface {question.interface}; expected one of {known}")


def _master_elsewhere(probe: Probe, first: Examined, question: Question) -> Iterator[HostFault]:
    """The master listens at the address by which it knows itself: the others must mean the same."""
    own = first.probe.master_addresses if first.probe and question.is_master else ()
    if own and probe.master_addresses and not set(own) & set(probe.master_addresses):
        yield HostFault(
            f"master address {question.master_addr} is {probe.master_addresses[0]} there, {own[0]} on "
            f"{first.name}; expected the same (/etc/hosts), or --master-addr with the address to use"
        )


def _faults_beside(peer: Examined, probe: Probe, answers: list[tuple[str, Probe]]) -> Iterator[HostFault]:
    """What does not fit the other hosts; the second of two names or addresses of one host is at fault."""
    twin = next(name for name, other in answers if other.identity == probe.identity)
    if probe.identity and twin != peer.name:
        yield HostFault(f"is the same machine as {twin}; expected each machine once, with all its slots")
    first, reference = answers[0]
    for name, wanted in reference.versions.items():
        version = probe.versions.get(name, NOT_INSTALLED)
        if version not in (wanted, NOT_INSTALLED):
            yield HostFault(f"{name} {version}; expected {wanted} as on {first}")
    if probe.commit != reference.commit:
        yield HostFault(f"alphazero commit {probe.commit}; expected {reference.commit} as on {first}")
