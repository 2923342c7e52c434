"""Run directories as a trainer leaves them, with figures that are made up."""

import json
import math
from pathlib import Path
from typing import Any

from alphazero.run.directory import RunDirectory
from alphazero.run.validation_record import (
    Bins,
    PhaseFigures,
    SeenGame,
    SeenGames,
    SeenPly,
    ValidationRecord,
    WrongPosition,
    append_record,
    write_games,
)
from alphazero.settings.load import Config, to_table

SHORT_GAME = ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5")


def write_run(path: Path, lines: list[dict[str, Any]], game: str = "chess") -> RunDirectory:
    """A run with these lines of metrics and the default settings."""
    run = RunDirectory(path)
    path.mkdir(parents=True)
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = to_table(Config())
    config["network"]["game"] = game
    run.config.write_text(json.dumps(config))
    return run


def step_line(step: int, **figures: float) -> dict[str, Any]:
    """What rank 0 writes for a step."""
    usual = {"loss": 3.0, "policy_loss": 2.0, "value_loss": 1.0, "policy_top1": 0.2, "value_mse": 0.5}
    return {"kind": "step", "step": step, **usual, "learning_rate": 1e-3, **figures}


def supervised_lines(steps: int = 40, validation_interval: int = 10) -> list[dict[str, Any]]:
    """A run that learns: the loss falls, and is measured every so often."""
    lines: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        loss = 3 * math.exp(-step / steps) + 0.1 * math.sin(step)
        lines.append(step_line(step, policy_loss=loss, policy_top1=0.3 * step / steps))
        if step % 5 == 0:
            shares = {"compute": 0.8, "data_wait": 0.1, "communication": 0.06, "checkpoint": 0.01}
            lines.append({"kind": "time_share", "step": step, **shares, "host_overhead": 0.03})
            speed = {"samples_per_s": 1000.0 + step, "samples_per_s_per_rank": 500.0 + step / 2}
            lines.append({"kind": "speed", "step": step, **speed, "minutes": step / 10})
            figures = {"utilisation_percent": 90.0, "memory_used_gib": 30.0, "power_w": 400.0}
            gpus = {f"node1/gpu{n}/{name}": value + n for n in (0, 1) for name, value in figures.items()}
            lines.append({"kind": "gpu", "step": step, **gpus})
            host = {"host/memory_available_gib": 20.0, "host/load": 2.0, "host/disk_free_gib": 50.0}
            lines.append({"kind": "health", "step": step, **host})
        if step % validation_interval == 0:
            figures = {"policy_loss": loss + 0.1, "value_loss": 0.9, "value_mse": 0.6}
            top = {"policy_top1": 0.25 * step / steps, "policy_top5": 0.5}
            lines.append({"kind": "validation", "step": step, **figures, **top})
    return lines


def record_of(step: int, positions: int = 100, **others: Any) -> ValidationRecord:
    """A validation's record: ten bins, three phases."""
    middle = tuple((index + 0.5) / 10 for index in range(10))
    bins = Bins((positions // 10,) * 10, middle, tuple(round(0.05 + 0.9 * one, 5) for one in middle))
    phases = tuple(
        PhaseFigures(name, positions // 2, round(0.3 + 0.1 * place, 5), 2.0, round(0.8 - 0.1 * place, 5))
        for place, name in enumerate(("opening", "middlegame", "endgame"))
    )
    wrong = (
        WrongPosition(
            "policy",
            "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
            "a2a4",
            0.004,
            (("e2e4", 0.6), ("d2d4", 0.3)),
            0.1,
            -1.0,
        ),
        WrongPosition("value", "8/8/8/8/8/5k2/5p2/5K2 b - - 0 1", "f3g3", 0.2, (("f3e3", 0.4),), 0.9, 0.0),
    )
    return ValidationRecord(step, "results", positions, bins, bins, phases, wrong, **others)


def write_validations(run: RunDirectory, steps: tuple[int, ...] = (10, 20, 30, 40)) -> None:
    """Records of validations, and a held-out game as the newest network sees it."""
    for step in steps:
        append_record(run, record_of(step))
    plies = tuple(
        SeenPly(0.1 * place, 0.3, ((move, 0.5), ("h2h3" if place % 2 == 0 else "h7h6", 0.1)))
        for place, move in enumerate(SHORT_GAME)
    )
    labels = {"white": "Anna", "black": "Boris", "event": "Rapid"}
    game = SeenGame(None, SHORT_GAME, "1-0", plies, labels)
    write_games(run, SeenGames(steps[-1], "chess", (game, game)))


def supervised_run(path: Path) -> RunDirectory:
    """All that a supervised run of chess leaves for a report."""
    run = write_run(path, supervised_lines())
    write_validations(run)
    for number, step in enumerate((0, 20)):
        command = ["./launch_distributed_training.sh", "--config", "chess_cpu"]
        started = {"time": f"2026-01-0{number + 1}T10:00:00+0000", "host": "node1", "step": step}
        started |= {"argv": [], "command": command}
        (path / f"started-2026010{number + 1}-100000.json").write_text(json.dumps(started))
    return run
