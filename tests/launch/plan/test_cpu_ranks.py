"""The number of CPU ranks where nobody gave one: cores, batch and memory."""

import pytest

from alphazero.launch.plan.node import choose_cpu_ranks, rank_bytes
from alphazero.launch.plan.sources import LaunchRequest
from alphazero.settings.load import load_config
from alphazero.training.ranks.batch import plan_batches
from tests.support.launch.resolving import CPU, GPUS, plan

CHESS = load_config("chess_cpu", {}).network
LARGE = load_config("chess_20x256", {}).network
GIB = 1 << 30


def chosen(cores: int, batch_size: int = 256, gib: float = 1000, network=CHESS, least: int = 64) -> int:
    """The choice on a machine with so much, where micro-batches are chosen as the trainer does."""

    def ranks_at_work(ranks: int) -> float:
        return ranks * (1 - plan_batches(batch_size, 0, [1.0] * ranks, "cpu").idle_share)

    return choose_cpu_ranks(cores, batch_size, least, network, int(gib * GIB), ranks_at_work)


@pytest.mark.parametrize(
    ("cores", "batch_size", "ranks"),
    [
        (1, 256, 1),
        (2, 256, 2),
        (4, 256, 4),
        (8, 256, 4),
        (64, 1024, 16),
        (2, 100, 1),
        (2, 32, 1),
        (3, 256, 2),  # 3 ranks share 4 micro-batches in 2 turns
        (12, 1024, 8),
    ],
)
def test_a_rank_per_core_as_far_as_the_batch_goes(cores, batch_size, ranks):
    assert chosen(cores, batch_size) == ranks


def test_memory_bounds_the_ranks_and_one_is_always_tried():
    assert chosen(4, gib=2) == 2
    assert chosen(4, gib=0.1) == 1
    assert chosen(4, 1024, gib=8, network=LARGE) == 1


def test_the_bound_of_a_ranks_memory_is_above_what_was_measured_and_not_far():
    """VmHWM of a rank of chess_cpu over 60 steps with validation and checkpoints, in MiB."""
    for micro_batch_size, measured in ((256, 692), (128, 617)):
        assert measured < rank_bytes(CHESS, micro_batch_size) / 2**20 < 2 * measured


@pytest.mark.parametrize("gpus", [None, -1])
def test_the_launcher_takes_the_choice_where_no_number_was_given_and_says_why(gpus):
    found = plan(LaunchRequest(gpus=gpus), cpu_ranks=lambda num_cores: num_cores - 1)
    assert found.own.num_ranks == CPU.num_cores - 1
    (notice,) = found.notices
    assert "CPU with 3 ranks" in notice and "4 cores" in notice


@pytest.mark.parametrize(
    ("request_", "machine", "processes"),
    [
        (LaunchRequest(gpus=7), CPU, 7),
        (LaunchRequest(), GPUS, 4),
        # Machines started by hand do not know of each other's cores, and must agree on the number of ranks.
        (LaunchRequest(nodes=2, node_rank=0, master_addr="10.0.0.5"), CPU, 1),
    ],
)
def test_the_choice_is_not_asked_for_where_something_else_decides(request_, machine, processes):
    def refuse(num_cores: int) -> int:
        raise AssertionError(num_cores)

    assert plan(request_, machine, cpu_ranks=refuse).own.num_ranks == processes
