"""The options of the engine: one table for `uci` and `setoption`; docs/play.md shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import psutil

import alphazero._core as _core
from alphazero.base.errors import ConfigError
from alphazero.base.text import one_of, quoted
from alphazero.machine.memory import read_memory

EMPTY = "<empty>"  # how UCI writes an empty string
MEMORY = ("Hash", "MemoryLimit")  # options in MB

Kind = Literal["check", "spin", "string", "number", "button"]


@dataclass(frozen=True)
class Option:
    """One option. A `number` is a fraction, which UCI has no type for: it is offered as a string.

    aliases: other names that programs use for it.
    """

    name: str
    kind: Kind
    default: str
    help: str
    low: float = 0
    high: float = 0
    aliases: tuple[str, ...] = ()

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


TABLE = (
    Option("WeightsFile", "string", "", "the network: all that `--weights` takes", aliases=("Weights",)),
    Option("Threads", "spin", "0", "CPU threads of the network (0: all cores)", 0, 1024),
    Option("Hash", "spin", "64", "MB of the evaluation cache", 1, 1048576),
    Option("Clear Hash", "button", "", "clear the tree and the cache"),
    Option("MemoryLimit", "spin", "1024", "MB of the tree; a full tree ends the search", 1, 1048576),
    Option("MultiPV", "spin", "1", "lines of play to report", 1, 218),
    Option("Ponder", "check", "false", "the GUI lets the engine think in the opponent's time"),
    Option(
        "Move Overhead",
        "spin",
        "30",
        "milliseconds reserved per move for the delay to the GUI and back",
        0,
        10000,
        aliases=("MoveOverhead", "MoveOverheadMs"),
    ),
    Option("MinibatchSize", "spin", "0", "largest batch of the network (0: 32, on a GPU 256)", 0, 4096),
    Option("BatchesInFlight", "spin", "2", "2: search while the network computes", 1, 2),
    Option("SmartPruning", "check", "true", "move early if the best move cannot be overtaken in time"),
    Option("VerboseMoveStats", "check", "false", "report visits, values and priors of every move, as lc0"),
    Option("LogFile", "string", "", "a file to which all input and output is added, with times"),
    Option("Temperature", "number", "0", "above 0: draw the move, by visits^(1 / Temperature)", 0, 100),
    Option("TempDecayMoves", "spin", "0", "moves over which Temperature falls to 0 (0: it stays)", 0, 640),
    Option("TempCutoffMove", "spin", "0", "move from which on the best is played (0: none)", 0, 1000),
    Option(
        "TempValueCutoff",
        "number",
        "100",
        "percentage points of winning chance that a drawn move may lack to the most visited one",
        0,
        100,
    ),
    Option("UCI_ShowWDL", "check", "false", "report win, draw and loss in 1/1000"),
    Option("UCI_Chess960", "check", "false", "castling is king takes rook"),
    Option("UCI_AnalyseMode", "check", "false", "accepted, without effect"),
    Option("UCI_Opponent", "string", "", "accepted, without effect"),
    Option("CPuct", "number", "1.745", "exploration constant (docs/search.md)", 0, 100),
    Option("CPuctBase", "number", "38739", "visits over which exploration grows", 1, 1e9),
    Option("CPuctFactor", "number", "3.894", "growth of exploration with visits", 0, 1000),
    Option("FpuReduction", "number", "0.33", "value reduction of unvisited moves", -100, 100),
    Option("PolicyTemperature", "number", "1.359", "divisor of the network's logits", 0.1, 10),
    Option("SyzygyPath", "string", "", "directories of Syzygy tablebases, divided by : (Windows: ;)"),
    Option("SyzygyFastPlay", "check", "false", "of moves that tables call won, the nearest capture or mate"),
    Option("TwoFoldDraws", "check", "true", "count a position that recurs within the tree as a draw"),
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
        asked, memory = self.whole(option.name), read_memory()
        # For one of the two: half of what this process has and can get.
        own = int(psutil.Process().memory_info().rss)
        used = min(asked, max(1, (memory.available_bytes + own) // 2 >> 20))
        while used > 1 and not _can_allocate(used):
            used //= 2
        self._values[option.name] = str(used)
        return f"option {option.name}: {asked} MB are not free; {used} MB used" if used < asked else ""

    def text(self, name: str) -> str:
        """The value of a string."""
        return self._values[name]

    def whole(self, name: str) -> int:
        """The value of a spin."""
        return int(self._values[name])

    def number(self, name: str) -> float:
        """The value of a fraction."""
        return float(self._values[name])

    def is_on(self, name: str) -> bool:
        """The value of a check."""
        return self._values[name] == "true"


def _can_allocate(megabytes: int) -> bool:
    try:
        _core.EvaluationCache(megabytes << 20)
    except MemoryError:
        return False
    return True
