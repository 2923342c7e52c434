"""The rooms of the code: which folders there are, what each imports, and on which floor each stands.

A room is a folder of source files: `cluster/plan` in Python, `csrc/search` in C++. Python imports are read
from the syntax tree, so that any checkout can be looked at; the imports of C++ are its `#include` lines.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = "alphazero"
# What Python calls the C++ core, whose sources are in csrc/.
CORE = f"{PACKAGE}._core"
# Loose files of the package itself, in the table of rooms.
LOOSE = "(top)"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Room:
    """A folder of source files."""

    name: str  # as "cluster/plan", "csrc/search"
    num_files: int  # without empty ones, as most __init__.py
    num_lines: int


@dataclass(frozen=True)
class Rooms:
    """All rooms of a checkout, by name, and how many imports lead from one to another."""

    rooms: dict[str, Room]
    arrows: Counter[tuple[str, str]]


def read_rooms(root: Path) -> Rooms:
    """The rooms of the checkout at `root`, Python and C++."""
    sources = {path: room_of_path(root, path) for path in source_files(root)}
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    files = Counter(room for path, room in sources.items() if texts[path].strip())
    lines: Counter[str] = Counter()
    for path, room in sources.items():
        lines[room] += len(texts[path].splitlines())
    rooms = {room: Room(room, files[room], lines[room]) for room in sorted(files)}

    arrows: Counter[tuple[str, str]] = Counter()
    modules = python_modules(root)
    for importer, imported in imports(modules):
        # The core's face to Python is its bindings.
        target = "csrc/bindings" if imported == CORE else sources[modules[imported]]
        arrows[sources[modules[importer]], target] += 1
    for path in texts:
        if path.is_relative_to(root / "csrc"):
            for name in INCLUDE.findall(texts[path]):
                arrows[sources[path], sources[root / "csrc" / name]] += 1
    return Rooms(rooms, Counter({(a, b): n for (a, b), n in arrows.items() if a != b}))


def source_files(root: Path) -> list[Path]:
    """Python files of the package, C++ files of the core."""
    package, core = root / PACKAGE, root / "csrc"
    return sorted([*package.rglob("*.py"), *core.rglob("*.cpp"), *core.rglob("*.hpp")])


def room_of_path(root: Path, path: Path) -> str:
    """The room that a source file is in."""
    package = root / PACKAGE
    if path.is_relative_to(package):
        folder = path.parent.relative_to(package).as_posix()
        return LOOSE if folder == "." else folder
    return path.parent.relative_to(root).as_posix()


def python_modules(root: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name; a package's name stands for its `__init__.py`."""
    modules = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imports(modules: dict[str, Path]) -> list[tuple[str, str]]:
    """Each pair of (importing module, imported module) once, the C++ core among the imported ones."""
    pairs: set[tuple[str, str]] = set()
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
            pairs.update((module, target) for target in imported_modules(node, modules))
    return sorted((a, b) for a, b in pairs if a != b)


def imported_modules(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """The package's own modules that one statement imports; none if it imports nothing of ours."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        # `from a.b import c`: c is a module of its own, or a name in a.b.
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in modules or name == CORE else node.module for name in inner]
    else:
        return
    yield from (name for name in names if name in modules or name == CORE)


@dataclass(frozen=True)
class Layers:
    """The layers contracts of import-linter: rows of modules, from the top floor down."""

    whole: tuple[tuple[str, ...], ...]  # modules of the package, as "alphazero.cli"
    within: dict[str, tuple[tuple[str, ...], ...]]  # by package: the rows of its own rooms


def read_layers(root: Path) -> Layers:
    """The layers that pyproject.toml of the checkout at `root` lays down."""
    settings: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    whole: tuple[tuple[str, ...], ...] = ()
    within = {}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] != "layers":
            continue
        rows = [tuple(name.strip(" ()") for name in re.split("[|:]", row)) for row in contract["layers"]]
        if not contract.get("containers"):
            whole = tuple(rows)
        for package in contract.get("containers", []):
            within[package] = tuple(tuple(f"{package}.{name}" for name in row) for row in rows)
    return Layers(whole, within)
