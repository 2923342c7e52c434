"""Batch, micro-batch and accumulation: who gave them, whether they agree, and what follows from two of them.

As DeepSpeed has it: batch = micro-batch x accumulation x ranks. A flag beats ds_config.json, which beats
presets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from alphazero.config import Config
from alphazero.errors import ConfigError
from alphazero.text import counted

BATCH, MICRO, PASSES = "batch_size", "micro_batch_size", "gradient_accumulation_steps"
# In ds_config.json; a flag is called after the setting.
JSON_NAMES = {BATCH: "train_batch_size", MICRO: "train_micro_batch_size_per_gpu", PASSES: PASSES}
# Of numbers from ds_config.json that a flag contradicts, the first of these gives way.
YIELDING = (PASSES, MICRO, BATCH)


@dataclass(frozen=True)
class SavedBatch:
    """The batch and micro-batch of the checkpoint that a run goes on from."""

    batch_size: int
    micro_batch_size: int


def fix_batch(
    config: Config, num_ranks: int, saved: SavedBatch | None = None, places: Mapping[str, str] | None = None
) -> tuple[Config, tuple[str, ...]]:
    """`config` with the batch and micro-batch of this job, and lines for people.

    saved: what a run that goes on keeps; accumulation gives way then. places: by setting, the file and line
    of ds_config.json it comes from. Raises ConfigError where numbers contradict each other.
    """
    numbers = _Numbers(config, num_ranks, places or {})
    return _going_on(numbers, saved) if saved else _beginning(numbers)


def implied_ranks(config: Config) -> int:
    """The number of ranks that three given numbers leave possible; 0 where they are not all given."""
    given = _Numbers(config, 1, {}).given()
    if len(given) < len(YIELDING):
        return 0
    ranks, rest = divmod(given[BATCH], given[MICRO] * given[PASSES])
    return 0 if rest else ranks


def batch_over(config: Config, most_ranks: int) -> int:
    """The batch over so many ranks, as far as it follows from the other two numbers."""
    given = _Numbers(config, most_ranks, {}).given()
    if BATCH in given or MICRO not in given or PASSES not in given:
        return config.training.batch_size
    return given[MICRO] * given[PASSES] * most_ranks


@dataclass(frozen=True)
class _Numbers:
    """The numbers of the settings, and how people know them."""

    config: Config
    num_ranks: int
    places: Mapping[str, str]

    def given(self) -> dict[str, int]:
        """Those that somebody gave: a flag, ds_config.json or a TOML file of the user's."""
        config, training = self.config, self.config.training
        named = config.set_by_flag | config.set_by_file | config.set_by_json
        numbers = {BATCH: training.batch_size, MICRO: training.micro_batch_size}
        numbers[PASSES] = training.gradient_accumulation_steps
        given = {name: value for name, value in numbers.items() if value > 0 and name in named}
        if MICRO in self.config.set_by_json and not given.keys() & {BATCH, PASSES}:
            given[PASSES] = 1  # as DeepSpeed takes it
        return given

    def is_json(self, name: str) -> bool:
        return name in self.config.set_by_json

    def called(self, name: str) -> str:
        """What people wrote; an accumulation that nobody did is DeepSpeed's own."""
        if self.is_json(name) or name not in self.config.set_by_flag | self.config.set_by_file:
            return JSON_NAMES[name]
        return f"--{name.replace('_', '-')}"

    def said(self, name: str, value: int) -> str:
        """A number as people wrote it."""
        called = self.called(name)
        return f"{called} {value}" if called.startswith("--") else f"{called} = {value}"

    def place(self, *names: str) -> str:
        """The file and line of the first of these numbers that ds_config.json gave."""
        found = next((self.places[name] for name in names if self.is_json(name) and name in self.places), "")
        return f"{found}: " if found else ""

    def with_numbers(self, batch_size: int, micro_batch_size: int) -> Config:
        training = replace(self.config.training, batch_size=batch_size, micro_batch_size=micro_batch_size)
        return replace(self.config, training=training)


def _beginning(numbers: _Numbers) -> tuple[Config, tuple[str, ...]]:
    given, training = numbers.given(), numbers.config.training
    lines: tuple[str, ...] = ()
    if len(given) == len(YIELDING) and not _agree(given, numbers.num_ranks):
        yielding = _yielding(numbers, given)
        lines = (
            f"{numbers.said(yielding, given.pop(yielding))} gives way to "
            f"{' and '.join(f'{numbers.called(name)} {value}' for name, value in given.items())} over "
            f"{counted(numbers.num_ranks, 'rank')}",
        )
    batch, micro, passes = (given.get(name, 0) for name in (BATCH, MICRO, PASSES))
    if micro and passes and not batch:
        return numbers.with_numbers(micro * passes * numbers.num_ranks, micro), lines
    if numbers.is_json(BATCH) and 0 < batch < numbers.num_ranks:
        raise ConfigError(
            f"{numbers.place(BATCH)}{numbers.said(BATCH, batch)}: expected at least "
            f"{numbers.num_ranks}, one position for each rank"
        )
    batch = batch or training.batch_size
    if passes and not micro:
        micro = _share(numbers, batch, passes)
    elif micro and batch % micro:
        raise ConfigError(
            f"{numbers.place(MICRO, BATCH)}{numbers.said(MICRO, micro)}: expected a divisor of "
            f"{numbers.said(BATCH, batch)}"
        )
    return numbers.with_numbers(batch, micro or training.micro_batch_size), lines


def _yielding(numbers: _Numbers, given: Mapping[str, int]) -> str:
    """The number that a flag's beat. Raises ConfigError where all come from one hand."""
    from_json = [name for name in YIELDING if numbers.is_json(name)]
    if from_json and len(from_json) < len(given):
        return from_json[0]
    product = " x ".join((numbers.called(MICRO), numbers.called(PASSES), "ranks"))
    sizes = (given[MICRO], given[PASSES], numbers.num_ranks)
    raise ConfigError(
        f"{numbers.place(BATCH)}{numbers.said(BATCH, given[BATCH])}: expected {product} = "
        f"{' x '.join(map(str, sizes))} = {sizes[0] * sizes[1] * sizes[2]}{_fitting(given)}"
    )


def _fitting(given: Mapping[str, int]) -> str:
    ranks, rest = divmod(given[BATCH], given[MICRO] * given[PASSES])
    return f", or {counted(ranks, 'rank')} (--gpus {ranks})" if ranks and not rest else ""


def _share(numbers: _Numbers, batch: int, passes: int) -> int:
    """The micro-batch of so many passes per rank."""
    micro, rest = divmod(batch, passes * numbers.num_ranks)
    if rest or not micro:
        raise ConfigError(
            f"{numbers.place(PASSES, BATCH)}{numbers.said(PASSES, passes)}: expected "
            f"{numbers.said(BATCH, batch)} to be a multiple of {passes * numbers.num_ranks}, "
            f"that is of it over {counted(numbers.num_ranks, 'rank')}"
        )
    return micro


def _going_on(numbers: _Numbers, saved: SavedBatch) -> tuple[Config, tuple[str, ...]]:
    """Batch and micro-batch stand, unless a flag or a file of the user's says otherwise of them."""
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
            f"{numbers.said(PASSES, passes)} gives way: batch {batch} and micro-batch {micro} stand, "
            f"over {counted(numbers.num_ranks, 'rank')} that is {now:g} per rank",
        )
    return numbers.with_numbers(batch, micro), lines


def _agree(given: Mapping[str, int], num_ranks: int) -> bool:
    return given[BATCH] == given[MICRO] * given[PASSES] * num_ranks
