"""What a host reports of itself before a job starts there: versions, space, limits, devices, addresses.

The program reads a Question as JSON from stdin and prints a Probe as JSON.
torch is not imported: its version is read from its metadata, so that a probe takes a fraction of a second.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path

from alphazero.base.errors import AlphaZeroError
from alphazero.base.files import nearest_existing, resolved
from alphazero.base.records import from_json, to_json
from alphazero.launch.head.sync_data import data_digest
from alphazero.machine.environment import CHECKOUT, commit_of, is_installed, set_up, version_of
from alphazero.machine.health import check_this_host
from alphazero.machine.judge import Severity
from alphazero.machine.machine import (
    Machine,
    addresses_of,
    find_free_port,
    interface_towards,
    look_at_this_machine,
    machine_identity,
    port_is_free,
    visible_devices,
)

MARK = "alphazero-probe "  # before the JSON: login scripts may print other things
PACKAGES = ("torch", "deepspeed")


@dataclass(frozen=True)
class Question:
    """What the head wants to know beside the host itself.

    directory: where the job will run. run_directory: its run. master_addr, master_port: "" and 0 where
    no other host is to be reached. data: the digest on the head of each path that hosts need. is_master:
    whether the port must be free here (as `examine` is asked, on the first host); port_is_chosen: by the
    user, so that another will not do. device: auto, cuda or cpu. interface: of the network, where the user
    chose it. checkout: whose code is to answer, "" for any. mark: a file that the first host has meanwhile in
    the directory where actors meet the learner, or the nearest above that exists; "" for none.
    """

    directory: str
    run_directory: str
    master_addr: str
    master_port: int
    is_master: bool
    device: str
    port_is_chosen: bool = False
    interface: str = ""
    data: dict[str, str] = field(default_factory=dict)
    checkout: str = ""
    mark: str = ""

    @property
    def mark_file(self) -> Path:
        """The mark as this host has it."""
        path = Path(self.directory, self.mark)
        return nearest_existing(path.parent) / path.name


@dataclass(frozen=True)
class HostFault:
    """Something wrong on a host: a failure keeps the job from starting, a warning does not."""

    text: str
    is_failure: bool = True


@dataclass(frozen=True)
class Probe:
    """A host's answer.

    versions: by package, of Python too; commit: of the checkout, with what differs from it. visible: the
    CUDA_VISIBLE_DEVICES entries a job may use. data: digest by path, "" for none.
    free_port: one on which nothing listens here. identity: the same for two names of one host. health: faults
    of GPUs and host. fault: what kept the host from answering in full. has_mark: the mark was found, or none
    was looked for.
    """

    machine: Machine
    python: str
    versions: dict[str, str]
    commit: str
    has_directory: bool
    run_writable: bool
    visible: tuple[str, ...]
    master_addresses: tuple[str, ...]
    interface: str
    port_is_free: bool
    free_port: int
    data: dict[str, str]
    health: tuple[HostFault, ...] = ()
    fault: str = ""
    identity: str = ""
    has_mark: bool = True


def look(question: Question) -> Probe:
    """Ask this machine."""
    fault = ""
    try:
        machine = look_at_this_machine(question.device)
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = visible_devices(machine.devices, setting) if machine.devices else ()
    except AlphaZeroError as error:  # a broken driver, a wrong CUDA_VISIBLE_DEVICES
        fault = str(error)
        machine, visible = look_at_this_machine("cpu"), ()
    if question.checkout and resolved(Path(question.checkout)) != CHECKOUT:
        anew = set_up() if is_installed() else "`make clean setup`"
        fault = f"runs the code of {CHECKOUT}; expected {question.checkout}: {anew} there"
    has_directory = Path(question.directory).is_dir()
    if has_directory:
        os.chdir(question.directory)  # paths of stores and of the run may be relative to it
    run, interface = nearest_existing(Path(question.run_directory)), ""
    with contextlib.suppress(AlphaZeroError, OSError):  # a name that does not resolve is reported below
        interface = interface_towards(question.master_addr, machine.addresses) if question.master_addr else ""
    return Probe(
        machine=machine,
        python=sys.executable,
        versions={"python": platform.python_version()} | {name: version_of(name) for name in PACKAGES},
        commit=commit_of(),
        has_directory=has_directory,
        run_writable=os.access(run, os.W_OK),
        visible=visible,
        master_addresses=addresses_of(question.master_addr) if question.master_addr else (),
        interface=interface,
        port_is_free=not question.is_master or port_is_free(question.master_port),
        free_port=find_free_port(),
        data={path: data_digest(Path(path)) for path in question.data},
        health=_health(question, run),
        fault=fault,
        identity=machine_identity(),
        has_mark=not question.mark or question.mark_file.exists(),
    )


def _health(question: Question, run: Path) -> tuple[HostFault, ...]:
    """Failures, and warnings of GPUs: those of the host itself are left to `alphazero health`."""
    try:
        report = check_this_host(run, question.device)
    except AlphaZeroError as error:
        return (HostFault(str(error)),)
    return tuple(
        HostFault(finding.line(), finding.severity >= Severity.FAIL)
        for finding in report.faults()
        if finding.device or finding.severity >= Severity.FAIL
    )


def main() -> int:
    """Answer one question; with an argument leave its mark, or remove it where it is."""
    question = from_json(Question, sys.stdin.readline())
    if not sys.argv[1:]:
        print(MARK + to_json(look(question)))
    elif question.mark_file.exists():
        question.mark_file.unlink()
    else:
        question.mark_file.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
