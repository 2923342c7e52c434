"""What ranks want of each other at the end of their passes of a step."""

from __future__ import annotations

from enum import IntFlag, auto

from alphazero.training.exchange import Exchange


class Wish(IntFlag):
    """What a rank wants the others to know at the end of its passes of a step."""

    NOTHING = 0
    STOP = auto()  # a signal came
    SAVE = auto()  # rank 0's clock: a checkpoint is due
    FAULT = auto()  # its last checkpoint could not be written
    MEMORY = auto()  # the device's memory did not hold a micro-batch
    NOT_FINITE = auto()  # loss or gradients are not
    HOST_MEMORY = auto()  # the host is about to run out of memory


# After these no further step follows.
LAST_WISHES = Wish.STOP | Wish.FAULT | Wish.HOST_MEMORY


def ranks_by_wish(own: Wish, exchange: Exchange) -> dict[Wish, list[int]]:
    """Which ranks wish what. Collective."""
    numbers = exchange.numbers(int(own))
    return {
        wish: ranks
        for wish in Wish
        if (ranks := [rank for rank, number in enumerate(numbers) if number & wish])
    }
