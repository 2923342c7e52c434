"""All keys of a ds_config.json in one table: it drives reading, messages and docs/deepspeed.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alphazero.training.deepspeed_json.key import Key
from alphazero.training.deepspeed_json.optimizer_keys import BATCH_KEYS, OPTIMIZER_KEYS, SCHEDULER_KEYS
from alphazero.training.deepspeed_json.other_keys import IGNORED_KEYS, MONITOR_KEYS, REFUSED_KEYS
from alphazero.training.deepspeed_json.precision_keys import PRECISION_KEYS
from alphazero.training.deepspeed_json.zero_keys import ALIASES, OLD_NAMES, REDUCTION_KEYS, ZERO_KEYS

# In the order in which a later key beats an earlier one that sets the same.
KEYS: tuple[Key, ...] = (
    *BATCH_KEYS,
    *OPTIMIZER_KEYS,
    *SCHEDULER_KEYS,
    *PRECISION_KEYS,
    *ZERO_KEYS,
    *REDUCTION_KEYS,
    *MONITOR_KEYS,
    *IGNORED_KEYS,
    *REFUSED_KEYS,
)


def _by_path(keys: Iterable[Key]) -> Mapping[str, tuple[Key, ...]]:
    found: dict[str, tuple[Key, ...]] = {}
    for key in keys:
        found[key.path] = (*found.get(key.path, ()), key)
    return found


# A path has several keys where it means unlike things in variants of its block.
BY_PATH = _by_path(KEYS)
# Objects that are looked into.
BLOCKS = frozenset(key.block for key in KEYS) - {""}


def key_at(path: str, variant: str) -> Key | None:
    """The key at a path in a block of this variant; None where there is none."""
    return next((key for key in BY_PATH.get(path, ()) if not key.variants or variant in key.variants), None)


def names_in(block: str, variant: str) -> list[str]:
    """The names that an object of this variant may have and that do something."""
    return [key.name for key in KEYS if key.block == block and (not key.variants or variant in key.variants)]


__all__ = ["ALIASES", "BLOCKS", "BY_PATH", "KEYS", "OLD_NAMES", "key_at", "names_in"]
