"""Evaluations of given games as value targets: one curve for all ranks, told once."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from alphazero.config import Config
from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Window
from alphazero.data.sampling.window_curve import curve_of
from alphazero.training.exchange import Exchange


def choose_value_curve(
    config: Config, window: Window | None, exchange: Exchange
) -> tuple[ValueCurve | None, list[str]]:
    """The curve by which rank 0 turns the window's evaluations into values, and a line about it. Collective.

    None where they do not count (data_value_q_ratio is 0; self-play), and where there are none. Raises
    DataError on all ranks alike.
    """
    ratio = config.data.data_value_q_ratio
    if window is None or config.self_play.mode != "supervised" or ratio == 0:
        return None, []

    def fit() -> Any:  # noqa: ANN401 - JSON
        found = curve_of(window)
        return None if found is None else [asdict(found.curve), str(found)]

    chosen = exchange.on_main(fit)
    if chosen is None:
        return None, []
    return ValueCurve(**chosen[0]), [f"evaluations       {ratio:g} of the value target {chosen[1]}"]
