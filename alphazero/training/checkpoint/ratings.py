"""Ratings of a run's checkpoints, in its ratings.jsonl, a JSON object a line; the best is marked best-elo.

`alphazero rate RUN --checkpoints` makes them, on one ladder for all; training itself measures no Elo.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alphazero.errors import CheckpointError
from alphazero.files import cut_unfinished_line
from alphazero.network.weights.weights import best_weights_file_name, write_weights
from alphazero.run.run_directory import RunDirectory
from alphazero.training.checkpoint import files
from alphazero.training.checkpoint.any_weights import weights_of_checkpoint

RATINGS = "ratings.jsonl"
METRIC = "elo"


def keep_rating(run: Path, rating: Mapping[str, Any]) -> None:
    """Append the rating of a checkpoint: `step`, `elo`, `limit` (how it played), and anything else."""
    file = run / RATINGS
    cut_unfinished_line(file)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(dict(rating)) + "\n")


def mark_best_rated(run: Path) -> tuple[Path, float] | None:
    """Mark the strongest checkpoint best-elo and write its weights as a file; that checkpoint and its Elo.

    Of a checkpoint the newest rating counts, and only those at the limit of the newest one of all: others
    are not comparable. None where no checkpoint that stands has a rating.
    """
    ratings = list(_ratings_in(run / RATINGS))
    of_steps = {each["step"]: each["elo"] for each in ratings if each["limit"] == ratings[-1]["limit"]}
    directory = RunDirectory(run).checkpoints
    standing = {
        path: of_steps[step] for path in _complete(directory) if (step := files.step_of(path)) in of_steps
    }
    if not standing:
        return None
    best = max(standing, key=standing.__getitem__)
    files.point_at(directory, METRIC, best, standing[best])
    weights = weights_of_checkpoint(best)
    write_weights(run / best_weights_file_name(weights.config, METRIC), weights)
    return best, standing[best]


def _ratings_in(file: Path) -> Iterator[dict[str, Any]]:
    """Lines that are whole."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rating = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(rating, dict) and all(_is_finite(rating.get(name)) for name in ("step", METRIC)):
            yield {"limit": None, **rating}


def _is_finite(value: object) -> bool:
    return files.is_number(value) and math.isfinite(value)


def _complete(directory: Path) -> Iterator[Path]:
    for path in files.checkpoints_in(directory) if directory.is_dir() else []:
        try:
            files.verify(path, hash_files=False)
        except CheckpointError:
            continue
        yield path
