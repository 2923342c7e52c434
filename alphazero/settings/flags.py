"""The parser of the command line: one-line errors, number types, constants that runs may name as settings."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from alphazero.base.errors import ConfigError
from alphazero.base.section import MOST, MOST_SEED, HiddenHelp, flag_of, range_text
from alphazero.base.text import near_match, one_of, quoted
from alphazero.settings.sections import NetworkConfig, OptimizerConfig, RunConfig, TrainingConfig


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line and whose flags are never guessed from a prefix."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._arguments: list[str] = []
        self.hidden = HiddenHelp()

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage: one line for one mistake.

        A flag that is mistyped comes first: what is missing may be what was meant by it.
        """
        known = {*self.flags(), "--"}
        words = self._arguments[: [*self._arguments, "--"].index("--")]
        flags = [word for word in words if re.match(r"--[a-z]", word)]
        mistyped = [word for word in flags if word.partition("=")[0] not in known]
        if mistyped and message.startswith("the following arguments are required"):
            raise self.unknown_error(mistyped)
        raise ConfigError(in_our_words(message))

    def parse_known_args(  # type: ignore[override]  # narrower than argparse's overloads
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse, with --any_flag for --any-flag."""
        assert args is not None, "arguments are passed, not read from sys.argv"
        self._arguments = self.with_dashes(args)
        if self._arguments[:2] in (["--help", "all"], ["-h", "all"]):
            self.hidden.reveal()
            self.epilog = None
        return super().parse_known_args(self._arguments, namespace)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """As argparse; an unknown flag is named with the known one that is nearest."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            raise self.unknown_error(unknown)
        return parsed

    def shorten_help(self) -> None:
        """Let --help list the common flags, and --help all the others too."""
        self._option_string_actions["--help"].help = "list the flags that most runs need"
        self.epilog = f"{self.prog} --help all lists every flag."

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """As argparse, but for an error where nothing reads the output."""
        print(self.format_help(), end="", file=file)

    def with_dashes(self, arguments: Sequence[str]) -> list[str]:
        """`arguments` with a dash for each underscore in the flags this parser knows so."""
        return [self._with_dashes(argument) for argument in arguments]

    def _with_dashes(self, argument: str) -> str:
        flag, equals, value = argument.partition("=")
        dashed = flag.replace("_", "-")
        known = self._option_string_actions
        return dashed + equals + value if flag not in known and dashed in known else argument

    def unknown_error(self, unknown: Sequence[str], others: Sequence[str] = ()) -> ConfigError:
        """The error for arguments that mean nothing; `others`: flags that are known elsewhere."""
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        if not flag:
            said = f"unexpected argument {quoted(unknown[0])}"
            return ConfigError(f"{said}; {self.prog} --help shows the usage")
        if line := answer_to_flag(flag):
            return ConfigError(line)
        nearest, line = OTHER_PROGRAMS.get(flag.removeprefix("--").replace("-", "_"), ("", ""))
        if nearest in {*self.flags(), *others}:
            return ConfigError(f"{flag}: no flag of this program; {line}")
        near = near_match(flag.replace("_", "-"), [*self.flags(), *others])
        hint = f"; did you mean {near}?" if near else f"; {self.prog} --help lists all flags"
        return ConfigError(f"unknown flag {flag if len(flag) < 80 else quoted(flag)}{hint}")

    def flags(self) -> Iterator[str]:
        """The long flags of this parser and of its actions."""
        yield from (flag for flag in self._option_string_actions if flag.startswith("--"))
        for parser in self.parts():
            yield from parser.flags()

    def parts(self) -> Iterator[Parser]:
        """The parsers of its actions."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()


def in_our_words(message: str) -> str:
    """argparse's message as ours are: the flag, the value got and the value expected."""
    message = re.sub(r"^argument (--[^ /:]+)[^ :]*", r"\1", message)
    message = re.sub(r"^argument ", "", message)
    found = re.fullmatch(r"(.+?): invalid choice: (.+) \(choose from (.*)\)", message, re.DOTALL)
    if found:
        place, value, choices = found[1], found[2], found[3].replace("'", "").split(", ")
        shown = quoted(value.strip("'\"")) if value[:1] in "'\"" else value
        return f"{place}: {shown}: {one_of(value.strip(chr(39)), choices)}"
    return message


# Bounds of flags, far above every sensible value.
MOST_COUNT = 10**9
MOST_THREADS = 1024
MOST_BATCH = 2**24
MOST_SECONDS = 1e8


def whole(low: int = 0, high: int = MOST) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # no number, or one of more digits than Python reads
            number = low - 1
        if not low <= number <= high:
            raise _error(text, f"a whole number{range_text(low, high)}")
        return number

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise _error(text, f"a number{range_text(low, high)}")
        return value

    return parse


def seconds(low: float = 0.0) -> Callable[[str], float]:
    """A duration of at least `low` seconds."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= MOST_SECONDS:
            raise _error(text, f"seconds{range_text(low, MOST_SECONDS)}")
        return value

    return parse


seed = whole(0, MOST_SEED)
count = whole(1, MOST_COUNT)
threads = whole(1, MOST_THREADS)
batch_size = whole(1, MOST_BATCH)


def _error(text: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{quoted(text)}: expected {expected}")


@dataclass(frozen=True)
class Retired:
    """A constant that older runs name as a setting; reason: why it has this value.

    is_exact: what a run computes depends on it.
    """

    section: str
    value: bool | float | str
    reason: str
    is_exact: bool = True


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
    "history_fill": Retired("data", "fen_only", "lc0's training and play have it so"),
    "proofs": Retired("search", True, "a proven result is exact and saves simulations"),
    "channels_last": Retired("training", True, "the memory layout that convolutions are fastest in"),
    "max_rollbacks": Retired("training", 2, "a third return helps no run", is_exact=False),
    "pin_ranks": Retired(
        "training", True, "a launcher that binds its ranks is left to it; taskset does so too", is_exact=False
    ),
}
_RUNS = "a run is --runs-dir DIR with --run-name NAME, its checkpoints among its files"
_RANKS = "this program starts the ranks itself (--gpus N), and takes those of torchrun, DeepSpeed and SLURM"
# Flags of other programs: the one that is nearest here, and what to type.
OTHER_PROGRAMS: Mapping[str, tuple[str, str]] = {
    "resume_from": ("--resume", "expected --resume latest|best-METRIC|STEP|PATH"),
    "resume_from_checkpoint": ("--resume", "expected --resume latest|best-METRIC|STEP|PATH"),
    "load_checkpoint": ("--resume", "expected --resume PATH, or --init-weights W for a new run"),
    "episodes": ("--generations", "expected --generations N, or --steps N"),
    "num_episodes": ("--generations", "expected --generations N, or --steps N"),
    "checkpoint_dir": ("--runs-dir", f"expected --runs-dir: {_RUNS}"),
    "save_dir": ("--runs-dir", f"expected --runs-dir: {_RUNS}"),
    "output_dir": ("--runs-dir", f"expected --runs-dir: {_RUNS}"),
    "log_dir": ("--runs-dir", f"expected --runs-dir: {_RUNS}"),
    "save_interval": ("--checkpoint-interval", "expected --checkpoint-interval STEPS, or minutes as 30m"),
    "save_steps": ("--checkpoint-interval", "expected --checkpoint-interval STEPS, or minutes as 30m"),
    "amp": ("--precision", "expected --precision auto"),
    "fp16": ("--precision", "expected --precision fp16"),
    "bf16": ("--precision", "expected --precision bf16"),
    "distributed": ("--gpus", f"remove it: {_RANKS}"),
    "standalone": ("--gpus", f"remove it: {_RANKS}"),
    "elastic": (
        "--hostfile",
        "torchrun's c10d rendezvous runs what anyone on the network sends; expected --hostfile with "
        "--min-nodes and --max-restarts, which continue without lost hosts and take them back at a restart",
    ),
    "rdzv_backend": ("--master-addr", "expected --master-addr ADDRESS and --master-port PORT"),
    "rdzv_endpoint": ("--master-addr", "expected --master-addr ADDRESS and --master-port PORT"),
}
# What is given in another way, by the name of its flag or key.
_MOVED = {
    "host_weights": "expected weight=N in the lines of hosts, or of the hostfile",
    "smolgen_hidden": "not a separate setting; 8 times --smolgen-channels",
    "smolgen_size": "not a separate setting; 8 times --smolgen-channels",
    "pause_timeout": "not a separate setting; 600 seconds, or hang_timeout where that is more",
    "games_timeout": "not a separate setting; 300 seconds, or hang_timeout where that is more",
    "shutdown_timeout": "not a separate setting; 60 seconds, or hang_timeout where that is more",
    "moves_per_round": "expected simulations_per_round; a run that began with moves keeps them",
}
# Sections with fields that have no flag and no TOML key.
_WITH_HIDDEN = (NetworkConfig, OptimizerConfig, TrainingConfig, RunConfig)


def answer(name: str) -> str:
    """Why the field `name` has no flag and no TOML key; "" for a name that never had one."""
    if name in _MOVED:
        return _MOVED[name]
    if name in RETIRED:
        retired = RETIRED[name]
        return _fixed(retired.value, retired.reason)
    for section in _WITH_HIDDEN:
        for entry in dataclasses.fields(section):
            if entry.name != name:
                continue
            if key := entry.metadata["deepspeed_key"]:
                return f"not a separate setting; expected {key} in a ds_config.json (--deepspeed-config)"
            if reason := entry.metadata["constant"]:
                return _fixed(entry.default, reason)
    return ""


def _fixed(value: object, reason: str) -> str:
    shown = f"{value:g}" if type(value) in (int, float) else str(value).lower()
    return f"not a setting; fixed at {shown}: {reason}"


def answer_to_flag(flag: str) -> str:
    """The same for a flag, --no-FLAG included."""
    name = flag.partition("=")[0].removeprefix("--").replace("-", "_")
    found = answer(name) or answer(name.removeprefix("no_"))
    return f"{flag_of(name)}: {found}" if found else ""


def other_values(saved: Mapping[str, Any]) -> dict[str, object]:
    """By name of a retired setting, the value of a checkpoint that is not the constant."""
    found: dict[str, object] = {}
    for name, retired in RETIRED.items():
        section = saved.get(retired.section)
        before = section.get(name, retired.value) if isinstance(section, Mapping) else retired.value
        if before != retired.value:
            found[name] = before
    return found
