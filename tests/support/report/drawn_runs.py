"""Runs of a game in a Python file with stored games, for reports."""

from __future__ import annotations

from pathlib import Path

from alphazero.cli.main import main
from alphazero.games.registry import get_spec, read_game
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.run.directory import RunDirectory
from alphazero.settings.sections import NetworkConfig
from tests.support.paths import SUPPORT
from tests.support.report.made_up_runs import step_line, write_run

BOXES = SUPPORT / "games" / "rules" / "boxes.py"
EVIL = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"


def drawn_run(path: Path, game: str) -> RunDirectory:
    """A run that has played twelve games. game: as --game names it."""
    name = read_game("--game", game)
    run = write_run(path, [step_line(1)], name)
    weights = path / "weights.pt"
    save_weights(weights, AlphaZeroNet(NetworkConfig(game=name, blocks=1, filters=8), get_spec(name)), {})
    words = ("--weights", str(weights), "--out", str(run.games), "--games", "12", "--opening-plies", "2")
    assert main(["selfplay", *words, "--lanes", "8", "--simulations", "4", "--evaluation-batch", "8"]) == 0
    return run


def boxes_with(directory: Path, *changes: tuple[str, str]) -> str:
    """Dots and boxes with other lines, as --game names it."""
    text = BOXES.read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = directory / "own.py"
    path.write_text(text, encoding="utf-8")
    return f"{path}:Boxes(size=2)"


def with_drawing(directory: Path, drawing: str) -> str:
    """The same with another drawing, an expression over self."""
    return boxes_with(
        directory,
        (
            """        return f"{''.join('-' if edge else '.' for edge in self.drawn)}""",
            f"        return {drawing}  #",
        ),
    )
