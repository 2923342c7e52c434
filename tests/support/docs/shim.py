"""What the pages' shell blocks start as `alphazero`, `torchrun` or `make`: the same program with less to do.

workspace.py puts scripts that call `main` where the pages expect the programs. In the slow tier a script runs
the real program with shortened arguments. In the fast tier it asks the test process for a forked one, which
saves seconds of imports for each command; jobs of a launcher then have one rank, whose arguments
`launch --dry-run` tells.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Client
from pathlib import Path

from tests.support.docs.short import is_slow, shortened, with_amounts
from tests.support.paths import REPOSITORY

SOCKET_VARIABLE = "DOCS_TEST_SOCKET"  # the fast tier's
PROGRAMS_VARIABLE = "DOCS_TEST_PROGRAMS"  # the folder of the real programs
LAUNCHER = "launch_distributed_training.sh"
TRAINER = "train_distributed.py"
PROGRAMS = ("alphazero", "python", "python3", "torchrun", "tensorboard", LAUNCHER)
WARNINGS = 1  # of `alphazero health`: about the machine on which the tests run
SHORT_PYTEST = ("-m", "pytest", "-q", "--collect-only", str(REPOSITORY / "tests" / "test_text.py"))


def main(argv: Sequence[str]) -> int:
    """Be the program of this name; its exit status."""
    program, arguments = Path(argv[0]).name, list(argv[1:])
    if program == LAUNCHER:
        program, arguments = "alphazero", ["launch", *arguments]
    run = in_fork if SOCKET_VARIABLE in os.environ else for_real
    status = run(program, arguments)
    return 0 if arguments[:1] == ["health"] and status == WARNINGS else status


def for_real(program: str, arguments: list[str]) -> int:
    """Run the real program with shortened arguments."""
    folder = Path(os.environ[PROGRAMS_VARIABLE])
    if arguments[:2] == ["-m", "pytest"]:
        argv = ["python", *SHORT_PYTEST]
    elif program == "alphazero" and arguments[0] == "launch":
        argv = [str(REPOSITORY / LAUNCHER), *shortened("launch", arguments[1:])]
        argv += ["--dry-run"] if is_for_several_machines(arguments) else []
    elif program == "alphazero":
        argv = [program, arguments[0], *shortened(arguments[0], arguments[1:])]
    elif TRAINER in arguments:
        place = arguments.index(TRAINER)
        launcher, trainer = arguments[:place], arguments[place + 1 :]
        argv = [program, *with_amounts(launcher), str(REPOSITORY / TRAINER), *shortened("train", trainer)]
    elif program == "tensorboard":  # a server: what it would show instead
        argv = [program, "--inspect", *arguments]
    else:
        argv = [program, *arguments]
    return subprocess.call([str(folder / argv[0]), *argv[1:]])  # an absolute path stays what it is


def in_fork(program: str, arguments: list[str]) -> int:
    """The fast way; what is slow and programs that are not ours are only looked for."""
    if program == "alphazero" and is_slow(arguments):
        return 0
    if program == "alphazero" and arguments[0] == "launch":
        return in_fork_of_launcher(arguments[1:])
    if program == "alphazero":
        return ask([arguments[0], *shortened(arguments[0], arguments[1:])])
    if TRAINER in arguments and program.startswith("python"):
        trainer = arguments[arguments.index(TRAINER) + 1 :]
        if "--world-size" not in trainer:  # which would start processes
            return ask(["train", *shortened("train", trainer)])
    return 0 if shutil.which(program, path=os.environ[PROGRAMS_VARIABLE]) else 127


def in_fork_of_launcher(arguments: list[str]) -> int:
    """What the launcher would start, and of a job on this machine one rank."""
    planned = ["launch", *arguments, "--device", "cpu", "--dry-run"]
    status, output = answer(planned)
    lines = [line for line in output.splitlines() if f"/{TRAINER}" in line]
    if status != 0 or not lines or "--dry-run" in arguments or is_for_several_machines(arguments):
        print(output, end="")
        return status
    trainer = shlex.split(lines[0].split(f"/{TRAINER}", maxsplit=1)[1])
    return ask(["train", *shortened("train", trainer)])


def is_for_several_machines(arguments: Sequence[str]) -> bool:
    """Whether a command of the launcher needs machines that a test has not: then only its plan is made."""
    if "--nodes" in arguments:
        return True
    if "--hostfile" not in arguments:
        return False
    text = Path(arguments[list(arguments).index("--hostfile") + 1]).read_text(encoding="utf-8")
    hosts = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return hosts != ["localhost slots=1"]


def ask(arguments: list[str]) -> int:
    """Have `alphazero ARGUMENTS` run and pass its output on."""
    status, output = answer(arguments)
    print(output, end="")
    return status


def answer(arguments: list[str]) -> tuple[int, str]:
    """Exit status and output of `alphazero ARGUMENTS` in a fork of the zygote."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("DOCS_TEST_")}
    with Client(os.environ[SOCKET_VARIABLE]) as channel:
        channel.send({"directory": Path.cwd(), "arguments": arguments, "variables": variables})
        status, output = channel.recv()
    return status, output


if __name__ == "__main__":
    sys.exit(main(sys.argv))
