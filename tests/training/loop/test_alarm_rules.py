"""Each rule of the alarms on a series made by hand: what it finds, and what it leaves alone."""

import dataclasses
import inspect
import math
import re
from collections import deque
from collections.abc import Sequence

import pytest

from alphazero.machine.findings import Finding, Severity
from alphazero.settings.sections import ALARMS
from alphazero.training.loop import alarm_rules
from alphazero.training.loop.alarm_rules import (
    Alarm,
    FillingDisk,
    HeadLoss,
    health_alarm,
    judge_clocks,
    judge_entropy,
    judge_memory,
    judge_network,
    judge_ranks,
    judge_rate,
    judge_resignations,
    judge_validation,
)
from alphazero.training.loop.usage import HostNow

GIB = 1 << 30


def host(name: str = "a", at_s: float = 0.0, free_gib: float = 100.0, **changes: float) -> HostNow:
    """A healthy one."""
    now = HostNow(name, 1e9 + at_s, at_s, free_gib * GIB, 8 * GIB, 16 * GIB, 1e6, 10)
    return dataclasses.replace(now, **changes)


def test_every_rule_has_a_name_by_which_it_can_be_muted():
    causes = re.findall(r'\bAlarm\(\s*"([a-z-]+)"', inspect.getsource(alarm_rules))
    assert tuple(dict.fromkeys(causes)) == ALARMS


def rates(*values: float) -> list[list[Alarm]]:
    before: deque[float] = deque()
    return [judge_rate(before, value, "positions/s", "training") for value in values]


def test_a_rate_under_seven_tenths_of_the_median_is_found_once_there_is_a_median():
    *before, found = rates(100, 100, 110, 90, 100, 71, 69)
    assert not any(before)
    assert "69 positions/s, 69% of the run's median of 100 (limit 70%)" in found[0].text


def test_slow_first_intervals_and_a_rate_that_grows_are_no_fault():
    assert not any(rates(1, 2, 3, 100, 100, 100, 100, 200, 400, 400, 400))
    assert not any(rates(100, 10, 10, 10, 10))


def test_a_job_that_stays_slow_becomes_its_own_median():
    found = rates(*[100] * 6, *[50] * 20)
    assert all(found[6:12])
    assert not found[-1]


Losses = dict[str, float]


def validations(*pairs: tuple[float, float], head: str = "value") -> list[list[Alarm]]:
    """Of (held out, training) losses."""
    best: dict[str, HeadLoss] = {}
    other = {"policy": "value", "value": "policy"}[head]
    return [
        judge_validation(
            best,
            100 * number,
            {f"{head}_loss": held_out, f"{other}_loss": 1.0, "value_mse": 9.9},
            {f"{head}_loss": training, f"{other}_loss": 1.0},
        )
        for number, (held_out, training) in enumerate(pairs, start=1)
    ]


@pytest.mark.parametrize("head", ["policy", "value"])
def test_a_head_that_is_worse_held_out_and_better_in_training_overfits(head):
    *before, found = validations((1.0, 1.0), (0.9, 0.9), (0.905, 0.85), (0.92, 0.8), head=head)
    assert not any(before)
    (alarm,) = found
    assert alarm.text == (
        f"the {head} head overfits: its loss on held-out positions is 0.9200 at step 400, 2.2% above its "
        "best of 0.9000 at step 200, while in training it fell from 0.9000 to 0.8000"
    )
    assert f"--resume best-{head}_loss" in alarm.advice


def test_a_worse_network_that_is_worse_in_training_too_does_not_overfit():
    assert not any(validations((1.0, 1.0), (0.9, 0.9), (0.95, 0.92), (1.2, 1.3), (1.2, 0.895)))


def test_a_validation_without_held_out_positions_is_not_judged():
    assert judge_validation({}, 1, {"move_error": 0.1}, {"value_loss": 1.0}) == []


def test_entropy_is_measured_against_the_most_varied_generation_and_a_floor():
    assert [bool(judge_entropy(nats, most=1.4)) for nats in (1.4, 0.4, 0.29, 0.27)] == [False] * 3 + [True]
    assert [bool(judge_entropy(nats, most=0.1)) for nats in (0.1, 0.09, 0.07)] == [False, False, True]


def test_wrong_resignations_are_added_up_until_there_are_twenty_games():
    assert judge_resignations([(2, 2)]) == []
    assert judge_resignations([(2, 2), (0, 10)]) == []
    (alarm,) = judge_resignations([(2, 2), (0, 10), (1, 8)])
    assert "of 20 games" in alarm.text
    assert "it did not lose 3 (15.0%, limit 5%)" in alarm.text
    assert judge_resignations([(2, 2), (0, 10), (1, 8), (1, 20)]) == []


def test_twenty_of_the_newest_games_decide():
    assert judge_resignations([(20, 40)])
    assert judge_resignations([(20, 40), (0, 40)]) == []


def disks(*free_gib: float, remaining_s: float = math.inf, every_s: float = 60.0) -> list[list[Alarm]]:
    rule = FillingDisk()
    return [
        rule.judge([host(at_s=number * every_s, free_gib=free)], remaining_s)
        for number, free in enumerate(free_gib)
    ]


