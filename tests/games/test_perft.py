"""Exact node counts from other programs, and the perft command."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from alphazero._core import ChessPosition
from alphazero.cli.main import main


@dataclass(frozen=True)
class Count:
    """Leaves of one tree as another program counted them."""

    fen: str
    depth: int
    nodes: int


def read_counts(path: Path) -> Iterator[Count]:
    """The counts of a .perft file: 'epd POSITION' lines, each followed by 'perft DEPTH NODES' lines."""
    fen = ""
    for line in path.read_text().splitlines():
        keyword, _, rest = line.partition(" ")
        if keyword == "epd":
            fen = rest
        elif keyword == "perft":
            depth, nodes = rest.split()
            yield Count(fen, int(depth), int(nodes))


def wrong_counts(counts: list[Count]) -> list[tuple[Count, int]]:
    """The counts that the core does not reproduce, each with what it counted; uses all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda count: ChessPosition(count.fen).perft(count.depth), counts))
    return [(count, nodes) for count, nodes in zip(counts, found, strict=True) if nodes != count.nodes]


def test_tricky_positions_have_the_published_counts(shared_data: Path):
    counts = list(read_counts(shared_data / "perft" / "tricky.perft"))
    assert len({count.fen for count in counts}) == 19
    assert wrong_counts(counts) == []


def test_300_random_positions_have_the_published_counts_to_depth_4(shared_data: Path):
    counts = [c for c in read_counts(shared_data / "perft" / "random300.perft") if c.depth <= 4]
    assert len(counts) == 1200
    assert wrong_counts(counts) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_300_random_positions_have_the_published_counts_to_depth_6(shared_data: Path):
    counts = [c for c in read_counts(shared_data / "perft" / "random300.perft") if c.depth > 4]
    assert len(counts) == 600
    assert wrong_counts(sorted(counts, key=lambda count: -count.nodes)) == []


def test_the_command_divides_by_first_move(capsys: pytest.CaptureFixture[str]):
    # https://www.chessprogramming.org/Perft_Results, position 3
    assert main(["perft", "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", "2"]) == 0
    *divided, blank, total = capsys.readouterr().out.splitlines()
    assert blank == ""
    assert total.startswith("nodes 191 ")
    assert len(divided) == 14
    assert "b4b1: 16" in divided
    assert sum(int(line.split(": ")[1]) for line in divided) == 191


def test_the_command_takes_startpos_and_a_fen_without_quotes(capsys: pytest.CaptureFixture[str]):
    assert main(["perft", "startpos", "3"]) == 0
    assert "nodes 8902 " in capsys.readouterr().out
    assert main(["perft", "8/8/8/8/8/8/8/Kk6", "w", "-", "-", "1"]) == 2
    assert main(["perft", "r3k2r/8/8/8/8/8/8/R3K2R", "w", "KQkq", "-", "1"]) == 0
    assert "e1g1: 1\n" in capsys.readouterr().out


def test_the_command_counts_deep_trees_in_interruptible_parts(capsys: pytest.CaptureFixture[str]):
    # Two kings and a blocked pawn pair: small enough to go deeper than one call into the core.
    fen = "7k/8/8/p7/P7/8/8/7K w - - 0 1"
    assert main(["perft", fen, "7"]) == 0
    assert f"nodes {ChessPosition(fen).perft(7)} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["startpos", "x"], "DEPTH: 'x': expected a whole number from 1 to 99"),
        (["startpos", "0"], "DEPTH: '0': expected a whole number from 1 to 99"),
        (["startpos", "-3"], "DEPTH: '-3': expected a whole number from 1 to 99"),
        (["startpos"], "the following arguments are required: DEPTH"),
        (["8/8", "3"], "FEN '8/8': 1 fields, expected 4 to 6"),
        (["8/8/8/8/8/8/8/K7 w - -", "3"], "black has 0 kings, expected 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["perft", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("alphazero: error: ")
    assert message in error
    assert error.count("\n") == 1
