"""A directory in which the commands of the pages run as in a fresh clone, and what runs them there."""

import os
import shutil
import subprocess
import sys
import threading
from multiprocessing.connection import Listener
from pathlib import Path

from tests.support.docs import shim
from tests.support.docs.pages import Block
from tests.support.docs.short import shortened_python
from tests.support.jobs.jobs import environment
from tests.support.jobs.zygote import Zygote, rank_variables
from tests.support.paths import REPOSITORY

# What a clone has and commands read; runs/, cache/, stores/ and what else they write stay in the workspace.
LINKED = (
    *("Makefile", "pyproject.toml", "requirements.lock", "constraints.txt", "CMakeLists.txt", "csrc"),
    *("alphazero", "configs", "examples", "ds_config.json", shim.TRAINER),
)
COPIED = ("hostfile",)  # a page writes it anew
BLOCK = "block.sh"
TIMEOUT_S = 280.0
TYPED_TIMEOUT_S = 1500.0  # of blocks that start real jobs one after the other
PROGRAM = Path(sys.executable).with_name("alphazero")
SCRIPT = """#!{python} -S
import sys
sys.path.insert(0, {repository!r})
from tests.support.docs.shim import main
sys.exit(main(sys.argv))
"""


class Workspace:
    """The directory; with a zygote it runs blocks in the fast way."""

    def __init__(self, directory: Path, zygote: Zygote | None) -> None:
        self.directory = directory
        self._zygote = zygote
        for name in LINKED:
            (directory / name).symlink_to(REPOSITORY / name)
        for name in COPIED:
            shutil.copy(REPOSITORY / name, directory / name)
        programs = directory / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name in shim.PROGRAMS:
            write_script((directory if name == shim.LAUNCHER else programs) / name)
        (programs / "activate").touch()  # PATH is set below
        for name in ("dependencies", "core"):  # `make setup` has been here
            (directory / ".venv" / f"{name}.stamp").touch()
        self._variables = {
            **environment(threads=2),
            "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
            "VIRTUAL_ENV": sys.prefix,
            shim.PROGRAMS_VARIABLE: str(Path(sys.executable).parent),
        }
        if zygote is not None:
            self._serve(zygote)

    def made(self) -> list[Path]:
        """What commands have made beside what a clone has."""
        own = {*LINKED, *COPIED, shim.LAUNCHER, ".venv", BLOCK}
        return sorted(path for path in self.directory.iterdir() if path.name not in own)

    def run_shell(self, block: Block) -> str:
        """Run a block line by line with bash, up to the first that fails; what it printed."""
        script = self.directory / BLOCK
        # Bash counts lines as the page does.
        tell = f"echo {block.page.name}:$LINENO: status $?: $BASH_COMMAND"
        script.write_text(f"trap '{tell}' ERR" + "\n" * (block.line - 1) + block.text)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", str(script)],
            cwd=self.directory,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TYPED_TIMEOUT_S if self._zygote is None else TIMEOUT_S,
        )
        assert done.returncode == 0, f"{block.place}: status {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def run_python(self, blocks: list[Block]) -> str:
        """Run the blocks of a page as one program, as a reader types them; what it printed."""
        assert self._zygote is not None
        program = ""
        for block in blocks:  # each on the lines that it has on the page
            program += "\n" * (block.line - 1 - program.count("\n")) + shortened_python(block.text)
        script = self.directory / ".venv" / f"{blocks[0].page.stem}.py"
        script.write_text(program)
        activated = {"PATH": os.pathsep.join((str(PROGRAM.parent), os.environ["PATH"]))}
        job = self._zygote.start(self.directory, 1, [], script, activated)
        assert job.wait(TIMEOUT_S) == [0], f"{blocks[0].place}\n{job.output()[-4000:]}"
        return job.output()

    def _serve(self, zygote: Zygote) -> None:
        """Answer the scripts from a thread, one after the other."""
        listener = Listener(family="AF_UNIX")
        self._variables[shim.SOCKET_VARIABLE] = str(listener.address)

        def answer_all() -> None:
            while True:
                with listener.accept() as channel:
                    channel.send(answer(zygote, **channel.recv()))

        threading.Thread(target=answer_all, name="docs-workspace", daemon=True).start()


def answer(
    zygote: Zygote, directory: Path, arguments: list[str], variables: dict[str, str]
) -> tuple[int, str]:
    """Run what a script asks for; its status and output."""
    no_launcher = dict.fromkeys(rank_variables(0, 1, 0))
    job = zygote.start(directory, 1, arguments, PROGRAM, {**no_launcher, **variables})
    try:
        (status,) = job.wait(TIMEOUT_S)
    except AssertionError as error:  # it never ended
        return 124, str(error)
    output = job.output()
    for path in job.outputs:
        path.unlink()
    return status, output


def write_script(path: Path) -> None:
    """A program of the pages that shim.py stands in for."""
    path.write_text(SCRIPT.format(python=sys.executable, repository=str(REPOSITORY)))
    path.chmod(0o755)
