"""The given games of a run: those to train on and those held out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alphazero.config import DataConfig
from alphazero.data.pgn.open import open_or_import
from alphazero.data.sampling.filters import for_training, with_filters
from alphazero.data.sampling.window import Window
from alphazero.errors import ConfigError
from alphazero.filter_settings import chosen_filters, filter_text
from alphazero.games.registry import get_game
from alphazero.training.exchange import Exchange

EMBEDDED_GAMES = Path(__file__).resolve().parents[2] / "assets" / "games"


def open_data(
    data: DataConfig, mode: str, game_name: str, exchange: Exchange, *, seed: int = 0, num_threads: int = 1
) -> tuple[Window | None, Window | None]:
    """The given games to train on and those to validate on. Collective.

    mode: of SelfPlayConfig. Without games of one's own chess has embedded ones; self-play alone has none to
    train on. Filters hold for the share that is held out as well, but for those of training alone (drawn from
    `seed`), and leave validation data of one's own as it is. Raises ConfigError and DataError on all ranks
    alike.
    """
    filters = exchange.on_each(lambda: chosen_filters(data))
    cache = Path(data.cache_dir)
    held_out = _open_stores(data.validation_data, cache, exchange) if data.validation_data else None
    if mode == "selfplay":
        if data.data:
            raise ConfigError(
                "--data: not with --mode selfplay; expected --mode mixed, or --validation-data",
                found_by_all_ranks=True,
            )
        if filters:
            raise ConfigError(
                f"{filter_text(*next(iter(filters.items())))}: not with --mode selfplay, which has no given"
                " games to filter",
                found_by_all_ranks=True,
            )
        return None, held_out
    if not data.data and not get_game(game_name).has_embedded_games:
        raise ConfigError(
            f"--mode {mode}: no games of {game_name}; expected --data, or --mode selfplay",
            found_by_all_ranks=True,
        )
    window = _open_stores(data.data or (str(EMBEDDED_GAMES),), cache, exchange)
    window = exchange.on_each(lambda: with_filters(window, data))
    if held_out is None:
        window, held_out = window.split(data.validation_share)
    training = window
    return (
        exchange.on_each(lambda: for_training(training, data, seed, num_threads=num_threads)),
        held_out,
    )


def _open_stores(names: Sequence[str], cache: Path, exchange: Exchange) -> Window:
    """All games of the stores; raw files are imported once, by rank 0, before the others look."""
    paths = [Path(name) for name in names]

    def import_raw() -> None:
        open_or_import(paths, cache)

    exchange.on_main(import_raw)
    return exchange.on_each(lambda: Window.of_stores(open_or_import(paths, cache)))
