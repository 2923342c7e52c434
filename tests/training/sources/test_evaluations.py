"""The curve of a run's given games: chosen by rank 0, told once."""

from pathlib import Path

from alphazero.data.formats.importer import import_games
from alphazero.data.sampling.value_curve import STANDARD_CURVE
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.settings.load import load_config
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.given_games import choose_value_curve


def evaluated_window(tmp_path: Path) -> Window:
    """Two games, one of which has evaluations."""
    (tmp_path / "games.pgn").write_text("1. e4 {+0.3/9 1s} e5 {+0.1/9 1s} 1-0\n\n1. d4 d5 1/2-1/2\n")
    import_games([tmp_path / "games.pgn"], tmp_path / "store", workers=1)
    return Window.of_stores([GameStore.open(tmp_path / "store")])


def test_a_run_says_which_curve_it_takes(tmp_path: Path, lone_runtime):
    """Only where evaluations count: asked for, and of given games."""
    window = evaluated_window(tmp_path)
    asked = load_config("", {"value_q_ratio": "0.25"})
    curve, lines = choose_value_curve(asked, window, Exchange())
    assert curve == STANDARD_CURVE
    (line,) = lines
    assert line.startswith("evaluations       0.25 of the value target in 50.0 % of the positions")
    none = (None, [])
    mixed = load_config("", {"value_q_ratio": "0.25", "mode": "mixed"})
    assert choose_value_curve(load_config("", {}), window, Exchange()) == none
    assert choose_value_curve(asked, None, Exchange()) == none
    assert choose_value_curve(mixed, window, Exchange()) == none
