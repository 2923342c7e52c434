"""How long the jobs take that people ask about first, and what energy they need; by what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.doctor.figures import PresetFigures
from alphazero.settings.load import load_config

MILLION = 1_000_000
# `make demo`: the preset connect4, cut to so many generations.
DEMO_PRESET, DEMO_GENERATIONS = "connect4", 22
CHESS_POSITIONS = 100 * MILLION
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Estimate:
    """A job in words; hours is None where what it needs was not measured, kwh where the power was not."""

    job: str
    preset: str
    hours: float | None
    kwh: float | None


def training_hours(figures: PresetFigures, positions: int) -> float | None:
    """To train on so many positions."""
    return positions / figures.trains / 3600 if figures.trains else None


def energy_kwh(figures: PresetFigures, hours: float | None) -> float | None:
    """At the power that was measured while the preset trained."""
    if hours is None or not figures.watts:
        return None
    return sum(figures.watts.values()) * hours * 3600 / JOULES_PER_KWH


def estimates(measured: list[PresetFigures]) -> list[Estimate]:
    """The Connect Four demo, and 100 million positions of chess by each preset of chess."""
    found = []
    for one in measured:
        if one.preset == DEMO_PRESET:
            hours = self_play_hours(one, DEMO_GENERATIONS)
            job = f"the Connect Four demo (make demo: {DEMO_GENERATIONS} generations)"
            found.append(Estimate(job, one.preset, hours, energy_kwh(one, hours)))
        if one.game == "chess":
            hours = training_hours(one, CHESS_POSITIONS)
            job = f"{CHESS_POSITIONS // MILLION} million positions of chess"
            found.append(Estimate(job, one.preset, hours, energy_kwh(one, hours)))
    return found


def self_play_hours(figures: PresetFigures, generations: int) -> float | None:
    """A run that learns from its own games: their making and the training on them, which take turns."""
    if not figures.plays or not figures.trains:
        return None
    own = load_config(figures.preset, {}).self_play
    trained = generations * own.steps_per_generation * figures.batch_size
    return (trained / figures.trains + trained / own.reuse / figures.plays) / 3600
