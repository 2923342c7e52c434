"""The line with which a run goes on."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from alphazero.games.registry import get_game
from alphazero.run import next_command
from alphazero.run.next_command import (
    COMMAND_VARIABLE,
    SCRIPT,
    UNKNOWN_COMMAND,
    continuing,
    located,
    typed_command,
    uses_of,
)

LAUNCH = "./launch_distributed_training.sh"


@pytest.mark.parametrize(
    ("typed", "more", "line"),
    [
        ([LAUNCH], (), f"{LAUNCH} --run-name job"),
        ([LAUNCH, "--run-name", "job", "--gpus", "2"], (), f"{LAUNCH} --gpus 2 --run-name job"),
        ([LAUNCH, "--run-name=other", "--fresh-start"], (), f"{LAUNCH} --run-name job"),
        ([LAUNCH, "--resume", "best-composite", "--seed", "3"], (), f"{LAUNCH} --seed 3 --run-name job"),
        ([LAUNCH, "--resume", "--seed", "3"], (), f"{LAUNCH} --seed 3 --run-name job"),
        ([LAUNCH, "--data", "my games.pgn"], (), f"{LAUNCH} --data 'my games.pgn' --run-name job"),
        ([LAUNCH, "--steps", "5"], ("--steps", "10"), f"{LAUNCH} --run-name job --steps 10"),
        ([], (), UNKNOWN_COMMAND),
    ],
)
def test_it_is_what_was_typed_less_what_was_for_that_start(typed, more, line):
    assert continuing(typed, "job", *more) == line


def test_the_launcher_is_shown_as_people_type_it(monkeypatch):
    monkeypatch.chdir(SCRIPT.parent)
    module = str(SCRIPT.parent / "alphazero" / "__main__.py")
    assert typed_command([module, "launch", "--gpus", "2"], {}) == [LAUNCH, "--gpus", "2"]


def test_a_rank_of_our_launcher_knows_what_was_typed():
    told = {COMMAND_VARIABLE: json.dumps([LAUNCH, "--gpus", "2"]), "TORCHELASTIC_RUN_ID": "1"}
    assert typed_command(["train_distributed.py", "--local-rank", "1"], told) == [LAUNCH, "--gpus", "2"]


def test_a_script_is_shown_with_the_python_that_runs_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    words = typed_command(["/opt/train_distributed.py", "--steps", "5"], {})
    assert shlex.join(words) == shlex.join([sys.executable, "/opt/train_distributed.py", "--steps", "5"])
    assert Path(words[0]).is_absolute()


def test_a_run_is_begun_once_more_beside_itself():
    typed = [LAUNCH, "--resume", "best-composite", "--seed", "3", "--run-name=other", "--fresh-start"]
    assert continuing(typed, "job", "--fresh-start") == f"{LAUNCH} --seed 3 --run-name job --fresh-start"
    assert continuing([], "job", "--fresh-start") == f"{UNKNOWN_COMMAND} --fresh-start"


def test_commands_that_use_a_network_take_a_name_with_spaces(tmp_path, monkeypatch):
    uses = uses_of("my runs/job", "eval {network} --data {games}")
    commands = [shlex.split(command) for _, command in uses]
    assert [words[:3] for words in commands] == [
        ["alphazero", name, "my runs/job"] for name in ("play", "analyse", "eval")
    ]
    monkeypatch.chdir(tmp_path)  # games to measure it on are there, or have no name
    (*_, path) = shlex.split(uses_of("runs/job", get_game("chess").measured_by)[-1][1])
    assert Path(path).is_file()
    monkeypatch.setattr(next_command, "GAMES", tmp_path / "none.pgn")
    assert uses_of("runs/job", get_game("chess").measured_by)[-1][1].endswith(" --data GAMES.pgn")


def test_programs_are_named_where_they_are(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alphazero").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert located("alphazero play net.pt") == "./alphazero play net.pt"
    assert located("tensorboard --logdir runs") == "tensorboard --logdir runs"


def test_a_program_that_path_finds_is_named_as_people_type_it(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "alphazero"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", str(program.parent))
    assert located("alphazero play net.pt") == "alphazero play net.pt"
    assert typed_command([str(program), "train", "--steps", "5"], {}) == [
        "alphazero",
        "train",
        "--steps",
        "5",
    ]
    monkeypatch.setenv("PATH", "")
    assert located("alphazero play net.pt") == "./bin/alphazero play net.pt"
