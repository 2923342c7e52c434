"""Ranks that are forks of a process."""

import os
from collections.abc import Callable


def fork_ranks(world_size: int, be_rank: Callable[[int], None]) -> list[int]:
    """Have each of `world_size` children call be_rank with its rank; their wait statuses."""
    children = []
    for rank in range(world_size):
        pid = os.fork()
        if pid == 0:
            be_rank(rank)
            os._exit(0)
        children.append(pid)
    return [os.waitpid(pid, 0)[1] for pid in children]
