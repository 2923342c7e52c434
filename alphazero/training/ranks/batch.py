"""How a step's global batch is cut: K micro-batches of fixed size m, shared out over the ranks.

`fix_batch` derives it from batch, micro-batch and accumulation, which must agree as in DeepSpeed: batch =
micro-batch x accumulation x ranks. A flag beats ds_config.json, which beats presets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, isqrt

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted
from alphazero.settings.load import Config
from alphazero.settings.sections import AUTO, LARGEST_MICRO_BATCH

# Smallest one chosen unasked: below it BatchNorm's statistics are noise and a device waits for its launches.
LEAST_MICRO_BATCH = {"cpu": 64, "cuda": 256}
# Share of the ranks' time that may be idle before a notice is printed.
IDLE_SHARE = 0.05
# Positions of a step, and of each rank, on given games where only a preset names a batch and ranks are few:
# smaller batches learn more from the same games, and so many keep a GPU busy.
LEAST_BATCH, LEAST_SHARE = 1024, 512


@dataclass(frozen=True)
class BatchPlan:
    """batch_size = num_micro_batches * micro_batch_size, dealt out to the ranks turn by turn.

    weights: static shares of the ranks, all 1 where devices are alike.
    equal_passes: every rank makes as many forward passes as the busiest, surplus ones weigh nothing
        (DeepSpeed's ZeRO 2 and 3 communicate in every pass).
    """

    batch_size: int
    micro_batch_size: int
    weights: tuple[float, ...]
    equal_passes: bool = False

    @property
    def world_size(self) -> int:
        """N: ranks."""
        return len(self.weights)

    @property
    def num_micro_batches(self) -> int:
        """K: forward passes of a step over all ranks that count."""
        return self.batch_size // self.micro_batch_size

    @property
    def shares(self) -> tuple[int, ...]:
        """Micro-batches of each rank, K together."""
        return share_out(self.num_micro_batches, self.weights)

    @property
    def idle_share(self) -> float:
        """The part of a step that ranks wait for the busiest one, 0 to 1; weights are taken for speeds."""
        turns = max(share / weight for share, weight in zip(self.shares, self.weights, strict=True))
        return max(0.0, 1 - self.num_micro_batches / (turns * sum(self.weights)))

    def passes_of(self, rank: int) -> tuple[int | None, ...]:
        """Numbers of the micro-batches that `rank` runs, in order; None is a pass that weighs nothing.

        In each turn every rank that still has a share takes the next one: with equal shares micro-batch j
        is rank j mod N's.
        """
        shares = self.shares
        own: list[int | None] = []
        for turn in range(shares[rank]):
            before = sum(min(share, turn) for share in shares)
            own.append(before + sum(share > turn for share in shares[:rank]))
        return (*own, *[None] * (self.passes[rank] - len(own)))

    @property
    def passes(self) -> tuple[int, ...]:
        """How many passes each rank makes in a step, those that weigh nothing included."""
        shares = self.shares
        # A rank without any still takes part in the exchange of gradients.
        least = max(shares) if self.equal_passes else 1
        return tuple(max(share, least) for share in shares)

    def with_micro_batch_size(self, micro_batch_size: int) -> BatchPlan:
        """The same global batch in other micro-batches."""
        return replace(self, micro_batch_size=micro_batch_size)

    def __str__(self) -> str:
        each = f"{counted(self.passes[0], 'pass', 'passes')} per rank"
        if len({*self.passes}) > 1:
            each = f"{', '.join(map(str, self.passes))} passes by rank"
        return (
            f"{self.batch_size} = {counted(self.num_micro_batches, 'micro-batch', 'micro-batches')} "
            f"of {self.micro_batch_size} over {counted(self.world_size, 'rank')}, {each}"
        )


def plan_batches(
    batch_size: int,
    micro_batch_size: int,
    weights: Sequence[float],
    device_type: str,
    *,
    equal_passes: bool = False,
) -> BatchPlan:
    """The plan for a global batch over ranks of these weights (all 1 where devices are alike).

    micro_batch_size 0 takes the divisor that suits, AUTO the largest one. Raises ConfigError where the sizes
    do not divide, a rank would get nothing, weights differ where passes must be equal, or micro-batches that
    were not requested would be tiny.
    """
    world_size = len(weights)
    if batch_size < world_size:
        raise ConfigError(
            f"--batch-size {batch_size}: expected at least {world_size}, one position for each rank"
        )
    if equal_passes and len({*weights}) > 1:
        raise ConfigError(
            "--host-weights: ZeRO 2 and 3 make equal passes on all ranks; expected --zero-stage 0 or 1"
        )
    if micro_batch_size in (0, AUTO):
        most = batch_size if micro_batch_size == AUTO else LARGEST_MICRO_BATCH[device_type]
        micro_batch_size = _choose_size(batch_size, weights, device_type, most)
        if not micro_batch_size:
            least = LEAST_MICRO_BATCH[device_type]
            unit = min(least, batch_size // world_size) * world_size
            raise ConfigError(
                f"--batch-size {batch_size}: over {counted(world_size, 'rank')} only micro-batches below "
                f"{least} positions divide it evenly; expected a multiple of {unit}, or --micro-batch-size"
            )
    if batch_size % micro_batch_size:
        raise ConfigError(
            f"--micro-batch-size {micro_batch_size}: expected a divisor of the batch size {batch_size}"
        )
    return BatchPlan(batch_size, micro_batch_size, tuple(weights), equal_passes)


def _choose_size(batch_size: int, weights: Sequence[float], device_type: str, most: int) -> int:
    """The largest divisor with which few ranks idle, else the one with which the fewest do; 0 for none.

    Where the ranks' shares are below LEAST_MICRO_BATCH, the number of ranks implies that: then
    it is the largest divisor, if that is at least half of a share.
    """
    share = batch_size // len(weights)
    least = LEAST_MICRO_BATCH[device_type]
    is_below = share < least
    least = max(1, share // 2) if is_below else least
    sizes = [size for size in reversed(micro_batch_sizes(batch_size)) if least <= size <= min(share, most)]
    if is_below:
        return sizes[0] if sizes else 0
    idle = {size: BatchPlan(batch_size, size, tuple(weights)).idle_share for size in sizes}
    busy = [size for size in sizes if idle[size] <= IDLE_SHARE]
    return busy[0] if busy else min(sizes, key=lambda size: idle[size], default=0)


def idle_notice(plan: BatchPlan, micro_batch_size: int = 0, *, batch_is_fixed: bool = False) -> str:
    """A notice where ranks wait for others, "" where they hardly do.

    micro_batch_size: as configured, 0 where it is chosen. batch_is_fixed: of a run that continues.
    """
    if plan.idle_share <= IDLE_SHARE:
        return ""
    text = f"{100 * plan.idle_share:.0f} % of the ranks' time is idle: {plan}"
    if batch_is_fixed:
        each = map(plan.with_micro_batch_size, micro_batch_sizes(plan.batch_size))
        busy = [other.micro_batch_size for other in each if other.idle_share <= IDLE_SHARE]
        advice = f"; --micro-batch-size {busy[-1]} keeps all busy and changes the arithmetic" if busy else ""
        return text + advice
    if len({*plan.weights}) > 1:
        return text
    share = max(micro_batch_size, 1) * plan.world_size  # ranks that are alike are busy with equal shares
    below = plan.batch_size // share * share
    sizes = " or ".join(str(size) for size in (below, below + share) if size)
    return f"{text}; --batch-size {sizes} keeps all busy"


def micro_batch_sizes(batch_size: int) -> list[int]:
    """Sizes a global batch can be cut into, ascending."""
    small = [size for size in range(1, isqrt(batch_size) + 1) if batch_size % size == 0]
    return sorted({*small, *(batch_size // size for size in small)})


def share_out(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """`count` micro-batches in proportion to `weights`, by largest remainder, ties to the lower rank."""
    quotas = [count * weight / sum(weights) for weight in weights]
    shares = [floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda rank: (shares[rank] - quotas[rank], rank))
    for rank in by_remainder[: count - sum(shares)]:
        shares[rank] += 1
    return tuple(shares)


BATCH, MICRO, PASSES = "batch_size", "micro_batch_size", "gradient_accumulation_steps"
# In ds_config.json; a flag is called after the setting.
JSON_NAMES = {BATCH: "train_batch_size", MICRO: "train_micro_batch_size_per_gpu", PASSES: PASSES}


@dataclass(frozen=True)
class BatchSizes:
    """The batch and micro-batch of a job, or of the checkpoint that it continues from."""

    batch_size: int
    micro_batch_size: int


def fix_batch(
    config: Config, num_ranks: int, saved: BatchSizes | None = None
) -> tuple[BatchSizes, tuple[str, ...]]:
    """The batch and micro-batch of this job, and lines to print.

    saved: what a run that continues keeps; accumulation gives way then. Raises ConfigError where numbers
    contradict each other.
    """
    numbers = _Numbers(config, num_ranks)
    return _continuing(numbers, saved) if saved else _beginning(numbers)


def implied_ranks(config: Config) -> int:
    """The number of ranks that three given numbers leave possible; 0 where they are not all given."""
    given = _Numbers(config, 1).given()
    return _ranks_of(given) if len(given) == len(JSON_NAMES) else 0


def _ranks_of(given: Mapping[str, int]) -> int:
    """The number of ranks with which all three numbers hold; 0 for none."""
    ranks, rest = divmod(given[BATCH], given[MICRO] * given[PASSES])
    return 0 if rest else ranks


def batch_over(config: Config, most_ranks: int) -> int:
    """The batch over so many ranks, as far as it follows from the other two numbers."""
    numbers = _Numbers(config, most_ranks)
    given = numbers.given()
    if BATCH in given or MICRO not in given or PASSES not in given:
        return numbers.batch_size()
    return given[MICRO] * given[PASSES] * most_ranks


@dataclass(frozen=True)
class _Numbers:
    """The numbers of the settings, and their names in messages."""

    config: Config
    num_ranks: int

    def given(self) -> dict[str, int]:
        """Those that were given: by a flag, ds_config.json or a TOML file of the user's."""
        config, training = self.config, self.config.training
        named = config.set_by_flag | config.set_by_file | config.set_by_json
        numbers = {BATCH: training.batch_size, MICRO: training.micro_batch_size}
        numbers[PASSES] = training.gradient_accumulation_steps
        given = {name: value for name, value in numbers.items() if value > 0 and name in named}
        if MICRO in self.config.set_by_json and not given.keys() & {BATCH, PASSES}:
            given[PASSES] = 1  # as DeepSpeed takes it
        return given

    def batch_size(self) -> int:
        """The batch; less than a preset's where few ranks train on given games."""
        batch = self.config.training.batch_size
        if BATCH in self.given() or self.config.self_play.mode != "supervised":
            return batch
        return min(batch, max(LEAST_BATCH, LEAST_SHARE * self.num_ranks))

    def is_json(self, name: str) -> bool:
        return name in self.config.set_by_json

    def called(self, name: str) -> str:
        """Its name as written; an accumulation that was not written has DeepSpeed's name."""
        if self.is_json(name) or name not in self.config.set_by_flag | self.config.set_by_file:
            return JSON_NAMES[name]
        return f"--{name.replace('_', '-')}"

    def written(self, name: str, value: int) -> str:
        """A number as written."""
        called = self.called(name)
        return f"{called} {value}" if called.startswith("--") else f"{called} = {value}"

    def origin(self, *names: str) -> str:
        """The file and line of the first of these numbers that ds_config.json gave."""
        values = {value.name: value for value in self.config.deepspeed.values}
        return next((f"{values[name].location}: " for name in names if self.is_json(name)), "")


def _beginning(numbers: _Numbers) -> tuple[BatchSizes, tuple[str, ...]]:
    given, training = numbers.given(), numbers.config.training
    lines: tuple[str, ...] = ()
    if len(given) == len(JSON_NAMES) and _ranks_of(given) != numbers.num_ranks:
        if numbers.is_json(BATCH) and numbers.is_json(MICRO):  # all come from one source
            raise _contradiction(numbers, given)
        lines = (
            f"{numbers.written(PASSES, given.pop(PASSES))} gives way to "
            f"{' and '.join(f'{numbers.called(name)} {value}' for name, value in given.items())} over "
            f"{counted(numbers.num_ranks, 'rank')}",
        )
    batch, micro, passes = (given.get(name, 0) for name in (BATCH, MICRO, PASSES))
    if micro and passes and not batch:
        return BatchSizes(micro * passes * numbers.num_ranks, micro), lines
    if numbers.is_json(BATCH) and 0 < batch < numbers.num_ranks:
        raise ConfigError(
            f"{numbers.origin(BATCH)}{numbers.written(BATCH, batch)}: expected at least "
            f"{numbers.num_ranks}, one position for each rank"
        )
    batch = batch or numbers.batch_size()
    if passes and not micro:
        micro = _share(numbers, batch, passes)
    elif micro and batch % micro:
        raise ConfigError(
            f"{numbers.origin(MICRO, BATCH)}{numbers.written(MICRO, micro)}: expected a divisor of "
            f"{numbers.written(BATCH, batch)}"
        )
    return BatchSizes(batch, micro or training.micro_batch_size), lines


def _contradiction(numbers: _Numbers, given: Mapping[str, int]) -> ConfigError:
    product = " x ".join((numbers.called(MICRO), numbers.called(PASSES), "ranks"))
    sizes = (given[MICRO], given[PASSES], numbers.num_ranks)
    ranks = _ranks_of(given)
    fitting = f", or {counted(ranks, 'rank')} (--gpus {ranks})" if ranks else ""
    return ConfigError(
        f"{numbers.origin(BATCH)}{numbers.written(BATCH, given[BATCH])}: expected {product} = "
        f"{' x '.join(map(str, sizes))} = {sizes[0] * sizes[1] * sizes[2]}{fitting}"
    )


def _share(numbers: _Numbers, batch: int, passes: int) -> int:
    """The micro-batch of so many passes per rank."""
    micro, rest = divmod(batch, passes * numbers.num_ranks)
    if rest or not micro:
        raise ConfigError(
            f"{numbers.origin(PASSES, BATCH)}{numbers.written(PASSES, passes)}: expected "
            f"{numbers.written(BATCH, batch)} to be a multiple of {passes * numbers.num_ranks}, "
            f"that is of it over {counted(numbers.num_ranks, 'rank')}"
        )
    return micro


def _continuing(numbers: _Numbers, saved: BatchSizes) -> tuple[BatchSizes, tuple[str, ...]]:
    """Batch and micro-batch stand, unless a flag or a file of the user's changes them."""
    config, given = numbers.config, numbers.given()
    training = config.training
    stands = PASSES in given or MICRO in config.set_by_json
    batch = saved.batch_size if stands and BATCH not in given else training.batch_size
    is_named = MICRO in config.set_by_flag | config.set_by_file
    micro = saved.micro_batch_size if stands and not is_named else training.micro_batch_size
    passes = given.get(PASSES, 0)
    now = batch / (micro * numbers.num_ranks) if micro > 0 else passes
    lines: tuple[str, ...] = ()
    if passes and passes != now:
        lines = (
            f"{numbers.written(PASSES, passes)} gives way: batch {batch} and micro-batch {micro} stand, "
            f"over {counted(numbers.num_ranks, 'rank')} that is {now:g} per rank",
        )
    return BatchSizes(batch, micro), lines
