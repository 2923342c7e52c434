"""A rank's time by part: nothing is lost, and a device that lags behind is never waited for."""

from dataclasses import dataclass

import pytest
import torch

from alphazero.training.loop.part_clock import HostMoment, Part, PartClock


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> HostMoment:
        return HostMoment(self.now)


class Queue:
    """A device: events are over when it has come to them, each then a second after the one before."""

    def __init__(self) -> None:
        self.events = 0
        self.done = 0

    def __call__(self) -> "QueueEvent":
        self.events += 1
        return QueueEvent(self, self.events)


@dataclass
class QueueEvent:
    queue: Queue
    number: int

    def query(self) -> bool:
        return self.number <= self.queue.done

    def elapsed_time(self, end: "QueueEvent") -> float:
        assert end.query(), "asked before the device was there"
        return 1000.0 * (end.number - self.number)


def test_parts_within_each_other_are_counted_once_and_all_time_is_counted():
    clock = Clock()
    parts = PartClock(clock)
    clock.now += 32
    with parts.part(Part.HOST):
        clock.now += 1
        with parts.part(Part.COMPUTE):
            clock.now += 2
            with parts.part(Part.GRADIENTS):
                clock.now += 4
            clock.now += 8
        with parts.part(Part.APART):
            clock.now += 16
        seconds = parts.take()
    known = {"host": 1, "compute": 10, "gradients": 4, "apart": 48}
    assert {name: spent for name, spent in seconds.items() if spent} == known
    assert sum(seconds.values()) == clock.now - 100
    assert sum(parts.take().values()) == 0


def test_the_work_is_that_of_the_block_whatever_it_waits_for():
    parts = PartClock(Clock())
    assert parts.work == ""
    with parts.part(Part.HOST):
        with parts.part(Part.GRADIENTS):
            assert parts.work == "training"
        with parts.part(Part.APART):
            with parts.part(Part.GRADIENTS):
                assert parts.work == ""
            with parts.part(Part.SELF_PLAY):
                assert parts.work == "self-play"
        assert parts.work == "training"


def test_a_part_that_fails_is_left_all_the_same():
    clock = Clock()
    parts = PartClock(clock)
    with pytest.raises(ZeroDivisionError), parts.part(Part.COMPUTE):
        raise ZeroDivisionError
    clock.now += 3
    assert parts.take()["apart"] == 3


def test_waiting_for_items_is_data_and_using_them_is_not():
    clock = Clock()
    parts = PartClock(clock)

    def slow():
        for item in (1, 2):
            clock.now += 5
            yield item
        clock.now += 7

    for _ in parts.waiting(slow()):
        clock.now += 1
    seconds = parts.take()
    assert seconds["data"] == 17
    assert seconds["apart"] == 2


def test_what_the_device_has_not_come_to_is_told_later_and_never_waited_for():
    queue = Queue()
    parts = PartClock(queue)
    with parts.part(Part.COMPUTE):
        pass
    assert sum(parts.take().values()) == 0
    queue.done = queue.events
    with parts.part(Part.DATA):
        pass
    queue.done = queue.events
    seconds = parts.take()
    assert seconds["compute"] == seconds["data"] == 1
    assert sum(seconds.values()) + sum(parts.take().values()) == queue.done - 1


def test_the_cpu_is_timed_by_the_host_and_keeps_no_marks():
    parts = PartClock.on(torch.device("cpu"))
    for _ in range(100):
        with parts.part(Part.COMPUTE):
            pass
    assert not parts._unread
