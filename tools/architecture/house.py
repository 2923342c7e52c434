"""What the picture of the code shows: its rooms on their floors, and the arrows between them.

The floors are those of the layers contracts in pyproject.toml, which `lint-imports` enforces.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.architecture.layered_drawing import Arrow
from tools.architecture.rooms import (
    CORE,
    PACKAGE,
    Room,
    Rooms,
    imports,
    python_modules,
    read_layers,
    read_rooms,
)

# The box of the C++ core, whose rooms are the folders of csrc/.
CORE_BOX = "csrc"


@dataclass(frozen=True)
class House:
    """Boxes by name: `cluster`, and within it `cluster/plan`; `training/runtime.py` for loose files."""

    rows: list[list[str]]
    arrows: list[Arrow]
    within: dict[str, House]  # what is in a box; a room without rooms is not here
    rooms: dict[str, Room]  # what a room without rooms holds
    imported_by: dict[
        str, int
    ]  # for the files at the bottom, whose arrows are left out: how many files import them


def read_house(root: Path) -> House:
    """The house that stands in the checkout at `root`."""
    layers, read, modules = read_layers(root), read_rooms(root), python_modules(root)
    pairs = imports(modules)
    rows = [[name.removeprefix(f"{PACKAGE}.") for name in row] for row in layers.whole]
    check_all_placed(rows, modules)
    files = {name for row in rows for name in row if not is_package(modules[f"{PACKAGE}.{name}"])}
    # The core stands below the lowest folder: Python above calls it, and it calls none.
    lowest = max(floor for floor, row in enumerate(rows) if not files.issuperset(row))
    rows.insert(lowest + 1, [CORE_BOX])

    arrows: Counter[tuple[str, str]] = Counter()
    imported_by = {name: 0 for row in rows for name in row if name in files}
    for importer, imported in pairs:
        source, target = importer.split(".")[1], CORE_BOX if imported == CORE else imported.split(".")[1]
        if target in files:
            imported_by[target] += 1
        elif source != target and source not in files and source != "__main__":
            arrows[source, target] += 1
    within = {
        package.removeprefix(f"{PACKAGE}."): rooms_within(package, inner, pairs, modules, read)
        for package, inner in layers.within.items()
    }
    within[CORE_BOX] = core_rooms(read)
    plain = {
        name: read.rooms[name] for row in rows for name in row if name in read.rooms and name not in within
    }
    return House(rows, to_arrows(arrows), within, plain, imported_by)


def check_all_placed(rows: list[list[str]], modules: dict[str, Path]) -> None:
    """End with a message if the layers contract forgets a part of the package."""
    placed = {name for row in rows for name in row}
    parts = {module.split(".")[1] for module in modules if "." in module} - {"__main__"}
    if parts != placed:
        raise SystemExit(
            f"pyproject.toml: the layers contract of {PACKAGE} lacks {sorted(parts - placed)} and names "
            f"{sorted(placed - parts)}, which do not exist; expected every part of the package once"
        )


def rooms_within(
    package: str,
    layers: tuple[tuple[str, ...], ...],
    pairs: list[tuple[str, str]],
    modules: dict[str, Path],
    read: Rooms,
) -> House:
    """The rooms of a package by its own layers; loose files of a layer share a box."""
    folder = package.removeprefix(f"{PACKAGE}.")
    files = {
        name for name, path in modules.items() if name.rpartition(".")[0] == package and not is_package(path)
    }
    # Files that the contract does not name stand in its lowest layer.
    unnamed = files - {name for layer in layers for name in layer}
    box_of: dict[str, str] = {}  # by the full name of a file or of a room
    rows: list[list[str]] = []
    rooms: dict[str, Room] = {}
    for number, layer in enumerate(layers):
        row = [name for name in layer if name not in files]
        for name in row:
            box_of[name] = f"{folder}/{name.rpartition('.')[2]}"
            rooms[box_of[name]] = whole_room(box_of[name], read)
        rows.append([box_of[name] for name in row])
        loose = sorted(files & {*layer, *(unnamed if number == len(layers) - 1 else ())})
        if loose:
            shared = f"{folder}/" + ", ".join(name.rpartition(".")[2] for name in loose)
            rooms[shared] = Room(shared, len(loose), sum(count_lines(modules[name]) for name in loose))
            box_of.update(dict.fromkeys(loose, shared))
            rows[-1].append(shared)

    arrows: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        # "alphazero.cluster.plan.hostfile" is in the room "alphazero.cluster.plan".
        source, target = (
            box_of.get(module) or box_of.get(".".join(module.split(".")[:3])) for module in pair
        )
        if source and target and source != target:
            arrows[source, target] += 1
    return House(rows, to_arrows(arrows), {}, rooms, {})


def whole_room(name: str, read: Rooms) -> Room:
    """A room with the rooms inside it."""
    parts = [room for room in read.rooms.values() if f"{room.name}/".startswith(f"{name}/")]
    return Room(name, sum(room.num_files for room in parts), sum(room.num_lines for room in parts))


def core_rooms(read: Rooms) -> House:
    """The folders of the C++ core, each as far above the lowest as its includes demand."""
    names = sorted({"/".join(name.split("/")[:2]) for name in read.rooms if name.startswith("csrc/")})
    rooms = {}
    for name in names:
        parts = [room for room in read.rooms.values() if f"{room.name}/".startswith(f"{name}/")]
        rooms[name] = Room(name, sum(p.num_files for p in parts), sum(p.num_lines for p in parts))
    arrows: Counter[tuple[str, str]] = Counter()
    for (source, target), count in read.arrows.items():
        ends = "/".join(source.split("/")[:2]), "/".join(target.split("/")[:2])
        if ends[0] in rooms and ends[0] != ends[1]:
            arrows[ends] += count
    height = dict.fromkeys(names, 0)
    for _ in names:  # the longest way down
        for source, target in arrows:
            height[source] = max(height[source], height[target] + 1)
    rows = [
        [name for name in names if height[name] == level] for level in range(max(height.values()), -1, -1)
    ]
    return House([row for row in rows if row], to_arrows(arrows), {}, rooms, {})


def is_package(path: Path) -> bool:
    """Whether a module's file stands for a folder."""
    return path.name == "__init__.py"


def count_lines(path: Path) -> int:
    """The lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def to_arrows(counts: Counter[tuple[str, str]]) -> list[Arrow]:
    """Arrows in the order of their names."""
    return [Arrow(source, target, count) for (source, target), count in sorted(counts.items())]
