"""The host comparison before a job starts: all hosts' probes side by side, one line per failure, a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphazero.base.records import from_output, to_json
from alphazero.base.text import last_line
from alphazero.base.text import table as aligned
from alphazero.cluster.launch import probe as probes
from alphazero.cluster.launch.probe import Probe, Question
from alphazero.cluster.launch.remote import (
    NO_CHECKOUT,
    NO_INTERPRETER,
    SSH_FAILED,
    Answer,
    explain_ssh,
    run_everywhere,
)
from alphazero.cluster.plan import programs
from alphazero.cluster.plan.launch_plan import HostPlan
from alphazero.machine.environment import CHECKOUT
from alphazero.machine.machine import names_loopback

PROBE_TIMEOUT_S = 25.0
GIB = 1 << 30
MAX_CLOCK_S = 2.0


@dataclass(frozen=True)
class Examined:
    """A host with its answer (None: it gave none) and how far its clock is ahead of ours, in seconds."""

    host: HostPlan
    probe: Probe | None
    clock_ahead_s: float = 0.0


@dataclass(frozen=True)
class HostIssue:
    """Something wrong on a host: an error keeps the job from starting, a warning does not."""

    host: str
    text: str
    is_error: bool = True

    @property
    def line(self) -> str:
        """As printed."""
        return f"{self.host}: {self.text}"


@dataclass(frozen=True)
class HostComparison:
    """What a round of probes found."""

    examined: tuple[Examined, ...]
    findings: tuple[HostIssue, ...]

    @property
    def errors(self) -> tuple[HostIssue, ...]:
        """What keeps the job from starting."""
        return tuple(finding for finding in self.findings if finding.is_error)

    def passed(self) -> tuple[Examined, ...]:
        """The hosts without an error."""
        failed = {finding.host for finding in self.errors}
        return tuple(one for one in self.examined if one.probe and one.host.remote.name not in failed)


def examine(
    hosts: Sequence[HostPlan], question: Question, python: str, checkout: Path = CHECKOUT
) -> HostComparison:
    """Probe all hosts at once and compare; where the master is among them, it is the first one."""
    asked = [host for host in hosts if host.remote.target]
    questions = [replace(_asked(question, host is hosts[0]), checkout=str(checkout)) for host in asked]
    inputs = [to_json(one) + "\n" for one in questions]
    remotes = [host.remote for host in asked]
    began = time.time()
    answers = run_everywhere(remotes, python, ["-m", programs.HOST_PROBE], inputs, PROBE_TIMEOUT_S, checkout)
    ended = time.time()
    by_name = {answer.remote.name: answer for answer in answers}
    examined, findings = [], []
    for host in hosts:
        answer = by_name.get(host.remote.name)
        if answer is None:  # this machine
            own = probes.look(_asked(question, host is hosts[0]))
            examined.append(Examined(_counted(host, own), own))
            continue
        probe = from_output(Probe, probes.MARK, answer.output) if answer.status == 0 else None
        if probe is None:
            findings.append(HostIssue(host.remote.name, explain(answer, python, checkout, PROBE_TIMEOUT_S)))
            examined.append(Examined(host, None))
            continue
        # The host looked at its clock at some moment while we waited.
        ahead = max(probe.clock_s - ended, 0.0) or min(probe.clock_s - began, 0.0)
        examined.append(Examined(_counted(host, probe), probe, ahead))
    return HostComparison(tuple(examined), (*findings, *compare(examined, question)))


def _asked(question: Question, is_first: bool) -> Question:
    """The question as one host gets it."""
    return replace(question, is_master=question.is_master and is_first)


def _counted(host: HostPlan, probe: Probe) -> HostPlan:
    """The host with its number of ranks."""
    return replace(host, num_ranks=len(probe.visible) or 1) if host.num_ranks is None else host


def explain(answer: Answer, python: str, checkout: Path, timeout_s: float) -> str:
    """Why a program gave no answer there, and what was expected."""
    if answer.status is None:
        return f"no answer within {timeout_s:.0f} s; expected a host that is up"
    if answer.status == NO_CHECKOUT:
        return f"no checkout at {checkout}; expected the same path as on the head"
    if answer.status == NO_INTERPRETER:
        return f"no interpreter {python}; expected the same environment as on the head"
    if answer.status == SSH_FAILED and answer.remote.target:
        return explain_ssh(answer.errors)
    last = last_line(answer.errors) or "no output"
    return f"its probe ended with exit status {answer.status}: {last}; expected `make setup` there"


def compare(examined: Sequence[Examined], question: Question) -> Iterator[HostIssue]:
    """Everything wrong in the answers, host by host; versions are compared with the first that answered."""
    present = [one for one in examined if one.probe is not None]
    if not present:
        return
    reference = present[0]
    question = replace(question, device=job_device(examined, question.device))
    for one in present:
        checks = (_check_host, _check_devices, _check_health, _check_address, _check_interface, _check_data)
        for check in checks:
            yield from check(one, question)
        if len(examined) > 1:
            yield from _check_identity(one, present)
            yield from _check_agreement(one, reference)
            yield from _check_clock(one)


def job_device(examined: Sequence[Examined], wanted: str) -> str:
    """cuda or cpu for the whole job: auto is cuda where any host has a device to use."""
    if wanted != "auto":
        return wanted
    return "cuda" if any(one.probe and one.probe.visible for one in examined) else "cpu"


def _error(one: Examined, text: str) -> HostIssue:
    return HostIssue(one.host.remote.name, text)


def _warning(one: Examined, text: str) -> HostIssue:
    return HostIssue(one.host.remote.name, text, is_error=False)


def _probe(one: Examined) -> Probe:
    assert one.probe is not None
    return one.probe


def _check_host(one: Examined, question: Question) -> Iterator[HostIssue]:
    probe = _probe(one)
    if probe.fault:
        yield _error(one, probe.fault)
    if not probe.has_directory:
        yield _error(one, f"no directory {question.directory}; expected the one the head was started in")
    for name, found in probe.versions.items():
        if found == "not installed":
            yield _error(one, f"{probe.python} has no {name}; expected `make setup` there")


def _check_devices(one: Examined, question: Question) -> Iterator[HostIssue]:
    probe, slots = _probe(one), max((one.host.num_ranks or 0, *(place + 1 for place in one.host.slots)))
    if question.device == "cuda" and len(probe.visible) < slots and not probe.fault:
        yield _error(
            one, f"slots={slots}, but {len(probe.visible)} GPUs found; expected at most as many slots"
        )


def _check_health(one: Examined, question: Question) -> Iterator[HostIssue]:
    probe, run = _probe(one), question.run_directory
    if not probe.run_writable:
        yield _error(one, f"{run}: cannot be written; expected a directory for the run")
    for fault in probe.health:
        finding = _error if fault.is_failure else _warning
        yield finding(one, fault.text)


def _check_address(one: Examined, question: Question) -> Iterator[HostIssue]:
    probe, name = _probe(one), question.master_addr
    if name and not probe.master_addresses:
        yield _error(one, f"master address {name} does not resolve; expected --master-addr ADDRESS that does")
    for address in probe.master_addresses:
        if names_loopback(address):
            yield _error(
                one,
                f"master address {name} is {address} there, which other hosts cannot reach; "
                "expected --master-addr with the master's address in the network (or /etc/hosts mended)",
            )
            break
    if question.port_is_chosen and not probe.port_is_free:
        port = question.master_port
        yield _error(one, f"port {port} is in use; expected a free one: --master-port {probe.free_port}")


def _check_interface(one: Examined, question: Question) -> Iterator[HostIssue]:
    names = list(dict.fromkeys(name for name, _ in _probe(one).machine.addresses))
    if question.interface and question.interface not in names:
        yield _error(one, f"no network interface {question.interface}; expected one of {', '.join(names)}")


def _check_data(one: Examined, question: Question) -> Iterator[HostIssue]:
    for path, wanted in question.data.items():
        if (found := _probe(one).data.get(path, "")) != wanted:
            state = f"is {found[:12]} there, {wanted[:12]} on the head" if found else "is not there"
            yield _error(one, f"data {path} {state}; expected the same: --sync-data sends it")


def lacks_data(one: Examined, question: Question) -> bool:
    """True for a host whose data differs from the head's."""
    return one.probe is not None and any(one.probe.data.get(path) != it for path, it in question.data.items())


