"""The recipe of docs/data.md, on a small month as Lichess publishes it."""

import re
import shlex
from pathlib import Path

import chess.pgn
import numpy as np
import pytest
import zstandard

from alphazero.cli.main import main
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.settings.data import DataConfig
from alphazero.settings.load import Config
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.given_games import open_data
from tests.support.data.lichess_games import lichess_games
from tests.support.paths import REPOSITORY

TINY_AMOUNTS = (
    "--steps",
    "2",
    "--batch-size",
    "64",
    "--micro-batch-size",
    "32",
    "--blocks",
    "1",
    "--filters",
    "8",
)


def recipe() -> list[list[str]]:
    """The commands of the page, as words: two imports and a training."""
    page = (REPOSITORY / "docs" / "data.md").read_text()
    (block,) = re.findall(
        r"^<!-- not run: the months .*?-->\n```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def months() -> dict[str, list[chess.pgn.Game]]:
    return {"2019-11": lichess_games(300, "November"), "2019-12": lichess_games(100, "December")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the imports of the recipe have run."""
    directory = tmp_path_factory.mktemp("recipe")
    for month, games in months().items():
        text = ("\n\n".join(map(str, games)) + "\n").encode()
        (directory / f"lichess_db_standard_rated_{month}.pgn.zst").write_bytes(zstandard.compress(text))
    imports = [words for words in recipe() if words[:3] == ["alphazero", "data", "import"]]
    assert len(imports) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for words in imports:
            assert main(words[1:]) == 0
    return directory


def passes(game: chess.pgn.Game) -> bool:
    elos = [game.headers[name] for name in ("WhiteElo", "BlackElo")]
    in_band = all(elo != "?" and 1500 <= int(elo) <= 1599 for elo in elos)
    return in_band and "bullet" not in game.headers["Event"].lower()


def trained_plies(game: chess.pgn.Game) -> list[int]:
    """Plies from the tenth on whose mover has 30 s or more, by the clocks of python-chess."""
    clocks = [node.clock() for node in game.mainline()]
    plies = []
    for ply in range(10, len(clocks)):
        clock = clocks[ply - 2]
        if clock is None or clock >= 30:
            plies.append(ply)
    return plies


@pytest.mark.usefixtures("lone_runtime")
def test_the_recipe_trains_on_what_python_chess_says(stores: Path):
    november, december = months().values()
    names = ("maia-1500", "maia-1500-test")
    held = [[game for game in games if passes(game)] for games in (november, december)]
    for name, games in zip(names, held, strict=True):
        assert GameStore.open(stores / "stores" / name).num_games == len(games) > 10
    data = DataConfig(
        data=(str(stores / "stores" / names[0]),),
        validation_data=(str(stores / "stores" / names[1]),),
        skip_plies=10,
        min_clock=30.0,
    )
    window, held_out = open_data(Config(data=data), Exchange())
    assert window is not None and held_out is not None
    expected = [(row, ply) for row, game in enumerate(held[0]) for ply in trained_plies(game)]
    assert places(window) == expected
    assert len(expected) < sum(max(0, len(list(game.mainline_moves())) - 10) for game in held[0])
    assert held_out.num_samples == sum(len(list(game.mainline_moves())) for game in held[1])


def places(window: Window) -> list[tuple[int, int]]:
    found = window.locate(np.arange(window.num_samples))
    return list(zip(found.game.tolist(), found.ply.tolist(), strict=True))


@pytest.mark.slow
def test_the_training_of_the_recipe_runs(zygote, stores: Path):
    (words,) = [words for words in recipe() if words[0] == "./launch_distributed_training.sh"]
    job = zygote.start(stores, 1, [*words[1:], *TINY_AMOUNTS, "--no-tensorboard"])
    assert job.wait(120.0) == [0], job.output()[-4000:]
    said = job.output()
    assert re.search(
        r"^filter            min_clock 30: removed \d+ of [\d,]+ positions \(\d+ without", said, re.M
    )
    assert re.search(r"^filter            skip_plies 10: removed [\d,]+ of [\d,]+ positions$", said, re.M)
