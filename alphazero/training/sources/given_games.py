"""Given games: those to train on and those held out, their evaluations, the loader, and the data source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from alphazero.base.errors import ConfigError, RulesError
from alphazero.base.log import Work
from alphazero.data.formats.importer import silent
from alphazero.data.open import EMBEDDED_GAMES, open_or_import
from alphazero.data.sampling.filters import for_training, with_filters
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.value_curve import ValueCurve, curve_of
from alphazero.data.sampling.window import Mixture, Window
from alphazero.games.batch import MicroBatch
from alphazero.games.outside.names import is_outside
from alphazero.games.outside.symmetry import symmetries_of, use_symmetries
from alphazero.games.registry import get_game
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.settings.data import DataConfig, chosen_filters, filter_text
from alphazero.settings.load import Config
from alphazero.training.loop.job import Job, SourceState, Weights
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime


def make_loader(
    job: Job,
    window: Window,
    plan: BatchPlan,
    *,
    curve: ValueCurve | None = None,
    mixture: Mixture | None = None,
) -> Loader:
    """This rank's micro-batches of a window. curve, mixture: as Loader has them."""
    data, runtime = job.config.data, job.runtime
    return Loader(
        window,
        job.spec,
        seed=job.config.training.seed,
        batch_size=plan.batch_size,
        micro_batch_size=plan.micro_batch_size,
        passes=plan.passes_of(runtime.rank),
        num_threads=loader_threads(data, runtime),
        symmetries=job.spec.name != "chess" or data.mirror,
        value_q_ratio=job.config.training.value_q_ratio,
        curve=curve,
        mixture=mixture,
    )


def loader_threads(data: DataConfig, runtime: Runtime) -> int:
    """Threads that encode positions: as set, else one per rank on a CPU, a share of the cores on a GPU."""
    if data.num_workers >= 0:
        return max(1, data.num_workers)
    if runtime.device.type == "cpu":
        return 1
    return max(1, min(8, torch.get_num_threads() // 2))


@dataclass(frozen=True)
class GivenGames:
    """All steps of a run on one window."""

    job: Job
    window: Window
    curve: ValueCurve | None = None  # of its evaluations, where they count

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Nothing: the order is a function of the step."""

    def prepare(self, step: int, weights: Weights) -> int | None:
        """The end of the run: all data exists."""
        return self.job.num_steps

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 under a plan."""
        return make_loader(self.job, self.window, plan, curve=self.curve).iterate(first, last)

    def state(self) -> SourceState:
        """The window's id."""
        return SourceState(self.window.id)


def choose_value_curve(
    config: Config, window: Window | None, exchange: Exchange
) -> tuple[ValueCurve | None, list[str]]:
    """The curve that turns the window's evaluations into values, and a line about it. Collective.

    None in self-play, and where value_q_ratio is 0 or there are no evaluations. Raises DataError on all
    ranks alike.
    """
    ratio = config.training.value_q_ratio
    if window is None or config.self_play.mode != "supervised" or ratio == 0:
        return None, []

    def fit() -> Any:  # noqa: ANN401 - JSON
        window_curve = curve_of(window)
        return None if window_curve is None else [asdict(window_curve.curve), str(window_curve)]

    chosen = exchange.on_main(fit)
    if chosen is None:
        return None, []
    return ValueCurve(**chosen[0]), [f"evaluations       {ratio:g} of the value target {chosen[1]}"]


def find_symmetries(game: str, exchange: Exchange) -> list[str]:
    """Have samples of a game outside the core shown in its symmetries, and a line about them. Collective.

    Raises RulesError on all ranks alike, also where ranks found different ones.
    """
    if not is_outside(game):
        return []
    exchange.on_each(lambda: use_symmetries(game))
    symmetries = symmetries_of(game)
    digest = 0
    for symmetry in symmetries:
        digest = crc32(symmetry.actions.tobytes(), crc32(symmetry.numbers.tobytes(), digest))
    if len(set(exchange.numbers(digest))) > 1:
        raise RulesError(
            f"game {game}: ranks found different symmetries; expected rules that answer alike everywhere",
            found_by_all_ranks=True,
        )
    return [f"symmetries of {game}: {len(symmetries)} beside the identity"]


def open_data(
    config: Config,
    exchange: Exchange,
    *,
    num_threads: int = 1,
    beat: Callable[[], None] = silent,
    progress: Work | None = None,
) -> tuple[Window | None, Window | None]:
    """The given games to train on and those to validate on. Collective.

    Without games of one's own chess has embedded ones; self-play alone has none to train on. Filters hold for
    the share that is held out as well, but for those of training alone (drawn from the seed), and leave
    validation data of one's own as it is. beat: called again and again during an import. progress: of one,
    on rank 0. Raises ConfigError and DataError on all ranks alike.
    """
    data, mode, game_name = config.data, config.self_play.mode, config.network.game
    filters = exchange.on_each(lambda: chosen_filters(data))
    cache = Path(data.cache_dir)
    held_out = (
        _open_stores(data.validation_data, cache, exchange, beat, progress) if data.validation_data else None
    )
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
    window = _open_stores(data.data or (str(EMBEDDED_GAMES),), cache, exchange, beat, progress)
    window = exchange.on_each(lambda: with_filters(window, data))
    if held_out is None:
        window, held_out = window.split(data.validation_share)
    training = window
    return (
        exchange.on_each(lambda: for_training(training, data, config.training.seed, num_threads=num_threads)),
        held_out,
    )


def _open_stores(
    names: Sequence[str],
    cache: Path,
    exchange: Exchange,
    beat: Callable[[], None],
    progress: Work | None,
) -> Window:
    """All games of the stores; raw files are imported once, by rank 0, before the others look."""
    paths = [Path(name) for name in names]

    def import_raw() -> None:
        open_or_import(paths, cache, progress=progress, beat=beat)

    exchange.on_main(import_raw)
    return exchange.on_each(
        lambda: Window.of_stores(open_or_import(paths, cache, beat=beat, compare_content=False))
    )