def _check_identity(one: Examined, present: Sequence[Examined]) -> Iterator[HostIssue]:
    """An error on the second of two names or addresses of one host."""
    own = _probe(one).identity
    twin = next(other for other in present if _probe(other).identity == own)
    if own and twin is not one:
        name = twin.host.remote.name
        yield _error(one, f"is the same machine as {name}; expected each machine once, with all its slots")


def _check_agreement(one: Examined, reference: Examined) -> Iterator[HostIssue]:
    ours, theirs, other = _probe(one), _probe(reference), reference.host.remote.name
    for name, wanted in theirs.versions.items():
        found = ours.versions.get(name, "not installed")
        if found not in (wanted, "not installed"):
            yield _error(one, f"{name} {found}; expected {wanted} as on {other}")
    if ours.commit != theirs.commit:
        yield _error(one, f"alphazero commit {ours.commit}; expected {theirs.commit} as on {other}")


def _check_clock(one: Examined) -> Iterator[HostIssue]:
    if abs(one.clock_ahead_s) > MAX_CLOCK_S:
        yield _warning(one, f"clock is {one.clock_ahead_s:+.1f} s off; expected within {MAX_CLOCK_S:.0f} s")


def table(report: HostComparison) -> list[str]:
    """The hosts in columns."""
    rows = [("host", "slots", "GPUs", "cores", "torch", "deepspeed", "commit", "free", "shm", "verdict")]
    failed = {finding.host for finding in report.errors}
    warned = {finding.host for finding in report.findings}
    for one in report.examined:
        name, slots, probe = one.host.remote.name, str(one.host.num_ranks or "all"), one.probe
        verdict = "FAILED" if name in failed else "warning" if name in warned else "ok"
        if probe is None:
            rows.append((name, slots, *("-",) * 7, verdict))
            continue
        rows.append(
            (
                name,
                slots,
                str(len(probe.visible)),
                str(probe.machine.num_cores),
                probe.versions["torch"],
                probe.versions["deepspeed"],
                probe.commit,
                f"{probe.run_free_bytes / GIB:.0f} GiB",
                f"{probe.shm_free_bytes / GIB:.0f} GiB",
                verdict,
            )
        )
    return aligned(rows)
