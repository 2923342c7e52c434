"""`alphazero bench NAME`: figures of benchmarks/NAME.py of this checkout, measured here and now.

They compare states of the source and are not part of the package: a wheel has none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from types import ModuleType

from alphazero.base.errors import ConfigError
from alphazero.base.text import one_of, table
from alphazero.machine.environment import CHECKOUT

DIRECTORY = CHECKOUT / "benchmarks"
# Minutes long, or in need of a GPU: these run when they are named.
NOT_IN_ALL = ("gpu", "scaling")

PASSES_ON_UNKNOWN_FLAGS = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags of the command; all others go to the benchmark."""
    known = f"one of {', '.join(names())}, or all" if names() else "a benchmark of a checkout"
    parser.add_argument("name", help=known)
    parser.add_argument("--json", action="store_true", help="one JSON object a benchmark")
    parser.epilog = (
        "Other flags go to the benchmark: `bench NAME --help` lists its own. all leaves out "
        f"{' and '.join(NOT_IN_ALL)}."
    )


def run(args: argparse.Namespace) -> int:
    """Run one benchmark, or all with their defaults."""
    if not names():
        raise ConfigError(
            "bench: the benchmarks are files of a checkout, no part of the installed package; expected the "
            "`alphazero` of a checkout"
        )
    if args.name != "all" and args.name not in names():
        raise ConfigError(f"bench {args.name!r}: {one_of(args.name, [*names(), 'all'])}")
    chosen = [name for name in names() if name not in NOT_IN_ALL] if args.name == "all" else [args.name]
    for name in chosen:
        module = load(name)
        figures: dict[str, object] = module.run(args.passed_on)
        if args.json:
            print(json.dumps({"bench": name, **figures}))
        elif hasattr(module, "text"):
            print(module.text(figures))
        else:
            print(f"{name}")
            print("\n".join(table([(f"  {key}", shown(value)) for key, value in figures.items()])))
    return 0


def names() -> list[str]:
    """The names of the benchmarks."""
    return sorted(path.stem for path in DIRECTORY.glob("[a-z]*.py"))


def load(name: str) -> ModuleType:
    """A benchmark module: its `run` takes arguments and gives figures by name, `text` writes them for people.

    Without `text` the figures are listed one by one.
    """
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))  # an installed package knows alphazero alone
    return importlib.import_module(f"benchmarks.{name}")


def shown(value: object) -> str:
    """A figure for people."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
