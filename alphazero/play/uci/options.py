"""The options of the engine: one table for `uci` and `setoption`; docs/play.md shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import psutil

import alphazero._core as _core
from alphazero.base.errors import ConfigError
from alphazero.base.text import one_of, quoted
from alphazero.machine.memory import read_memory

LIMITS_STRENGTH, ELO = "UCI_LimitStrength", "UCI_Elo"  # offered where levels were measured (levels.py)
EMPTY = "<empty>"  # how UCI writes an empty string
MEMORY = ("Hash", "MemoryLimit")  # options in MB

Kind = Literal["check", "spin", "string", "number", "button"]


@dataclass(frozen=True)
class Option:
    """One option. A `number` is a fraction, which UCI has no type for: it is offered as a string.

    aliases: other names that programs use for it. sets: the field of TreeSettings that it is.
    """

    name: str
    kind: Kind
    default: str = ""
    low: float = 0
    high: float = 0
    aliases: tuple[str, ...] = ()
    sets: str = ""

    @property
    def line(self) -> str:
        """The line that answers `uci`."""
        if self.kind == "button":
            return f"option name {self.name} type button"
        kind = "string" if self.kind == "number" else self.kind
        line = f"option name {self.name} type {kind} default {self.default or EMPTY}"
        return f"{line} min {self.low:.0f} max {self.high:.0f}" if self.kind == "spin" else line

    def checked(self, value: str) -> str:
        """The normalised value. Raises ConfigError for an invalid one."""
        value = value.strip()
        if self.kind == "check":
            if value.lower() not in ("true", "false"):
                raise ConfigError(f"option {self.name}: {quoted(value)}: expected true or false")
            return value.lower()
        if self.kind == "string":
            return "" if value == EMPTY else value
        if self.kind == "button":
            return ""
        number = math.nan
        with suppress(ValueError):
            if value.isascii() and "_" not in value:  # Python takes 1_0 and digits of any script
                number = int(value) if self.kind == "spin" else float(value)
        if not self.low <= number <= self.high:
            what = "a whole number" if self.kind == "spin" else "a number"
            raise ConfigError(
                f"option {self.name}: {quoted(value)}: expected {what} from {self.low:g} to {self.high:.15g}"
            )
        return f"{number:.15g}"


# docs/play.md says what each does.
TABLE = (
    Option("WeightsFile", "string", aliases=("Weights",)),
    Option("Threads", "spin", "0", 0, 1024),
    Option("Hash", "spin", "64", 1, 1048576, sets="cache_mb"),
    Option("Clear Hash", "button"),
    Option("MemoryLimit", "spin", "1024", 1, 1048576, sets="tree_mb"),
    Option("MultiPV", "spin", "1", 1, 218),
    Option("Ponder", "check", "false"),
    Option("Move Overhead", "spin", "30", 0, 10000, ("MoveOverhead", "MoveOverheadMs")),
    Option("MinibatchSize", "spin", "0", 0, 4096),
    Option("BatchesInFlight", "spin", "2", 1, 4, sets="in_flight"),
    Option("SearchThreads", "spin", "1", 1, 64, sets="search_threads"),
    Option("NodeLimit", "spin", "0", 0, 1_000_000_000),
    Option("SmartPruning", "check", "true"),
    Option("VerboseMoveStats", "check", "false"),
    Option("Temperature", "number", "0", 0, 100),
    Option("TempDecayMoves", "spin", "0", 0, 640),
    Option("TempCutoffMove", "spin", "0", 0, 1000),
    Option("TempValueCutoff", "number", "100", 0, 100),
    Option("UCI_ShowWDL", "check", "false"),
    Option("UCI_Chess960", "check", "false"),
    Option("UCI_AnalyseMode", "check", "false"),
    Option("UCI_Opponent", "string"),
    Option(LIMITS_STRENGTH, "check", "false"),
    Option(ELO, "spin", "5000", -1000, 5000),
    Option("CPuct", "number", "1.745", 0, 100, sets="c_puct"),
    Option("CPuctBase", "number", "38739", 1, 1e9, sets="c_puct_base"),
    Option("CPuctFactor", "number", "3.894", 0, 1000, sets="c_puct_factor"),
    Option("FpuReduction", "number", "0.33", -100, 100, sets="fpu_reduction"),
    Option("PolicyTemperature", "number", "1.359", 0.1, 10, sets="policy_temperature"),
    Option("SyzygyPath", "string"),
    Option("Syzygy50MoveRule", "check", "true"),
    Option("SyzygyFastPlay", "check", "false"),
    Option("TwoFoldDraws", "check", "true", sets="two_fold_draws"),
)


def find_option(name: str) -> Option:
    """The option of that name, in any case. Raises ConfigError for an unknown one."""
    wanted = " ".join(name.split()).lower()
    for option in TABLE:
        if wanted in (known.lower() for known in (option.name, *option.aliases)):
            return option
    raise ConfigError(f"option {quoted(name)}: {one_of(name, [option.name for option in TABLE])}")


class Options:
    """The values of all options. remarks: lines about given ones that have other values."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._values = {option.name: option.default for option in TABLE}
        fitted = [self.fit(self.set(name, value)) for name, value in (given or {}).items()]
        self.remarks = [remark for remark in fitted if remark]

    def set(self, name: str, value: str) -> Option:
        """Set an option and return it. Raises ConfigError for an unknown one or an invalid value."""
        option = find_option(name)
        self._values[option.name] = option.checked(value)
        return option

    def fit(self, option: Option) -> str:
        """Lower an option in MB to what this process can have; a line about it, "" where it is unchanged."""
        if option.name not in MEMORY:
            return ""
        asked, memory = self[option.name], read_memory()
        # For one of the two: half of what this process has and can get.
        own = int(psutil.Process().memory_info().rss)
        used = min(asked, max(1, (memory.available_bytes + own) // 2 >> 20))
        while used > 1 and not _can_allocate(used):
            used //= 2
        self._values[option.name] = str(used)
        return f"option {option.name}: {asked} MB are not free; {used} MB used" if used < asked else ""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - what the kind of the option is
        """The value: a bool of a check, an int of a spin, a float of a number, else a text."""
        kind, value = find_option(name).kind, self._values[name]
        if kind == "check":
            return value == "true"
        return int(value) if kind == "spin" else float(value) if kind == "number" else value


def _can_allocate(megabytes: int) -> bool:
    try:
        _core.EvaluationCache(megabytes << 20)
    except MemoryError:
        return False
    return True
