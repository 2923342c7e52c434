"""`alphazero bench NAME`: figures of benchmarks/NAME.py of this checkout, measured here and now."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

from alphazero.errors import ConfigError
from alphazero.text import table

DIRECTORY = Path(__file__).resolve().parents[3] / "benchmarks"
# What a benchmark module offers: arguments in, figures by name out.
Run = Callable[[list[str]], dict[str, object]]

PASSES_ON_UNKNOWN_FLAGS = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags of the command; all others go to the benchmark."""
    parser.add_argument("name", help=f"one of {', '.join(names()) or 'none (needs a checkout)'}, or all")
    parser.add_argument("--json", action="store_true", help="one JSON object a benchmark")
    parser.epilog = "Other flags go to the benchmark: each file in benchmarks/ lists its own."


def run(args: argparse.Namespace) -> int:
    """Run one benchmark, or all with their defaults."""
    if args.name != "all" and args.name not in names():
        raise ConfigError(f"bench {args.name!r}: expected one of {', '.join([*names(), 'all'])}")
    for name in names() if args.name == "all" else [args.name]:
        figures = load(name)(args.passed_on)
        if args.json:
            print(json.dumps({"bench": name, **figures}))
        else:
            print(f"{name}")
            print("\n".join(table([(f"  {key}", shown(value)) for key, value in figures.items()])))
    return 0


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(path.stem for path in DIRECTORY.glob("[a-z]*.py"))


def load(name: str) -> Run:
    """The `run` of a benchmark module."""
    spec = importlib.util.spec_from_file_location(f"benchmarks.{name}", DIRECTORY / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    run_benchmark: Run = module.run
    return run_benchmark


def shown(value: object) -> str:
    """A figure for people."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
