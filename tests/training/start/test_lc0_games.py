"""A run on lc0's training data: it learns from the policies, and from the values where they are asked for."""

import random
from pathlib import Path

import pytest

from alphazero.data.formats.importer import import_games
from tests.support.data.lc0_records import records_of, standard_game, write
from tests.support.jobs.jobs import step_lines


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight games with lc0's own kind of records."""
    directory = tmp_path_factory.mktemp("lc0")
    for number in range(8):
        records = records_of(standard_game(number, 40), (1, 0, -1)[number % 3], random.Random(number))
        write(directory / f"game_{number:06d}.gz", records)
    import_games([directory], directory / "store", workers=1)
    return directory / "store"


def losses(zygote, directory: Path, store: Path, *flags: str) -> list[dict[str, float]]:
    """Every step's figures of a run of one rank."""
    zygote.run_job(directory, store, 1, "--steps", "20", "--learning-rate", "0.01", *flags)
    return step_lines(directory)


@pytest.mark.slow
def test_the_loss_falls_and_values_are_mixed_in(zygote, store: Path, tmp_path: Path):
    results = losses(zygote, tmp_path / "results", store)
    values = losses(zygote, tmp_path / "values", store, "--value-q-ratio", "0.5")
    for steps in (results, values):
        assert len(steps) == 20
        assert steps[-1]["loss"] < steps[0]["loss"] - 0.05
    assert values[0]["policy_loss"] == results[0]["policy_loss"]
    assert values[0]["value_loss"] != results[0]["value_loss"]
