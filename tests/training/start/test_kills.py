"""kill -9 at random instants: the same command again ends bit for bit as if nothing had happened."""

import os
import random
from collections.abc import Callable, Iterator

import pytest

from tests.support.jobs.jobs import SHARED_OUT, zero_flags
from tests.support.jobs.kill_chain import KillChain, Reference, Tally

MOST_KILLS_A_RUN = 5
# (ranks, ZeRO stage)
FAST = {(2, 1): 1}
SLOW = {(ranks, stage): 17 for ranks in (1, 2, 3) for stage in (0, 1)} | {
    (2, 2): 8,
    (2, 3): 8,
    (2, SHARED_OUT): 8,
}


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    """Shown at the end (pytest -s)."""
    counts = Tally()
    yield counts
    print(f"\n{counts}")


@pytest.fixture(scope="module")
def killed(zygote, tmp_path_factory, random_store, tally) -> Callable[[int, int | str, int], None]:
    """Runs of so many ranks at a ZeRO stage are killed so many times."""
    references: dict[tuple[int, int | str], Reference] = {}

    def kill(ranks: int, stage: int | str, kills: int) -> None:
        seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
        print(f"KILL_SEED={seed} chooses these instants again")
        rng, extra = random.Random(seed), zero_flags(stage)
        if (ranks, stage) not in references:
            directory = tmp_path_factory.mktemp("undisturbed")
            references[ranks, stage] = Reference.of(zygote, directory, random_store, ranks, extra)
        while kills:
            directory = tmp_path_factory.mktemp("killed")
            chain = KillChain(zygote, directory, random_store, ranks, extra, rng)
            kills -= chain.run(references[ranks, stage], min(kills, MOST_KILLS_A_RUN), tally)

    return kill


@pytest.mark.parametrize(("ranks", "stage"), FAST)
def test_a_kill_leaves_no_trace(killed, ranks, stage):
    killed(ranks, stage, FAST[ranks, stage])


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "stage"), SLOW)
def test_a_hundred_kills_leave_no_trace(killed, ranks, stage):
    """ZeRO 2 and 3 as well: on one machine gloo adds up in one order, so the tolerance is none."""
    killed(ranks, stage, SLOW[ranks, stage])


@pytest.mark.slow
def test_the_hundred_kills_hit_start_training_saving_and_pruning(tally):
    if tally.places.total() < 100:
        pytest.skip("the hundred kills did not run in this session")
    for place in ("start", "training", "saving", "pruning"):
        assert tally.places[place] >= 5, tally
