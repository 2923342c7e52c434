"""The shape of the package: its diagram is that of the imports, and no folder or file grows too large."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.draw_architecture import (
    MOST_ARROWS,
    MOST_MODULES,
    PACKAGE,
    PAGE,
    ROOT,
    arrows_between_rooms,
    diagram,
    drawn_arrows,
    folders,
)

MOST_LINES = 500


def test_the_guide_shows_the_diagram_of_the_imports():
    assert diagram() in PAGE.read_text(encoding="utf-8"), "run `make architecture`"


def test_the_guide_names_every_folder():
    page = PAGE.read_text(encoding="utf-8")
    missing = [folder for folder in folders() if folder != "." and f"`{folder}/`" not in page]
    assert not missing


def test_an_arrow_that_follows_from_others_is_not_drawn():
    from collections import Counter

    assert drawn_arrows(Counter({("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 1})) == [("a", "b"), ("b", "c")]


def test_a_circle_of_rooms_is_named():
    from collections import Counter

    with pytest.raises(SystemExit, match="in a circle: "):
        drawn_arrows(Counter({("a", "b"): 1, ("b", "a"): 1}))


def test_there_are_no_more_arrows_between_rooms_than_a_reader_can_follow():
    arrows = arrows_between_rooms()
    assert 20 < len(arrows) <= MOST_ARROWS


def test_no_folder_holds_more_modules_than_a_reader_can_scan():
    full = {
        folder: len(paths)
        for folder, paths in folders().items()
        if len([path for path in paths if path.name != "__init__.py"]) > MOST_MODULES
    }
    assert not full


def test_no_file_is_too_long():
    files = [*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "csrc").rglob("*.[ch]pp")]
    long = {path.name: n for path in files if (n := len(path.read_text().splitlines())) > MOST_LINES}
    assert not long


def test_no_public_class_name_is_used_twice():
    seen: dict[str, Path] = {}
    twice = []
    for path in (ROOT / PACKAGE).rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if node.name in seen:
                    twice.append(f"{node.name}: {seen[node.name].name}, {path.name}")
                seen[node.name] = path
    assert not twice


# Modules in comments and docstrings; solver.py:Solver is a user's.
MODULE = re.compile(r"(?<![\w./-])(?:[a-z_0-9]+/)*[a-z_0-9]+\.py(?![\w:])")
OTHER_PROJECTS = ("deepspeed/", "open_spiel/", "tf/", "torch/")


def test_modules_that_comments_name_exist():
    known = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for folder in (PACKAGE, "benchmarks", "examples", "tests", "tools")
        for path in (ROOT / folder).rglob("*.py")
    ] + ["/train_distributed.py"]
    missing = {
        f"{path.name}: {name}"
        for path in (ROOT / PACKAGE).rglob("*.py")
        for text in comments(path)
        for name in MODULE.findall(text)
        if not name.startswith(OTHER_PROJECTS) and not any(one.endswith(f"/{name}") for one in known)
    }
    assert not missing


def comments(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT or (
                token.type == tokenize.STRING and token.string.startswith('"""')
            ):
                yield token.string
