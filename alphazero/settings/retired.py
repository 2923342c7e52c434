"""Constants that runs may name as settings, and how such flags, TOML keys and checkpoints are answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alphazero.base.section import flag_of
from alphazero.settings.sections import OptimizerConfig, RunConfig, TrainingConfig


@dataclass(frozen=True)
class Retired:
    """A constant that older runs name as a setting; reason: why it has this value."""

    section: str
    value: bool | float
    reason: str


RETIRED: Mapping[str, Retired] = {
    "c_base": Retired("search", 19652.0, "the value of AlphaZero's pseudocode"),
    "root_fpu_reduction": Retired("search", 0.0, "the noise at the root needs no discount"),
    "considered_moves": Retired("search", 16, "the value of the Gumbel AlphaZero paper"),
    "c_visit": Retired("search", 50.0, "the value of the Gumbel AlphaZero paper"),
    "c_scale": Retired("search", 1.0, "the value of the Gumbel AlphaZero paper"),
    "final_temperature": Retired("self_play", 0.0, "the best move is played after temperature_plies"),
    "window_alpha": Retired("self_play", 0.75, "the value of KataGo's window"),
    "window_beta": Retired("self_play", 0.4, "the value of KataGo's window"),
    "gate_opening_plies": Retired("self_play", 4, "enough for games that differ"),
    "policy_weight": Retired("loss", 1.0, "value_weight sets the ratio of the two losses"),
    "moves_left_weight": Retired("loss", 0.01, "a small share beside policy and value"),
    "mask_illegal": Retired("loss", True, "illegal moves are never played"),
    "lr_decay": Retired("optimizer", 0.1, "AlphaZero's factor at each milestone"),
    "symmetries": Retired("data", True, "the games that have symmetries gain data from them"),
}
# Sections with fields that ds_config.json alone sets.
_OF_DEEPSPEED = (OptimizerConfig, TrainingConfig, RunConfig)


def answer(name: str) -> str:
    """Why the field `name` has no flag and no TOML key; "" for a name that never had one."""
    if name in RETIRED:
        retired = RETIRED[name]
        value = str(retired.value).lower() if isinstance(retired.value, bool) else f"{retired.value:g}"
        return f"not a setting; fixed at {value}: {retired.reason}"
    for section in _OF_DEEPSPEED:
        for entry in dataclasses.fields(section):
            if entry.name == name and (key := entry.metadata["deepspeed_key"]):
                return f"no setting of its own; expected {key} in a ds_config.json (--deepspeed-config)"
    return ""


def answer_to_flag(flag: str) -> str:
    """The same for a flag, --no-FLAG included."""
    name = flag.partition("=")[0].removeprefix("--").replace("-", "_")
    found = answer(name) or answer(name.removeprefix("no_"))
    return f"{flag_of(name)}: {found}" if found else ""


def other_values(saved: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """Name, value and constant of each retired setting for which a checkpoint has another value."""
    found: list[tuple[str, object, object]] = []
    for name, retired in RETIRED.items():
        section = saved.get(retired.section)
        before = section.get(name, retired.value) if isinstance(section, Mapping) else retired.value
        if before != retired.value:
            found.append((name, before, retired.value))
    return found
