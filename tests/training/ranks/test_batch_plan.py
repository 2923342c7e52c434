"""How a global batch is cut."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.training.ranks.batch import micro_batch_sizes, plan_batches, share_out


@pytest.mark.parametrize(("ranks", "equal_passes"), [(1, False), (2, True), (3, False), (3, True), (5, True)])
def test_alike_ranks_take_every_nth_micro_batch(ranks, equal_passes):
    plan = plan_batches(1024, 128, [1.0] * ranks, "cpu", equal_passes=equal_passes)
    for rank in range(ranks):
        real = [index for index in plan.passes_of(rank) if index is not None]
        assert real == list(range(rank, 8, ranks))


def test_ranks_that_do_not_divide_the_micro_batches_make_surplus_passes_where_passes_must_be_equal():
    plan = plan_batches(1024, 128, [1.0] * 3, "cpu", equal_passes=True)
    assert [plan.passes_of(rank) for rank in range(3)] == [(0, 3, 6), (1, 4, 7), (2, 5, None)]
    free = plan_batches(1024, 128, [1.0] * 3, "cpu")
    assert free.passes_of(2) == (2, 5)


def test_a_rank_without_work_still_makes_one_pass():
    plan = plan_batches(256, 128, [1.0] * 3, "cpu")
    assert plan.passes_of(2) == (None,)


@pytest.mark.parametrize(
    ("count", "weights", "shares"),
    [
        (8, (1, 1, 1), (3, 3, 2)),
        (6, (2, 1), (4, 2)),
        (8, (3, 1, 1), (5, 2, 1)),  # quotas 4.8, 1.6, 1.6
        (4, (0.25, 0.25, 0.5), (1, 1, 2)),
    ],
)
def test_unlike_ranks_share_in_proportion(count, weights, shares):
    assert share_out(count, weights) == shares


def test_weighted_ranks_run_every_micro_batch_once():
    plan = plan_batches(1024, 32, [2.5, 1, 0.5, 1], "cpu")
    run = [index for rank in range(4) for index in plan.passes_of(rank)]
    assert sorted(run) == list(range(32))
    assert plan.shares == (16, 7, 3, 6)


def test_the_chosen_micro_batch_divides_the_batch_and_gives_every_rank_work():
    for batch_size in (7, 96, 1000, 1024, 4096):
        for ranks in (1, 2, 3, 7):
            plan = plan_batches(batch_size, 0, [1.0] * ranks, "cpu")
            assert batch_size % plan.micro_batch_size == 0
            assert plan.num_micro_batches >= ranks
            assert plan.micro_batch_size <= 256


@pytest.mark.parametrize(("batch", "micro", "ranks"), [(100, 30, 1), (2, 0, 3)])
def test_sizes_that_cannot_be_are_refused(batch, micro, ranks):
    with pytest.raises(ConfigError):
        plan_batches(batch, micro, [1.0] * ranks, "cpu")


def test_unlike_weights_are_refused_where_every_pass_communicates():
    with pytest.raises(ConfigError, match="--zero-stage 0 or 1"):
        plan_batches(128, 16, [2.0, 1.0], "cpu", equal_passes=True)


@pytest.mark.parametrize(
    ("batch", "ranks", "equal_passes", "text"),
    [
        (128, 1, False, "128 = 4 micro-batches of 32 over 1 rank, 4 passes per rank"),
        (64, 2, False, "64 = 2 micro-batches of 32 over 2 ranks, 1 pass per rank"),
        (96, 2, False, "96 = 3 micro-batches of 32 over 2 ranks, 2, 1 passes by rank"),
        (32, 1, True, "32 = 1 micro-batch of 32 over 1 rank, 1 pass per rank"),
    ],
)
def test_a_plan_is_told_in_a_line(batch, ranks, equal_passes, text):
    assert str(plan_batches(batch, 32, [1.0] * ranks, "cpu", equal_passes=equal_passes)) == text


@pytest.mark.parametrize("batch_size", [1, 2, 7, 12, 36, 97, 1000, 1024])
def test_the_sizes_of_micro_batches_are_the_divisors_of_the_batch(batch_size):
    assert micro_batch_sizes(batch_size) == [m for m in range(1, batch_size + 1) if batch_size % m == 0]


def test_the_sizes_of_a_huge_batch_are_found_at_once():
    assert micro_batch_sizes(2**40) == [2**power for power in range(41)]
