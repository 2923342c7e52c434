"""The figures of a generation: games per hour, and how busy the GPUs were while it was played."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alphazero.games.registry import get_spec
from alphazero.machine.nvml import GpuReading
from alphazero.play import lanes as games
from alphazero.play.selfplay import Played, new_lane
from alphazero.settings.load import load_config
from alphazero.show.alarms import Alarms
from alphazero.show.observer import SELF_PLAY, GpuMeter, Observer
from alphazero.training.sources.generations import report


class Told:
    """Services of one rank that remember."""

    def __init__(self, has_gpus: bool) -> None:
        self.lines: list[str] = []
        self.figures: list[dict[str, float]] = []
        exchange: Any = SimpleNamespace(rank=0, sum=lambda values: values, gather=lambda own: [own])
        self.meter = GpuMeter(lambda: SELF_PLAY) if has_gpus else None
        alarms = Alarms(self.lines.append, lambda kind, fields: None, clock=lambda: 0.0)
        self.services: Any = SimpleNamespace(
            exchange=exchange,
            observer=Observer(exchange.gather, 0, "host", 0, Path(), alarms, gpu="GPU-0", meter=self.meter),
            metrics=SimpleNamespace(
                write=lambda kind, step, figures: self.figures.append(figures), note=lambda name, text: None
            ),
            console=SimpleNamespace(say=self.lines.append),
        )

    def generation(
        self,
        number: int,
        num_games: int,
        seconds: float,
        busy: int = 0,
        *,
        has_cache: bool = True,
        batches: int = 2,
    ) -> None:
        """Report one."""
        if self.meter:
            self.meter.add([GpuReading(0, uuid="GPU-0", utilisation_percent=busy)])
        finished = games.to_batch([new_lane(lane) for lane in range(num_games)])
        played = Played(True, [], [], moves=10, simulations=100, evaluations=80, cached=20, batches=batches)
        config = load_config("connect4", {"evaluation_cache": str(int(has_cache)), "evaluation_batch": "40"})
        job: Any = SimpleNamespace(config=config, spec=get_spec("connect4"))
        report(job, self.services, 7, number, played, finished, None, seconds)


def test_games_per_hour_are_those_that_ended():
    told = Told(has_gpus=False)
    told.generation(1, 3, seconds=90.0)
    told.generation(2, 0, seconds=90.0)
    assert [figures["games_per_hour"] for figures in told.figures] == [120.0, 0.0]
    assert told.figures[0]["evaluations_per_s"] == pytest.approx(80 / 90)
    assert not any(name.startswith("gpu/") for name in told.figures[0])
    assert "120 games/hour" in told.lines[0]
    assert "GPUs" not in "".join(told.lines)


def test_the_share_from_the_cache_is_told_where_there_is_one():
    told = Told(has_gpus=False)
    told.generation(1, 1, seconds=10.0)
    told.generation(2, 1, seconds=10.0, has_cache=False)
    assert told.figures[0]["cached_share"] == pytest.approx(0.2)
    assert "20% of" in told.lines[0] and "cache" in told.lines[0]
    assert "cached_share" not in told.figures[1] and "cache" not in told.lines[1]
    assert told.figures[0]["evaluations_per_s"] == told.figures[1]["evaluations_per_s"] == 8.0


def test_gpus_that_wait_for_the_search_are_told_after_three_generations():
    told = Told(has_gpus=True)
    for number in range(1, 6):
        told.generation(number, 1, seconds=10.0, busy=50)
    assert told.figures[0]["gpu/host/gpu0/utilisation_percent"] == 50
    assert "GPUs busy 50%" in told.lines[0]
    (warning,) = [line for line in told.lines if line.startswith("alarm")]
    assert all(part in warning for part in ("80%", "self-play (100%", "for 3", "--lanes"))


def test_the_share_of_real_positions_in_batches_is_told():
    told = Told(has_gpus=False)
    told.generation(1, 1, seconds=10.0, batches=4)
    assert told.figures[0]["batch_fill"] == pytest.approx(80 / (4 * 40))
    assert "| batches 50% full |" in told.lines[0]


def test_a_generation_without_a_batch_has_no_fill():
    told = Told(has_gpus=False)
    for number in range(1, 6):
        told.generation(number, 1, seconds=10.0, batches=0)
    assert "batch_fill" not in told.figures[0]
    assert not any("full" in line for line in told.lines)
