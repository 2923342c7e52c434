"""`alphazero train`: what it passes on when it starts the ranks itself."""

import pytest

from alphazero.base.errors import LaunchError
from alphazero.cli.command_table import build_parser
from alphazero.cli.training.train import _given_by_environment, _of_task
from alphazero.launch.plan.outer import read_task
from alphazero.run.next_command import without


@pytest.mark.parametrize(
    ("typed", "passed_on"),
    [
        (["--world-size", "8", "--steps", "3"], ["--steps", "3"]),
        (["--steps", "3", "--world-size=8"], ["--steps", "3"]),
        (["--run-name", "train", "--world-size", "2"], ["--run-name", "train"]),
    ],
)
def test_the_world_size_alone_is_taken_away(typed, passed_on):
    assert without(typed, "--world-size") == passed_on


def test_a_launcher_s_rank_without_a_master_may_be_given_one_by_flag():
    arguments = build_parser("train").parse_args(["--master-addr", "10.0.0.5"])
    found = _given_by_environment(arguments, {"RANK": "1", "WORLD_SIZE": "2"})
    assert found == {"MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "12355"}
    nothing = build_parser("train").parse_args([])
    with pytest.raises(LaunchError, match=r"RANK=1: .*MASTER_ADDR"):
        _given_by_environment(nothing, {"RANK": "1", "WORLD_SIZE": "2"})
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "7000"}
    assert _given_by_environment(arguments, told) == {"MASTER_ADDR": "a", "MASTER_PORT": "7000"}


def test_a_task_of_mpirun_needs_the_address_of_rank_0_where_machines_are_several():
    task = read_task(
        {
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_RANK": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        }
    )
    nothing = build_parser("train").parse_args([])
    with pytest.raises(LaunchError, match=r"4 tasks .*--master-addr"):
        _of_task(task, nothing, {})
    found = _of_task(task, nothing, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7000"})
    assert {name: found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("127.0.0.1", "7000")
