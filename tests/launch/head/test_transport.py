"""Commands on other hosts: what a hostile word in them becomes after a real shell has read it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from alphazero.launch.head.remote import (
    SRUN_REMOVED,
    SSH,
    remote_argv,
    run_everywhere,
    srun_argv,
    ssh_argv,
)
from alphazero.launch.plan.launch_plan import Remote
from alphazero.launch.plan.programs import NODE_AGENT, words_of

HOSTILE = [
    "a b",
    "it's",
    'say "x"',
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "& touch pwned",
    "new\nline; touch pwned",
    "*",
    "~",
    "-oProxyCommand=touch pwned",
    "\\",
    "",
    "!!",
    "#",
    "\t",
]
ECHO = "import sys; print(*map(repr, sys.argv[1:]), sep='\\n')"


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_what_ssh_gives_to_the_shell_of_the_other_host_arrives_word_for_word(shell: str, tmp_path: Path):
    argv = ssh_argv("me@host", [sys.executable, "-c", ECHO, *HOSTILE])
    assert argv[-3:-1] == ["--", "me@host"]
    run = subprocess.run([shell, "-c", argv[-1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [repr(word) for word in HOSTILE]
    assert list(tmp_path.iterdir()) == []


def test_checkout_and_interpreter_of_the_agent_may_hold_anything(tmp_path: Path):
    checkout = tmp_path / "it's $(touch pwned) a\nplace"
    (checkout / "alphazero").mkdir(parents=True)
    (checkout / "alphazero" / "__init__.py").touch()
    python = checkout / "py thon"
    python.symlink_to(sys.executable)
    argv = remote_argv(Remote("h", "h"), str(python), ["-c", ECHO, *HOSTILE], checkout)
    run = subprocess.run(
        ["/bin/sh", "-c", argv[-1]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [repr(word) for word in HOSTILE]
    assert list(tmp_path.iterdir()) == [checkout]


def test_ssh_asks_nothing_and_believes_known_hosts_only():
    assert "BatchMode=yes" in SSH
    assert "StrictHostKeyChecking=yes" in SSH
    argv = ssh_argv("fd00::1", ["true"], "/etc/my ssh")
    assert argv[len(SSH) :] == ["-F", "/etc/my ssh", "--", "fd00::1", "true"]


def test_srun_starts_one_task_on_the_node_and_the_batch_script_s_wishes_do_not_reach_it():
    command = [sys.executable, "-c", ECHO, *HOSTILE]
    argv = srun_argv("gpu01", command)
    assert argv[-len(command) - 1 :] == ["--", *command]
    options = argv[argv.index("srun") + 1 : -len(command) - 1]
    assert options == [
        "--nodes=1",
        "--ntasks=1",
        "--overlap",
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        "--nodelist=gpu01",
        "--export=ALL",
    ]
    removed = argv[2 : argv.index("srun") : 2]
    assert removed == list(SRUN_REMOVED)
    assert {"SLURM_NTASKS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_TASK"} < set(removed)


def test_a_host_is_reached_by_ssh_or_srun_or_not_at_all():
    words = words_of(NODE_AGENT)
    local = remote_argv(Remote("here"), "/py", words)
    assert local[0] == "/bin/sh"
    assert remote_argv(Remote("gpu1", "gpu1", by_srun=True), "/py", words) == srun_argv("gpu1", local)
    assert remote_argv(Remote("gpu1", "me@gpu1"), "/py", words) == ssh_argv("me@gpu1", local)


FLOOD = "import os; text = b'x' * (1 << 20)\nfor _ in range(%d): os.write(%d, text)\nprint('\\nthe end')"


@pytest.mark.parametrize("descriptor", [1, 2])
def test_a_host_that_sends_without_measure_has_no_answer(descriptor: int):
    begin = time.monotonic()
    (answer,) = run_everywhere([Remote("here")], ["-c", FLOOD % (10**9, descriptor)], [""], 60)
    assert answer.status is None and time.monotonic() - begin < 20


def test_a_host_that_does_not_answer_has_no_answer():
    begin = time.monotonic()
    (answer,) = run_everywhere([Remote("here")], ["-c", "import time; time.sleep(60)"], [""], 2)
    assert answer.status is None and time.monotonic() - begin < 20


def test_a_long_question_and_a_long_answer_do_not_wait_for_each_other():
    echo = "import sys\nfor line in sys.stdin: print(line, end='')"
    text = "word\n" * (1 << 19)
    closed = "import sys; sys.stdin.close(); print('enough')"
    for program, output in ((echo, text), (closed, "enough\n")):
        (answer,) = run_everywhere([Remote("here")], ["-c", program], [text], 60)
        assert (answer.status, answer.output) == (0, output)
