"""UCI_Elo: from what was measured at some nodes to nodes, offered only with levels of the network."""

import json
from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.play.uci.levels import SUFFIX, Level, read_levels, write_levels
from tests.support.uci.driving import DrivenEngine

SCALE = "Elo of a test."
MEASURED = (Level(1, 600.0, 100), Level(4, 580.0, 300), Level(16, 800.4, 100), Level(64, 899.0, 100))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "net.pt"
    path.write_bytes(b"a network")
    write_levels(path, SCALE, MEASURED)
    return path


def test_more_elo_is_more_nodes_and_the_levels_are_met(weights: Path) -> None:
    levels = read_levels(weights)
    assert levels is not None and levels.elos == (585, 899)
    # 1 and 4 nodes fell and share the mean of their games, 585.
    assert [round(elo) for _, elo in levels.curve] == [585, 585, 800, 899]
    nodes = [levels.nodes_for(elo) for elo in range(585, 900)]
    assert nodes == sorted(nodes) and (nodes[0], nodes[-1]) == (4, 64)
    assert levels.nodes_for(800) == 16 and levels.nodes_for(850) == 32  # halfway in doublings


def test_levels_of_another_file_or_none_are_refused(weights: Path) -> None:
    file = weights.with_name(weights.name + SUFFIX)
    text = json.loads(file.read_text())
    for changed in (
        {"version": 2},
        {"levels": text["levels"][:1]},
        {"levels": text["levels"][::-1]},
        {"scale": 1},
    ):
        file.write_text(json.dumps(text | changed))
        with pytest.raises(DataError, match=r"net\.pt\.levels\.json: .*--levels"):
            read_levels(weights)
    text["levels"][0]["elo"] = float("nan")
    file.write_text(json.dumps(text))
    with pytest.raises(DataError, match="rate --levels writes"):
        read_levels(weights)
    write_levels(weights, SCALE, MEASURED)
    weights.write_bytes(b"another network")
    with pytest.raises(DataError, match=r"another network; .*net\.pt"):
        read_levels(weights)
    write_levels(weights, SCALE, [Level(1, 600.0, 10), Level(2, 500.0, 10)])
    assert read_levels(weights) is None  # of one strength
    file.unlink()
    assert read_levels(weights) is None


def test_the_engine_plays_the_nodes_of_an_elo_and_offers_its_range(weights: Path) -> None:
    with DrivenEngine(find_levels=lambda name: read_levels(weights)) as engine:
        engine.send("uci")
        offered = [line for line in engine.until("uciok") if "UCI_Elo" in line or "Strength" in line]
        assert offered == [
            "option name UCI_LimitStrength type check default false",
            "option name UCI_Elo type spin default 899 min 585 max 899",
        ]
        for elo, nodes, said in ((850, 32, 850), (100, 4, 585), (3000, 64, 899)):
            engine.send("setoption name UCI_LimitStrength value true", f"setoption name UCI_Elo value {elo}")
            engine.send("ucinewgame", "position startpos", "go wtime 600000 btime 600000")
            told = engine.until("bestmove")
            assert f" nodes {nodes} " in told[-2]
            assert f"info string UCI_Elo {said} of 585 to 899: {nodes} nodes a move. {SCALE}" in told
        engine.send("go movetime 60000")
        assert not any("UCI_Elo" in line for line in engine.until("bestmove"))  # said once
        engine.send("setoption name NodeLimit value 3", "ucinewgame", "go movetime 60000")
        assert " nodes 3 " in engine.until("bestmove")[-2]  # the smaller one


def test_without_levels_the_engine_offers_no_elo_and_says_that_there_is_none(weights: Path) -> None:
    weights.write_bytes(b"another network")
    for find in (lambda name: None, lambda name: read_levels(weights)):
        with DrivenEngine(find_levels=find) as engine:
            engine.send("uci")
            assert not any("UCI_Elo" in line for line in engine.until("uciok"))
            engine.send("setoption name UCI_LimitStrength value true", "position startpos", "go nodes 9")
            told = engine.until("bestmove")
            assert any("UCI_LimitStrength: no effect without levels" in line for line in told)
            assert " nodes 9 " in told[-2]
    assert any("another network" in line and "UCI_Elo" in line for line in told)
