"""Shares of a job's time: they add up to 1, and the rank that all wait for is found."""

import pytest
import torch

from alphazero.training.loop.part_clock import Cause, Part, job_shares, waits_in


def seconds(**parts: float) -> list[float]:
    """One rank's, by the names of Part."""
    told = {Part[name.upper()]: value for name, value in parts.items()}
    return [told.get(part, 0.0) for part in Part]


def table(*ranks: list[float]) -> torch.Tensor:
    return torch.tensor(ranks, dtype=torch.float64)


def test_shares_are_of_the_training_time_and_add_up_to_one():
    job = job_shares(table(seconds(compute=6, data=1, messages=1, gradients=1, host=1, apart=90)))
    assert job.mean == pytest.approx(
        {"compute": 0.6, "data_wait": 0.1, "communication": 0.2, "checkpoint": 0.0, "host_overhead": 0.1}
    )
    assert sum(job.mean.values()) == pytest.approx(1.0, abs=1e-12)
    assert job.gradients == pytest.approx(0.1)


def test_the_rank_that_all_others_wait_for_is_the_one_that_communicates_least():
    job = job_shares(
        table(
            seconds(compute=4, gradients=6),
            seconds(compute=4, data=5, messages=1),
            seconds(compute=5, messages=5),
        )
    )
    assert job.slowest_rank == 1
    causes = waits_in(job.slowest)
    assert max(causes, key=lambda cause: causes[cause]) is Cause.DATA
    # The mean alone would blame the network.
    assert job.mean["communication"] > job.mean["data_wait"]


def test_idle_time_that_no_part_explains_is_that_of_launches():
    ranks = table(seconds(compute=8, data=1, host=1))
    job = job_shares(ranks, idle=0.6)
    assert job.mean["host_overhead"] == pytest.approx(0.1 + 0.4)
    assert job.mean["compute"] == pytest.approx(0.4)
    assert sum(job.mean.values()) == pytest.approx(1.0, abs=1e-12)
    # Busy all the time, as a driver says of a device that works off a long queue while the host waits.
    assert job_shares(ranks, idle=0.0).mean["host_overhead"] == pytest.approx(0.1)
    # Never more than there is.
    assert job_shares(ranks, idle=1.0).mean["compute"] == pytest.approx(0.0)


def test_a_rank_that_has_not_trained_yet_has_no_shares():
    assert job_shares(table(seconds(compute=1), seconds(apart=5))) is None
