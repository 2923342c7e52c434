"""Shells complete commands, flags and their words from the script that `alphazero completion` prints."""

import shutil
import subprocess
import sys

import pytest

from alphazero.base.errors import ConfigError
from alphazero.cli.command_table import run_command
from alphazero.cli.completion import SHELLS, script

LINES = {
    "alphazero ru": "runs",
    "alphazero train --precision b": "bf16",
    "alphazero launch --init-w": "--init-weights",
    "alphazero launch --hostf": "--hostfile",
    "alphazero data im": "import",
    "alphazero completion z": "zsh",
}
IN_BASH = """
complete_line() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
    _shtab_alphazero
    echo "${COMPREPLY[*]}"
}
"""


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: script(shell) for shell in SHELLS}


def said(shell: str, text: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_bash_completes_commands_flags_and_words(scripts):
    asked = "\n".join(f"complete_line {line}" for line in LINES)
    assert said("bash", f"{scripts['bash']}\n{IN_BASH}\n{asked}") == list(LINES.values())


def test_fish_completes_commands_flags_and_words(scripts):
    asked = "\n".join(f'complete -C "{line}"' for line in LINES)
    found = said("fish", f"{scripts['fish']}\n{asked}")
    assert [line.split("\t")[0] for line in found] == list(LINES.values())


def test_zsh_reads_its_script(scripts):
    said("zsh", f"autoload -U compinit; compinit -D -u\n{scripts['zsh']}")
    assert scripts["zsh"].startswith("#compdef alphazero")


def test_no_other_shell(capsys):
    with pytest.raises(ConfigError, match=r"'tcsh': .*zsh"):
        run_command(["completion", "tcsh"])


def test_the_script_and_the_version_need_no_torch(capsys):
    code = (
        "import sys\n"
        "from alphazero.cli.command_table import run_command\n"
        "run_command(['completion', 'bash']); run_command(['--version'])\n"
        "assert not {'torch', 'deepspeed'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert first.startswith("alphazero 0.")
    assert "torch 2." in second
    assert "deepspeed 0." in second
