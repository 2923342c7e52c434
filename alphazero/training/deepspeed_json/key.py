"""A key of a ds_config.json, and what becomes of it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from alphazero.training.deepspeed_json.check import Check

ALL_STAGES = (0, 1, 2, 3)


class Meaning(Enum):
    """What becomes of a key."""

    HONOURED = "honoured"  # it sets settings of ours
    PASSED_ON = "passed on"  # DeepSpeed gets it
    IGNORED = "ignored"  # nothing, and a line says so: the results are the same
    REFUSED = "refused"  # an error: without it the results would be others, and nobody would know


def _first(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any value of JSON
    return (value,)


@dataclass(frozen=True)
class Key:
    """One key.

    path: its names from the top, with dots. why: one sentence for people, of what it does here or why it is
    ignored or refused. check: what it may hold; of a refused or ignored key, what happens here anyway.
    sets: settings as "section.field", and values: from what it holds to theirs. variants: of its block
    (optimizer.type, scheduler.type), for which it means something; all where there are none. default: what
    DeepSpeed takes where the block is there and the key is not (None: the setting stays as it is).
    stages: ZeRO stages at which it means something.
    """

    path: str
    meaning: Meaning
    why: str
    check: Check | None = None
    sets: tuple[str, ...] = ()
    values: Callable[[Any], tuple[Any, ...]] = _first
    variants: tuple[str, ...] = ()
    default: object = None
    is_needed: bool = False
    stages: tuple[int, ...] = ALL_STAGES

    @property
    def name(self) -> str:
        """Its last name."""
        return self.path.rpartition(".")[2]

    @property
    def block(self) -> str:
        """The path of the object it stands in, "" at the top."""
        return self.path.rpartition(".")[0]


def honoured(path: str, check: Check | None, sets: str, why: str, **more: Any) -> Key:  # noqa: ANN401 - fields
    """A key that sets settings; `sets` names them, with spaces between them."""
    return Key(path, Meaning.HONOURED, why, check, tuple(sets.split()), **more)


def passed_on(path: str, check: Check, why: str, stages: tuple[int, ...] = ALL_STAGES) -> Key:
    """A key that DeepSpeed gets as it is."""
    return Key(path, Meaning.PASSED_ON, why, check, stages=stages)


def ignored(why: str, *paths: str, check: Check | None = None) -> tuple[Key, ...]:
    """Keys that change nothing, for one reason; no word of them where they are off, or as `check` says."""
    return tuple(Key(path, Meaning.IGNORED, why, check) for path in paths)


def refused(why: str, *paths: str, check: Check | None = None) -> tuple[Key, ...]:
    """Keys that would change the results, for one reason; accepted where they are off, or as `check` says."""
    return tuple(Key(path, Meaning.REFUSED, why, check) for path in paths)
