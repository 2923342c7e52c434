"""What a learner and unlike actors over the internet bring and cost, by simulation from measured speeds.

Seconds pass one by one; a generation is trained on when its positions are there, weights follow it, and
actors do as alphazero/play/actors has it: rounds, the lead, a tenth of the time for weights, pauses. Prints
the table of docs/actors.md (`python -m tools.simulate_actors`).
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from alphazero.data.sampling.window import window_size
from alphazero.play.actors.actor import OLDEST, ROUND_S
from alphazero.play.actors.courier import LOOK_S, REPORT_S

# Measured on an H100, 20x256 in bf16 (docs/performance.md): of training, a batch of 1,024 on each GPU.
EVALUATIONS_PER_S, TRAINED_PER_S = 199_056, 35_388
WEIGHTS_BYTES = 4 * 23_900_000
# A chess position: 35 bytes of columns, 4 for each of some 30 moves of its policy (play/lanes.py).
POSITION_BYTES = 35 + 4 * 30
SIMULATIONS, CACHED = 400, 0.1  # for a position that is trained on; share of evaluations from the cache
WHOLE = EVALUATIONS_PER_S / (1 - CACHED) / SIMULATIONS  # positions/s that an H100 plays
GPUS, STEPS, REUSE, WINDOW_MINIMUM = 8, 1000, 8.0, 500_000
WINDOW_ALPHA, WINDOW_BETA = 0.75, 0.4  # training/sources/generations.py
RENEW_S = 2.0  # of the learner's looks (training/sources/inbox.py)
LEARNER_REQUESTS = 4 / RENEW_S  # a second: its lease read (2) and written, shards listed
# Requests for a shard: PUT; HEAD, GET; HEAD, DELETE, PUT of the empty folder.
SHARD_REQUESTS = 6
HOURS = 3
COLUMNS = (
    "case",
    "positions/s",
    "learner waits",
    "actors pause",
    "weights, an hour",
    "games, an hour",
    "requests a minute",
    "age in steps: mean; oldest",
    "window",
)


@dataclass
class SimulatedActor:
    """speed: positions/s. link: bytes/s. Times are seconds of the simulation."""

    speed: float
    link: float
    step: int = 0
    round_ends: float = 0.0
    weights_after: float = 0.0
    shards: deque[tuple[int, float]] = field(default_factory=deque)  # step, positions: not used yet
    is_paused: bool = False

    @property
    def unused(self) -> float:
        """Positions that wait in the place."""
        return sum(positions for _, positions in self.shards)


def fleet(speeds: Sequence[float]) -> list[SimulatedActor]:
    """64 actors: 4 with an H100 and 1 Gbit/s, 20 with a GPU of a quarter of its speed, 40 of a fiftieth, both
    with 100 Mbit/s. speeds: factors of these three kinds.
    """
    kinds = ((4, 1.0, 125e6), (20, 0.25, 12.5e6), (40, 0.02, 12.5e6))
    return [
        SimulatedActor(WHOLE * share * factor, link)
        for (number, share, link), factor in zip(kinds, speeds, strict=True)
        for _ in range(number)
    ]


@dataclass
class Outcome:
    """Sums over the simulation."""

    weights_bytes: float = 0.0
    games_bytes: float = 0.0
    requests: float = 0.0
    waited_s: float = 0.0
    steps: int = 0
    positions: float = 0.0
    ages: float = 0.0  # position-steps
    oldest: int = 0
    paused_s: float = 0.0


def simulate(actors: Sequence[SimulatedActor], gpus: int, steps: int, reuse: float, hours: float) -> Outcome:
    """Runs the clock."""
    out, batch = Outcome(), 1024 * gpus
    missing = lead = steps * batch / reuse
    train_s = steps * batch / (TRAINED_PER_S * gpus)
    busy_until, published = 0.0, 0
    for now in range(round(hours * 3600)):
        out.requests += LEARNER_REQUESTS
        for actor in actors:
            play(actor, now, published, lead, steps, out)
        if now < busy_until:
            continue
        if busy_until and published != out.steps:
            published = out.steps  # the generation that was trained on gives new weights
        while missing > 0 and any(actor.shards for actor in actors):  # in turn
            for actor in actors:
                if actor.shards and missing > 0:
                    step, positions = actor.shards.popleft()
                    missing -= positions
                    out.positions += positions
                    out.ages += positions * (out.steps - step)
                    out.oldest = max(out.oldest, out.steps - step)
        if missing > 0:
            out.waited_s += 1
            continue
        missing += steps * batch / reuse
        busy_until, out.steps = now + train_s, out.steps + steps
    return out


def play(actor: SimulatedActor, now: int, published: int, lead: float, steps: int, out: Outcome) -> None:
    """A second of an actor's: looks, rounds, shards and weights."""
    out.requests += 4 / LOOK_S + 1 / REPORT_S
    if now < actor.round_ends:
        return
    if actor.round_ends and not actor.is_paused:  # a round is over
        positions = actor.speed * ROUND_S
        actor.shards.append((actor.step, positions))
        out.games_bytes += positions * POSITION_BYTES
        out.requests += SHARD_REQUESTS * max(1, round(positions / 65_536))
    oldest = actor.shards[0][0] if actor.shards else published
    actor.is_paused = actor.unused > lead or published - oldest > OLDEST * steps
    if actor.is_paused:
        out.paused_s += 1
        return
    if published != actor.step and now >= actor.weights_after:
        seconds = WEIGHTS_BYTES / actor.link
        actor.weights_after = now + 10 * seconds
        actor.step = published
        out.weights_bytes += WEIGHTS_BYTES
        out.requests += 2
    actor.round_ends = now + ROUND_S


def line(name: str, out: Outcome, number: int, hours: float) -> str:
    """A row of the table."""
    seconds = 3600 * hours
    window = window_size(round(out.positions), WINDOW_MINIMUM, WINDOW_ALPHA, WINDOW_BETA)
    cells = (
        name,
        f"{out.positions / seconds:,.0f}",
        f"{out.waited_s / seconds:.0%}",
        f"{out.paused_s / seconds / number:.0%}",
        f"{out.weights_bytes / hours / 1e9:,.0f} GB",
        f"{out.games_bytes / hours / 1e9:,.1f} GB",
        f"{60 * out.requests / seconds:,.0f}",
        f"{out.ages / max(1.0, out.positions):,.0f}; {out.oldest:,}",
        f"{window / 1e6:,.1f} M",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=HOURS)
    hours = parser.parse_args().hours
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    cases = (
        ("64 actors", fleet((1, 1, 1)), GPUS, STEPS),
        ("the same, generations of 250 steps", fleet((1, 1, 1)), GPUS, STEPS // 4),
        ("without the four H100", fleet((0.001, 1, 1)), GPUS, STEPS),
        ("64 actors, a learner of one GPU", fleet((1, 1, 1)), 1, STEPS),
        ("one machine: 7 of 8 GPUs play", [SimulatedActor(WHOLE, 1e9) for _ in range(7)], 1, STEPS),
        ("one machine: 6 of 8 GPUs play", [SimulatedActor(WHOLE, 1e9) for _ in range(6)], 2, STEPS),
    )
    for name, actors, gpus, steps in cases:
        print(line(name, simulate(actors, gpus, steps, REUSE, hours), len(actors), hours))


if __name__ == "__main__":
    main()
