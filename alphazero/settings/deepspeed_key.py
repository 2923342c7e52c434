"""What a key of a ds_config.json may hold, and what becomes of it here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from alphazero.settings.sections import ONE_CYCLE, WARMUP_COSINE_LR, WARMUP_DECAY_LR, WARMUP_LR

# Beyond it Python's whole numbers are none of C's and none of its floats; DeepSpeed's own "no limit".
LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Check:
    """`accepts` a value; `wanted` describes what it accepts."""

    wanted: str
    accepts: Callable[[Any], bool]


def whole(minimum: int, maximum: int | None = None) -> Check:
    """A whole number; 5e8 is one, as DeepSpeed's documentation writes them."""

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            return False
        return minimum <= value <= (LARGEST if maximum is None else maximum)

    bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    return Check(f"expected a whole number {bounds}", accepts)


def number(minimum: float, maximum: float | None = None, *, above: bool = False) -> Check:
    """A number of at least `minimum`, or above it."""

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        most = LARGEST if maximum is None else maximum
        return value <= most and (value > minimum if above else value >= minimum)

    bounds = f"{'above' if above else 'of at least'} {minimum:g}"
    if maximum is not None:
        bounds = f"{'above' if above else 'from'} {minimum:g} {'up ' if above else ''}to {maximum:g}"
    return Check(f"expected a number {bounds}", accepts)


def only(value: bool | int | str, reason: str) -> Check:
    """One value, which is what happens here anyway."""
    shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

    def accepts(got: object) -> bool:
        return got == value and isinstance(got, bool) == isinstance(value, bool)

    return Check(f"expected {shown} or absent: {reason}", accepts)


def word(*words: str) -> Check:
    """One of some texts."""
    return Check(
        f"expected one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words
    )


def pair(one: Check) -> Check:
    """A list of two values that `one` accepts."""

    def accepts(value: object) -> bool:
        return isinstance(value, list) and len(value) == 2 and all(map(one.accepts, value))

    return Check(f"expected a list of two of these: {one.wanted.removeprefix('expected ')}", accepts)


TRUTH = Check("expected true or false", lambda value: isinstance(value, bool))
TEXT = Check("expected a text", lambda value: isinstance(value, str))


def is_off(value: object) -> bool:
    """True where a value asks for nothing: false, {}, {"device": "none"}, and blocks that are not enabled.

    A block of blocks (compression_training) is off where none of those within is on.
    """
    if not isinstance(value, dict):
        return value is False or value is None
    if not value or value.get("enabled") is False or value.get("device") == "none":
        return True
    switches = list(_switches(value))
    return bool(switches) and not any(switches)


def _switches(block: dict[str, Any]) -> Iterator[bool]:
    """Every "enabled" in a block and the blocks within, whether it is on."""
    blocks = [block]
    while blocks:  # no recursion: a file may be nested as deeply as Python's reader allows
        current = blocks.pop()
        if "enabled" in current:
            yield current["enabled"] is not False
        blocks += [value for value in current.values() if isinstance(value, dict)]


ALL_STAGES = (0, 1, 2, 3)


class Meaning(Enum):
    """What becomes of a key."""

    HONOURED = "honoured"  # it sets settings of ours
    PASSED_ON = "passed on"  # DeepSpeed gets it
    IGNORED = "ignored"  # nothing, and a line reports it: the results are the same
    REFUSED = "refused"  # an error: without it the results would silently differ


def _first(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any value of JSON
    return (value,)


@dataclass(frozen=True)
class Key:
    """One key.

    path: its names from the top, with dots. why: what it does here, or why it is ignored or refused.
    check: what it may hold; of a refused or ignored key, what happens here anyway.
    sets: settings as "section.field", and values: from what it holds to theirs. variants: of its block
    (optimizer.type, scheduler.type), for which it means something; all where there are none. default: what
    DeepSpeed takes where the block exists without the key (None: the setting stays as it is).
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


def passed_on(
    check: Check, names: str, block: str = "", stages: tuple[int, ...] = ALL_STAGES
) -> tuple[Key, ...]:
    """Keys of a block that DeepSpeed gets as they are."""
    return tuple(Key(path, Meaning.PASSED_ON, "", check, stages=stages) for path in _paths(names, block))


def ignored(why: str, names: str, block: str = "", check: Check | None = None) -> tuple[Key, ...]:
    """Keys that change nothing, for one reason; no message where they are off, or pass `check`."""
    return tuple(Key(path, Meaning.IGNORED, why, check) for path in _paths(names, block))


def refused(why: str, names: str, block: str = "", check: Check | None = None) -> tuple[Key, ...]:
    """Keys that would change the results, for one reason; accepted where they are off, or pass `check`."""
    return tuple(Key(path, Meaning.REFUSED, why, check) for path in _paths(names, block))


def _paths(names: str, block: str) -> list[str]:
    return [f"{block}.{name}" if block else name for name in names.split()]


# Types of optimizer and scheduler, and other values that have another name here.
ADAMS = ("Adam", "AdamW")
MUON = ("Muon",)
SGD = ("SGD",)
CYCLE = ("OneCycle",)
WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
SCHEDULERS = {
    "WarmupLR": WARMUP_LR,
    "WarmupDecayLR": WARMUP_DECAY_LR,
    "WarmupCosineLR": WARMUP_COSINE_LR,
    "OneCycle": ONE_CYCLE,
}
# DeepSpeed takes optimizers' names in any case; ours, by the lower one. Adam is AdamW there unless
# adam_w_mode is false.
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "muon": "Muon"}
LARGEST_POWER = 24  # of the largest loss scale (engine/optimizer.py)
AUTOCAST_DTYPES = {
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "torch.float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
}
