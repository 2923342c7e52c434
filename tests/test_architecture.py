"""The picture of the architecture: drawn from the imports, complete, and no arrow points upwards."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import grimp
import pytest

from tools.architecture.house import House, read_house
from tools.architecture.layered_drawing import Arrow, Box, LayeredDrawing
from tools.architecture.rooms import CORE, imports, python_modules, read_layers, read_rooms

ROOT = Path(__file__).resolve().parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    out = tmp_path_factory.mktemp("picture") / "architecture.svg"
    command = [sys.executable, "-m", "tools.draw_architecture", "--out", out]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    return ET.parse(out)


def test_every_room_of_the_tree_is_in_the_picture(picture):
    drawn = {group.get("data-room") for group in picture.iter(f"{SVG}g") if group.get("data-room")}
    package = ROOT / "alphazero"
    # Rooms inside a room, as those of the commands, are counted in its box.
    folders = {
        Path(*p.relative_to(package).parts[:-1][:2]) for p in package.rglob("*.py") if p.parent != package
    }
    files = {p.stem for p in package.glob("*.py")} - {"__init__", "__main__"}
    core = {f"csrc/{p.name}" for p in (ROOT / "csrc").iterdir() if p.is_dir()}
    assert {folder.as_posix() for folder in folders} | files | core <= drawn


def test_no_arrow_points_upwards_by_the_layers_of_pyproject(picture):
    layers = read_layers(ROOT)
    floor = {name.partition(".")[2]: i for i, row in enumerate(layers.whole) for name in row}
    for rows in layers.within.values():
        floor.update(
            {name.partition(".")[2].replace(".", "/"): i for i, row in enumerate(rows) for name in row}
        )
    links = [group for group in picture.iter(f"{SVG}g") if group.get("class") == "link"]
    assert len(links) > 50
    checked = 0
    for link in links:
        path = link.find(f"{SVG}path").get("d")
        start, end = re.match(r"M\S+ (\S+?)V", path)[1], re.search(r"V([\d.]+)$", path)[1]
        assert float(start) < float(end), f"{link.get('data-from')} -> {link.get('data-to')}"
        if {link.get("data-from"), link.get("data-to")} <= floor.keys():
            assert floor[link.get("data-from")] < floor[link.get("data-to")]
            checked += 1
    assert checked > 40


def test_the_imports_are_those_that_import_linter_sees():
    graph = grimp.build_graph("alphazero", cache_dir=None)
    seen = {(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)}
    # grimp does not know the C++ core, which is no Python module.
    read = {(a, b) for a, b in imports(python_modules(ROOT)) if b != CORE}
    assert read == {(a, b) for a, b in seen if b != "alphazero"}


def test_a_part_of_the_package_on_no_floor_is_named(tmp_path):
    for folder in ("low", "high", "new"):
        (tmp_path / "alphazero" / folder).mkdir(parents=True)
        (tmp_path / "alphazero" / folder / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = ["alphazero.high", "alphazero.low"]\n'
    )
    with pytest.raises(SystemExit, match=r"lacks \['new'\]"):
        read_house(tmp_path)


def test_an_import_that_points_upwards_is_named():
    boxes = [[Box("high", 10, 10)], [Box("low", 10, 10)]]
    with pytest.raises(SystemExit, match="low imports high; expected imports to point down only"):
        LayeredDrawing(boxes, [Arrow("low", "high", 1)], left=0, top=0, width=100, channel=10)


def test_arrows_pass_between_the_boxes_and_never_through_one():
    house: House = read_house(ROOT)
    rows = [
        [Box(name, 130, 46) for name in row] for row in house.rows if not set(row) & set(house.imported_by)
    ]
    drawing = LayeredDrawing(rows, house.arrows, left=0, top=0, width=1300, channel=60)
    for route in drawing.routes:
        for row, x in list(zip(route.rows, route.xs, strict=True))[1:-1]:
            assert not any(box.left < x < box.right for box in drawing.rows[row])


def test_the_rooms_hold_all_files_and_lines():
    read = read_rooms(ROOT)
    files = [p for p in (ROOT / "alphazero").rglob("*.py") if p.read_text().strip()]
    python = [room for name, room in read.rooms.items() if not name.startswith("csrc/")]
    assert sum(room.num_files for room in python) == len(files)
    assert sum(room.num_lines for room in python) == sum(len(p.read_text().splitlines()) for p in files)
