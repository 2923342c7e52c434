"""A rank's time by part: nothing is lost, and a device that lags behind is never waited for."""

import pytest
import torch

from alphazero.training.loop.part_clock import HostTimer, Part, PartClock, make_part_clock


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class QueueTimer:
    """A device: marks are over when it has come to them, each then a second after the one before."""

    def __init__(self) -> None:
        self.marks = 0
        self.done = 0

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    def is_over(self, mark: int) -> bool:
        return mark <= self.done

    def seconds(self, begin: int, end: int) -> float:
        assert end <= self.done, "asked before the device was there"
        return float(end - begin)


def test_parts_within_each_other_are_counted_once_and_all_time_is_counted():
    clock = Clock()
    parts = PartClock(HostTimer(clock))
    clock.now += 1
    with parts.part(Part.COMPUTE):
        clock.now += 2
        with parts.part(Part.GRADIENTS):
            clock.now += 4
        clock.now += 8
    with parts.part(Part.APART):
        clock.now += 16
    seconds = parts.take()
    assert seconds[Part.HOST] == 1
    assert seconds[Part.COMPUTE] == 10
    assert seconds[Part.GRADIENTS] == 4
    assert seconds[Part.APART] == 16
    assert sum(seconds) == clock.now - 100
    assert sum(parts.take()) == 0


def test_a_part_that_fails_is_left_all_the_same():
    clock = Clock()
    parts = PartClock(HostTimer(clock))
    with pytest.raises(ZeroDivisionError), parts.part(Part.COMPUTE):
        raise ZeroDivisionError
    clock.now += 3
    assert parts.take()[Part.HOST] == 3


def test_waiting_for_items_is_data_and_using_them_is_not():
    clock = Clock()
    parts = PartClock(HostTimer(clock))

    def slow():
        for item in (1, 2):
            clock.now += 5
            yield item
        clock.now += 7

    for _ in parts.waiting(slow()):
        clock.now += 1
    seconds = parts.take()
    assert seconds[Part.DATA] == 17
    assert seconds[Part.HOST] == 2


def test_what_the_device_has_not_come_to_is_told_later_and_never_waited_for():
    timer = QueueTimer()
    parts = PartClock(timer)
    with parts.part(Part.COMPUTE):
        pass
    assert sum(parts.take()) == 0
    timer.done = timer.marks
    with parts.part(Part.DATA):
        pass
    timer.done = timer.marks
    seconds = parts.take()
    assert seconds[Part.COMPUTE] == 1
    assert seconds[Part.DATA] == 1
    assert sum(seconds) + sum(parts.take()) == timer.done - 1


def test_the_cpu_is_timed_by_the_host_and_keeps_no_marks():
    parts = make_part_clock(torch.device("cpu"))
    for _ in range(100):
        with parts.part(Part.COMPUTE):
            pass
    assert not parts._unread