def test_a_disk_that_is_full_before_the_end_is_told_with_its_rate_and_the_time_left():
    *before, found = disks(10.0, 10.0, 9.0)
    assert not any(before)
    assert found[0].text == (
        "the disk of the run directory on a loses 60.00 GiB an hour and has 9.0 GiB left: at this rate it is "
        "full in 9 minutes, before the run ends"
    )


def test_a_disk_that_lasts_until_the_end_or_for_a_day_is_no_fault():
    assert not any(disks(10.0, 9.0, 8.0, remaining_s=400))
    assert not any(disks(10_000.0, 9_999.9, 9_999.8))
    assert not any(disks(10.0, 10.0, 11.0, 12.0))
    assert not any(disks(math.nan, math.nan, 10.0, math.nan))


def test_what_filled_for_a_minute_is_not_predicted_for_hours():
    """60 GiB at 6 GiB an hour: told once it has gone on for a hundredth of the ten hours."""
    series = [60.0 - 0.1 * minute for minute in range(9)]
    assert [bool(found) for found in disks(*series)] == [False] * 6 + [True] * 3
    with_pause = [60.0, 59.9, 59.8, 59.7, 59.7, 59.6, 59.5, 59.4, 59.3]
    assert not any(disks(*with_pause))


def test_a_checkpoint_every_so_often_is_seen_by_the_hour():
    rule = FillingDisk(3600.0)
    found = []
    for minute in range(0, 241, 5):  # half a GiB every twenty minutes
        found.append(rule.judge([host(at_s=60.0 * minute, free_gib=10.0 - minute // 20 * 0.5)], math.inf))
    judged = [one for one in found if one is not None]
    assert [bool(one) for one in judged] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("work_s", "passes", "slow"),
    [
        ([1.0, 1.0, 1.0, 1.0], [10, 10, 10, 10], None),
        ([1.0, 1.0, 1.6, 1.1], [10, 10, 10, 10], "rank 2 on c takes 160 ms per micro-batch, 1.6 times"),
        ([1.0, 1.4], [10, 10], None),
        ([1.0, 2.5], [10, 10], "rank 1 on b takes 250 ms per micro-batch, 2.5 times"),
        ([1.0, 2.0], [10, 20], None),  # a share of its own, by weight
        ([0.001, 0.003], [10, 10], None),  # 0.2 ms
        ([1.0], [10], None),
        ([1.0, 1.0], [10, 0], None),
    ],
)
def test_the_slowest_rank_is_named_with_its_host(work_s: Sequence[float], passes, slow):
    found = judge_ranks(work_s, passes, ("a", "b", "c", "d")[: len(work_s)])
    assert [alarm.text.partition(" the median")[0] for alarm in found] == ([] if slow is None else [slow])


def test_a_clock_that_is_set_and_clocks_that_disagree_are_found():
    def judge(step_s: float, *hosts: HostNow) -> list[Alarm]:
        found = judge_clocks(hosts, before, step_s)
        before.update({now.host: now for now in hosts})
        return found

    before: dict[str, HostNow] = {}
    assert judge(1.0, host("a", 0), host("b", 0)) == []
    assert judge(5.0, host("a", 10), host("b", 10, clock_s=1e9 + 12.5))[0].text == (
        "the clock of b was set by +2.5 s during the run"
    )
    assert judge(5.0, host("a", 20), host("b", 20, clock_s=1e9 + 22.5)) == []
    (apart,) = judge(0.1, host("a", 30), host("b", 30, clock_s=1e9 + 32.5))
    assert apart.text == "the clocks of a and b are 2.5 s apart (limit 2.1 s)"
    assert judge_clocks([host("a")], {}, 0.1) == judge_clocks([], {}, 0.1) == []


def test_segments_that_are_sent_again_are_found_on_their_host_and_only_between_hosts():
    before = {name: host(name) for name in ("a", "b")}
    assert judge_network([*before.values()], {}) == []
    (alarm,) = judge_network(
        [host("a", segments=1.01e6), host("b", segments=1.01e6, retransmitted=310)], before
    )
    assert alarm.text == "b had to send 300 of 10,000 TCP segments again (3.0%, limit 1%)"
    assert (
        judge_network([host("a", segments=1.01e6), host("b", segments=1.01e6, retransmitted=20)], before)
        == []
    )
    assert judge_network([host("a", segments=2e6, retransmitted=9e5)], before) == []


def test_a_host_with_little_memory_is_found():
    (alarm,) = judge_memory([host("a"), host("b", memory_available_bytes=1.5 * GIB)])
    assert alarm.text == "b has 1.5 of 16.0 GiB of memory available, below 10%"


def test_a_finding_of_the_watch_becomes_an_alarm_of_its_own():
    hot = Finding(Severity.WARN, "a", "gpu0", "GPU-1", "temperature_c", 90, 85, "check cooling")
    alarm = health_alarm(hot)
    assert alarm.text == "warn: a gpu0 (GPU-1): temperature_c = 90 (limit 85)"
    assert alarm.advice == "check cooling"
    assert alarm.reason != health_alarm(dataclasses.replace(hot, device="gpu1")).reason
