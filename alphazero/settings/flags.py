"""The parser of the command line: one-line errors, types of numbers, flags that other programs have."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NoReturn, TypeVar

from alphazero.base.errors import ConfigError
from alphazero.base.section import MOST, MOST_SEED, HiddenHelp, range_text
from alphazero.base.text import near_match, one_of, quoted
from alphazero.machine.environment import is_installed, shipped
from alphazero.settings.deepspeed_file import SET_FLAG
from alphazero.settings.deepspeed_keys import KEYS
from alphazero.settings.sections import OptimizerConfig, RunConfig, TrainingConfig


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
        """As argparse, but for an error where nothing reads the output; with the place of a wheel's pages."""
        text = self.format_help()
        pages = f"\ndocs/ is {shipped('docs')}\n" if "docs/" in text and is_installed() else ""
        print(text, end=pages, file=file)

    def with_dashes(self, arguments: Sequence[str]) -> list[str]:
        """`arguments` with a dash for each underscore in the flags this parser knows so."""
        known, words = self._option_string_actions, []
        for argument in arguments:
            flag, equals, value = argument.partition("=")
            dashed = flag.replace("_", "-")
            is_ours = flag not in known and dashed in known
            words.append(dashed + equals + value if is_ours else argument)
        return words

    def unknown_error(self, unknown: Sequence[str], others: Sequence[str] = ()) -> ConfigError:
        """The error for arguments that mean nothing; `others`: flags that are known elsewhere."""
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        if not flag:
            said = f"unexpected argument {quoted(unknown[0])}"
            return ConfigError(f"{said}; {self.prog} --help shows the usage")
        name = flag.lstrip("-").replace("-", "_")
        if key := key_of(name) or key_of(name.removeprefix("no_")):
            return ConfigError(
                f"{flag}: no flag; expected {SET_FLAG} {key}=VALUE, or {key} in a ds_config.json"
            )
        typed = OTHER_PROGRAMS.get(name, "")
        if typed.partition(" ")[0] in {*self.flags(), *others}:
            return ConfigError(f"{flag}: no flag of this program; expected {typed}")
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
    if match := re.fullmatch(r"(.+?): invalid choice: (.+) \(choose from (.*)\)", message, re.DOTALL):
        argument, value, choices = match[1], match[2], match[3].replace("'", "").split(", ")
        shown = quoted(value.strip("'\"")) if value[:1] in "'\"" else value
        return f"{argument}: {shown}: {one_of(value.strip(chr(39)), choices)}"
    return message


# Bounds of flags, far above every sensible value.
MOST_COUNT = 10**9
MOST_THREADS = 1024
MOST_BATCH = 2**24
MOST_SECONDS = 1e8
Number = TypeVar("Number", int, float)


def whole(low: int = 0, high: int = MOST) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""
    return _within(int, low, high, "a whole number")


def number(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""
    return _within(float, low, high, "a number")


def seconds(low: float = 0.0) -> Callable[[str], float]:
    """A duration of at least `low` seconds."""
    return _within(float, low, MOST_SECONDS, "seconds")


def _within(kind: Callable[[str], Number], low: float, high: float, noun: str) -> Callable[[str], Number]:
    def parse(text: str) -> Number:
        with contextlib.suppress(ValueError):  # no number, or one of more digits than Python reads
            value = kind(text)
            if low <= value <= high:
                return value
        raise argparse.ArgumentTypeError(f"{quoted(text)}: expected {noun}{range_text(low, high)}")

    return parse


seed = whole(0, MOST_SEED)
count = whole(1, MOST_COUNT)
threads = whole(1, MOST_THREADS)
batch_size = whole(1, MOST_BATCH)

# Flags of other programs, and what to type here.
_RUNS = "--runs-dir DIR with --run-name NAME"
_LENGTH = "--generations N, or --steps N"
_ADDRESS = "--master-addr ADDRESS and --master-port PORT"
OTHER_PROGRAMS: Mapping[str, str] = {
    **dict.fromkeys(
        ("resume_from", "resume_from_checkpoint", "load_checkpoint"), "--resume latest|STEP|PATH"
    ),
    **dict.fromkeys(("episodes", "num_episodes"), _LENGTH),
    **dict.fromkeys(("data_dir", "dataset", "input", "pgn", "train_data"), "--data PATH"),
    **dict.fromkeys(("checkpoint_dir", "save_dir", "output_dir", "log_dir"), _RUNS),
    **dict.fromkeys(("save_interval", "save_steps"), "--checkpoint-interval STEPS, or minutes as 30m"),
    **dict.fromkeys(("max_steps", "num_steps", "total_steps"), "--steps N"),
    **dict.fromkeys(("num_gpu", "ngpus"), "--gpus N"),
    "cfg": "--config NAME or FILE",
    "amp": "--precision auto",
    "fp16": "--precision fp16",
    "bf16": "--precision bf16",
    **dict.fromkeys(("distributed", "standalone"), "--gpus N, which starts the ranks"),
    # torchrun's c10d rendezvous runs what anyone on the network sends.
    "elastic": "--hostfile FILE with --min-nodes and --max-restarts",
    **dict.fromkeys(("rdzv_backend", "rdzv_endpoint"), _ADDRESS),
    # lc0, Stockfish, fastchess and cutechess
    **dict.fromkeys(("w", "weights_file", "model", "network"), "--weights W"),
    **dict.fromkeys(("nodes", "playouts", "visits"), "--simulations N"),
    "backend": "--device cpu or cuda",
    "threads": "--option Threads=N",
    "minibatch_size": "--option MinibatchSize=N",
    **dict.fromkeys(("nncache", "hash"), "--option Hash=MB"),
    **dict.fromkeys(("syzygy_paths", "syzygy_path"), "--option SyzygyPath=DIR"),
    "engine": "--player cmd=PROGRAM, with name= and a limit",
    "each": "--nodes N, --tc T or --st S, for players without a limit",
    "rounds": "--games N, two a round",
    "repeat": "--games N: each opening is played with both colours",
}


def key_of(name: str) -> str:
    """The key of a ds_config.json that alone sets the field `name`; "" for what has a flag or is unknown."""
    hidden = {
        entry.name
        for section in (OptimizerConfig, TrainingConfig, RunConfig)
        for entry in dataclasses.fields(section)
        if not entry.metadata["has_flag"]
    }
    paths = [key.path for key in KEYS if name in hidden and name in key.sets.split()]
    return paths[0] if paths else ""
