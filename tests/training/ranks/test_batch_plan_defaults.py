"""Micro-batches chosen unasked: as large as suits, never tiny, and with no more idle ranks than must be."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.training.ranks.batch import (
    LEAST_MICRO_BATCH,
    idle_notice,
    plan_batches,
)


def chosen(batch_size: int, ranks: int, device_type: str = "cpu", **rest: bool) -> int:
    """The micro-batch that nobody named."""
    return plan_batches(batch_size, 0, [1.0] * ranks, device_type, **rest).micro_batch_size


@pytest.mark.parametrize(
    ("batch_size", "ranks", "device_type", "micro_batch_size"),
    [
        (256, 1, "cpu", 256),  # chess_cpu
        (512, 1, "cpu", 256),  # connect4
        (512, 2, "cpu", 256),
        (1024, 1, "cpu", 256),
        (1024, 1, "cuda", 1024),
        (4096, 1, "cuda", 4096),  # chess_20x256
        (4096, 8, "cuda", 512),
        (16384, 1, "cuda", 8192),
        (16384, 16, "cuda", 1024),
        (1024, 2, "cuda", 512),
        (2048, 8, "cuda", 256),
        (1024, 8, "cuda", 128),  # the share of a rank: the number of ranks asks for it
        (300, 1, "cpu", 150),
        (32, 1, "cpu", 32),
        (96, 7, "cpu", 12),
        (7, 2, "cpu", 1),
    ],
)
def test_where_the_ranks_divide_the_batch_the_largest_divisor_is_taken(
    batch_size, ranks, device_type, micro_batch_size
):
    assert chosen(batch_size, ranks, device_type) == micro_batch_size


@pytest.mark.parametrize(("ranks", "micro_batch_size"), [(3, 128), (5, 128), (6, 64), (7, 64)])
def test_smaller_micro_batches_are_taken_where_fewer_ranks_then_idle(ranks, micro_batch_size):
    assert chosen(1024, ranks) == micro_batch_size


def test_the_choice_never_falls_below_the_least():
    for device_type, least in LEAST_MICRO_BATCH.items():
        for batch_size in (512, 768, 1000, 1020, 1024, 4096):
            for ranks in range(1, batch_size // least + 1):
                try:
                    assert chosen(batch_size, ranks, device_type) >= least
                except ConfigError as error:
                    assert f"--batch-size {batch_size}" in str(error)


@pytest.mark.parametrize(
    ("batch_size", "ranks", "device_type", "unit"),
    [
        (1021, 4, "cpu", 256),
        (257, 1, "cpu", 64),
        (1021, 1, "cuda", None),  # one pass
        (2053, 1, "cuda", None),
        (8209, 1, "cuda", 256),
        (31, 2, "cpu", 30),
        (1000, 3, "cuda", 768),
    ],
)
def test_a_batch_that_would_end_in_tiny_micro_batches_is_refused_with_those_that_do_not(
    batch_size, ranks, device_type, unit
):
    if unit is None:
        assert chosen(batch_size, ranks, device_type) == batch_size
        return
    with pytest.raises(ConfigError, match=f"--batch-size {batch_size}: .*multiple of {unit},"):
        chosen(batch_size, ranks, device_type)
    for other in (unit, 4 * unit):
        assert chosen(other, ranks, device_type) >= min(LEAST_MICRO_BATCH[device_type], other // ranks // 2)


def test_a_size_that_was_asked_for_is_taken_however_small():
    assert plan_batches(1021, 1, [1.0] * 4, "cpu").num_micro_batches == 1021
    assert plan_batches(128, 32, [1.0] * 4, "cuda").micro_batch_size == 32


@pytest.mark.parametrize(
    ("ranks", "device_type", "idle_percent", "sizes"),
    [
        (3, "cuda", 33, (1023, 1026)),
        (6, "cuda", 33, (1020, 1026)),
        (7, "cuda", 43, (1022, 1029)),
        (12, "cuda", 33, (1020, 1032)),
        (12, "cpu", 33, (1020, 1032)),
    ],
)
def test_idle_ranks_are_told_with_the_nearest_batch_sizes_that_keep_all_busy(
    ranks, device_type, idle_percent, sizes
):
    plan = plan_batches(1024, 0, [1.0] * ranks, device_type)
    notice = idle_notice(plan)
    assert notice.startswith(f"{idle_percent} %")
    assert f"--batch-size {sizes[0]} or {sizes[1]}" in notice
    for size in sizes:
        assert plan_batches(size, 0, [1.0] * ranks, device_type).idle_share <= 0.05


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_nothing_is_said_where_all_are_busy(ranks):
    assert idle_notice(plan_batches(1024, 0, [1.0] * ranks, "cuda")) == ""


def test_a_named_micro_batch_stays_named_in_the_advice():
    plan = plan_batches(1024, 256, [1.0] * 3, "cpu")
    assert "--batch-size 768 or 1536 " in idle_notice(plan, 256)


def test_a_run_that_goes_on_is_told_what_would_keep_all_busy():
    plan = plan_batches(1024, 256, [1.0] * 3, "cpu")
    notice = idle_notice(plan, batch_is_fixed=True)
    assert notice.startswith("33 %") and f"{plan}; --micro-batch-size 32 keeps all busy" in notice


def test_unlike_ranks_are_idle_by_their_weights():
    """Weight 2 takes two thirds of the micro-batches: 8 are 5 and 3, and weight 1 needs 3 of 8/3 turns."""
    plan = plan_batches(1024, 128, [2.0, 1.0], "cpu")
    assert plan.shares == (5, 3)
    assert plan.idle_share == pytest.approx(1 - 8 / 9)
