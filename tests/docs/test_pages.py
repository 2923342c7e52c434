"""README, CONTRIBUTING and docs/: every file, link, command and flag that they name exists."""

import argparse
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphazero.cli.command_table import COMMANDS, build_parser
from tests.support.docs.pages import FENCED, PAGES, RUN, SHOWN, blocks
from tests.support.paths import REPOSITORY

ROOT = REPOSITORY
SOURCE = re.compile(
    r"(?<![\w./<>-])((?:\.\./)?(?:[\w-]+/)*[\w-]+\.(?:py|cpp|hpp|toml|tsv|sbatch|sh))(?![\w/])"
)
MODULE = re.compile(r"(?<![\w./])alphazero(?:\.[A-Za-z_]\w*)+")
# Flags of other programs that the pages name.
FOREIGN_FLAGS = {
    "pip": {"--no-deps", "--no-build-isolation", "--wheel-dir"},
    "docker": {
        *("--build-arg", "--tag", "--rm", "--user", "--env", "--volume", "--gpus", "--network", "--ipc"),
        *("--ulimit", "--device", "--shm-size"),
    },
    "slurm": {"--signal", "--ntasks-per-node", "--ntasks", "--pty", "--cpus-per-task", "--gpus-per-task"},
    "torchrun": {"--nproc_per_node"},
    "deepspeed": {"--include", "--world_info"},
    "open mpi": {"--map-by"},
    "tensorboard": {"--logdir"},
    "uv": {"--upgrade"},
}
# Programs of ours that are no sub-command of `alphazero`.
PROGRAMS = (ROOT / "alphazero" / "launch" / "node" / "preflight.py", *(ROOT / "tools").glob("*.py"))


def page_id(page: Path) -> str:
    return page.name


def code(page: Path) -> Iterator[str]:
    """Fenced and indented lines, continued ones joined, and what stands between backticks."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        yield from block.text.replace("\\\n", " ").splitlines()
    rest = FENCED.sub("", text)
    yield from re.findall(r"^    (?=\S)(.*)$", rest.replace("\\\n", " "), re.MULTILINE)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest))


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


@functools.cache
def file_names() -> frozenset[str]:
    """The names of all files of the repository."""
    folders = ("alphazero", "csrc", "tests", "tools", "configs", "examples", "benchmarks", "docs")
    found = {p.name for folder in folders for p in (ROOT / folder).rglob("*")}
    return frozenset(found | {p.name for p in ROOT.iterdir()})


@functools.cache
def flags_of(command: str) -> frozenset[str]:
    """Every flag of `alphazero COMMAND`, with those that it passes on to the trainer or to a benchmark."""
    flags = flags_in(build_parser(command))
    if command == "launch":
        return flags | flags_of("train")
    if command == "bench":
        return flags.union(flags_of("launch"), *map(flags_in_source, (ROOT / "benchmarks").rglob("*.py")))
    return flags


def flags_in_source(path: Path) -> set[str]:
    """The flags that a program adds to its parser."""
    return set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', path.read_text(encoding="utf-8")))


def flags_in(parser: argparse.ArgumentParser) -> frozenset[str]:
    flags = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            flags |= {flag for inner in action.choices.values() for flag in flags_in(inner)}
    return frozenset(flags)


def command_of(line: str) -> str | None:
    """The sub-command that a line of code runs, None where it is no command line of ours."""
    started = re.search(r"(?:^|[\s/])alphazero ([a-z][a-z-]*)(?=\s|$)", line)
    if re.search(r"\b(?:import|from) alphazero\b", line) or line.startswith("docker "):  # Python; an image
        return None
    if started and not line.startswith("alphazero commit "):  # a message of the launcher
        return started[1]
    if "launch_distributed_training.sh" in line:
        return "launch"
    return "train" if "train_distributed.py" in line else None


def arguments(line: str) -> str:
    """What follows the name of our program on a line."""
    name = r"(?:\balphazero [a-z-]+|launch_distributed_training\.sh|train_distributed\.py)"
    return re.split(name, line, maxsplit=1)[-1].split(" # ")[0]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in headings(linked), target


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_source_file_that_is_named_exists(page):
    for path in SOURCE.findall(page.read_text(encoding="utf-8")):
        if "/" in path:
            assert any((base / path).exists() for base in (ROOT, ROOT / "alphazero", page.parent)), path
        else:
            assert path in file_names(), path


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_module_that_is_named_can_be_imported(page):
    for line in code(page):
        for dotted in MODULE.findall(line):
            parts, rest = dotted.split("."), []
            while True:
                try:
                    found = importlib.import_module(".".join(parts))
                    break
                except ModuleNotFoundError:
                    rest.insert(0, parts.pop())
            for name in rest:
                found = getattr(found, name)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_and_every_flag_exists(page):
    ours = [*map(flags_of, COMMANDS), *map(flags_in_source, PROGRAMS)]
    anywhere = frozenset({"--version"}).union(*ours, *FOREIGN_FLAGS.values())
    for line in code(page):
        command = command_of(line)
        if command is not None:
            assert command in COMMANDS, line
            flags = flags_of(command)
        else:
            flags = anywhere
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", arguments(line) if command else line):
            # --no-tf32 is the other half of --tf32, --x_y another spelling of --x-y.
            assert flag in flags, f"{flag} in: {line}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_make_target_exists(page):
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code(page):
        called = re.match(r"make ([a-z][\w-]*)", line)
        if called:
            assert called[1] in targets, line


def test_every_page_of_docs_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_every_page_that_the_code_names_exists():
    for folder in ("alphazero", "csrc", "tools", "benchmarks", "configs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".cpp", ".hpp", ".toml"}:
                for page in re.findall(r"docs/\w+\.md", path.read_text(encoding="utf-8")):
                    assert (ROOT / page).exists(), f"{path}: {page}"


COMMAND_LINE = re.compile(r"(\$ |alphazero [a-z]|\.venv/bin/|\./|make [a-z]|python3? |torchrun |docker )")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_says_what_it_is(page):
    """So that the tests run what can be run (test_commands.py), or a reason stands before it."""
    for block in blocks(page):
        assert block.language in (*RUN, *SHOWN), block.place
        assert block.language in RUN or block.not_run is None, block.place
        if block.language == "":
            shown = block.text.splitlines()
            typed = [line for line in shown if COMMAND_LINE.match(line) and "[--" not in line]  # no synopsis
            assert not typed, f"{block.place}: tag it sh: {typed[0]}"
    outside = FENCED.sub("", page.read_text(encoding="utf-8"))
    for line in re.findall(r"^ {4,}(?=\S)(.*)$", outside, re.MULTILINE):
        assert not COMMAND_LINE.match(line), f"{page.name}: {line}: put it into a block"


def test_every_measured_table_has_its_command():
    """In its section of docs/performance.md, or the section says that there is none."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        if re.search(r"^\|", section, re.MULTILINE):
            command = re.search(r"(alphazero|launch_distributed_training\.sh|pytest|make) [\w-]", section)
            told = command or "gpu.md#" in section or "No command" in section
            assert told, section.splitlines()[0]
