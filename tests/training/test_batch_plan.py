"""How a global batch is cut."""

import pytest

from alphazero.errors import ConfigError
from alphazero.training.batch_plan import plan_batches


def test_ranks_that_do_not_divide_the_micro_batches_make_surplus_passes():
    plan = plan_batches(1024, 128, 3, "cpu")
    assert (plan.num_micro_batches, plan.passes_per_rank) == (8, 3)


def test_the_chosen_micro_batch_divides_the_batch_and_gives_every_rank_work():
    for batch_size in (7, 96, 1000, 1024, 4096):
        for ranks in (1, 2, 3, 7):
            plan = plan_batches(batch_size, 0, ranks, "cpu")
            assert batch_size % plan.micro_batch_size == 0
            assert plan.num_micro_batches >= ranks
            assert plan.micro_batch_size <= 256


@pytest.mark.parametrize(("batch", "micro", "ranks"), [(100, 30, 1), (2, 0, 3)])
def test_sizes_that_cannot_be_are_refused(batch, micro, ranks):
    with pytest.raises(ConfigError):
        plan_batches(batch, micro, ranks, "cpu")
