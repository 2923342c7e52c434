"""Runs that learn from their own games: killed, cut in two, on one rank and on two, they end the same."""

import json
import os
import random
import re
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alphazero.data.store.store import GameStore
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from tests.support.jobs.kill_chain import sleep_while_running

GENERATIONS, STEPS = 4, 5
LIFE_S = 3.0  # about as long as a run lives
ARGUMENTS = (
    *("--config", "connect4", "--blocks", "1", "--filters", "8", "--run-name", "job"),
    *("--generations", str(GENERATIONS), "--steps-per-generation", str(STEPS), "--reuse", "1"),
    *("--lanes", "10", "--simulations-per-round", "40", "--simulations", "6", "--evaluation-batch", "8"),
    *("--batch-size", "32", "--micro-batch-size", "16", "--precision", "fp32", "--window-minimum", "100"),
    *("--checkpoint-interval", "3", "--validation-interval", "0", "--log-interval", "5", "--no-tensorboard"),
)
RUN = Path("runs") / "job"
PLAYED_IN = {"int8": (), "fp32": ("--evaluation-precision", "training")}


def run(zygote, directory, ranks, *extra, status=0):
    job = zygote.start(directory, ranks, [*ARGUMENTS, *extra])
    assert job.wait() == [status] * ranks, job.output()[-4000:]
    return job.output()


def games_of(directory: Path) -> GameStore:
    store = GameStore.open(directory / RUN / "games")
    store.verify()
    return store


def newest_checkpoint(directory: Path) -> Path:
    return directory / RUN / "checkpoints" / f"step-{GENERATIONS * STEPS:08d}"


def weights_of(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(newest_checkpoint(directory) / "weights.safetensors")


def assert_same(directory: Path, other: Path) -> None:
    assert games_of(directory).manifest.sha256 == games_of(other).manifest.sha256
    weights = weights_of(other)
    for name, tensor in weights_of(directory).items():
        assert torch.equal(tensor, weights[name]), name


@pytest.fixture(scope="module")
def undisturbed(zygote, tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    run(zygote, directory, 2)
    return directory


def test_every_generation_has_a_shard_of_games_and_is_trained_on(undisturbed) -> None:
    store = games_of(undisturbed)
    events = [set(shard.table.column("event").to_pylist()) for shard in store.shards]
    assert events == [{f"generation {number}"} for number in range(1, GENERATIONS + 1)]
    run_directory = RunDirectory(undisturbed / RUN)
    assert len(RunFigures.read(run_directory).of("step").rows()) == GENERATIONS * STEPS
    figures = RunFigures.read(run_directory).of("self_play").rows()
    assert [line["generation"] for line in figures] == [1, 2, 3, 4]
    assert [line["step"] for line in figures] == [0, 5, 10, 15]


def test_training_never_runs_further_ahead_of_the_games_than_reuse_allows(undisturbed) -> None:
    positions = 0
    for line in RunFigures.read(RunDirectory(undisturbed / RUN)).of("self_play").rows():
        positions += line["positions"]
        assert (line["step"] + STEPS) * 32 <= positions


def test_games_and_weights_are_the_same_on_one_rank_and_on_two(zygote, tmp_path, undisturbed) -> None:
    """Two micro-batches a step: one rank adds the two gradients that two ranks exchange."""
    run(zygote, tmp_path, 1)
    assert_same(tmp_path, undisturbed)


def test_another_seed_plays_other_games(zygote, tmp_path, undisturbed) -> None:
    run(zygote, tmp_path, 1, "--seed", "1")
    assert games_of(tmp_path).manifest.sha256 != games_of(undisturbed).manifest.sha256


@pytest.mark.parametrize("most_kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_leave_no_trace(zygote, tmp_path, undisturbed, most_kills) -> None:
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILL_SEED={seed} chooses these instants again")
    rng = random.Random(seed)
    kills = finished = 0
    while kills < most_kills or not finished:
        job = zygote.start(tmp_path, 2, ARGUMENTS)
        if kills < most_kills:
            sleep_while_running(job, rng.uniform(0.2, LIFE_S))
            job.kill()
        statuses = job.wait()
        kills += -9 in statuses
        if statuses == [0, 0]:
            # Where it ended before it was killed often enough it begins once more.
            assert_same(tmp_path, undisturbed)
            finished += 1
            (tmp_path / RUN).rename(tmp_path / f"finished-{finished}")
    assert kills == most_kills


def test_a_signal_amid_the_games_ends_with_a_checkpoint_and_the_run_goes_on(
    zygote, tmp_path, undisturbed
) -> None:
    job = zygote.start(tmp_path, 2, ARGUMENTS)
    beat = tmp_path / RUN / "heartbeat" / "rank-00000.json"
    while job.is_running():
        last = json.loads(beat.read_text()) if beat.exists() else {"step": 0, "phase": ""}
        if last["step"] >= STEPS and last["phase"].startswith("self-play"):
            break
        sleep_while_running(job, 0.001)
    job.send(signal.SIGTERM)
    assert job.wait() == [128 + signal.SIGTERM] * 2
    assert "games of generation" in job.output()
    assert "resumed from step" in run(zygote, tmp_path, 2)
    assert_same(tmp_path, undisturbed)


def test_a_signal_before_the_first_step_names_no_step_and_no_checkpoint(zygote, tmp_path) -> None:
    job = zygote.start(tmp_path, 1, [*ARGUMENTS, "--lanes", "400", "--simulations", "400"])
    beat = tmp_path / RUN / "heartbeat" / "rank-00000.json"
    while not (beat.exists() and json.loads(beat.read_text())["phase"].startswith("self-play")):
        sleep_while_running(job, 0.01)
    job.send(signal.SIGINT)
    assert job.wait() == [128 + signal.SIGINT]
    said = job.output()
    assert "of generation 1" in said and "during step" not in said
    assert "no checkpoint yet" in said
    assert "saved" not in said and "continue with" not in said


def test_going_on_from_an_older_checkpoint_sets_the_newer_games_aside(zygote, tmp_path, undisturbed) -> None:
    run(zygote, tmp_path, 2, "--keep-checkpoints", "100")
    older = tmp_path / RUN / "checkpoints" / "step-00000009"
    assert older.is_dir()
    run(zygote, tmp_path, 2, "--resume", str(older))
    # Set aside, played again to the same bytes, and so not kept twice.
    assert_same(tmp_path, undisturbed)
    assert not list((tmp_path / RUN / "games" / "set-aside").iterdir())


@pytest.mark.slow
def test_a_gate_decides_alike_on_other_ranks_and_after_a_kill(zygote, tmp_path) -> None:
    gate = ("--gate-games", "6", "--gate-score", "0.6", "--learning-rate", "0.02")
    output = run(zygote, tmp_path / "two", 2, *gate)
    assert output.count("new weights won") == GENERATIONS - 1
    job = zygote.start(tmp_path / "one", 1, [*ARGUMENTS, *gate])
    sleep_while_running(job, LIFE_S / 2)
    job.kill()
    job.wait()
    run(zygote, tmp_path / "one", 1, *gate)
    assert_same(tmp_path / "one", tmp_path / "two")


def test_weights_that_a_gate_holds_back_do_not_play(zygote, tmp_path) -> None:
    """No twin wins every game: the first weights play to the end, while those that learn move on."""
    output = run(zygote, tmp_path, 1, "--gate-games", "4", "--gate-score", "1", "--keep-checkpoints", "100")
    assert output.count("old ones play") == GENERATIONS - 1
    last = newest_checkpoint(tmp_path)
    first = last.with_name("step-00000003")
    champions = [load_file(path / "champion.safetensors") for path in (first, last)]
    weights = [load_file(path / "weights.safetensors") for path in (first, last)]
    assert all(torch.equal(champions[0][name], tensor) for name, tensor in champions[1].items())
    assert not all(torch.equal(weights[0][name], tensor) for name, tensor in weights[1].items())


def test_games_that_are_gone_are_named(zygote, tmp_path) -> None:
    run(zygote, tmp_path, 1, "--generations", "2")
    for path in (tmp_path / RUN / "games").iterdir():
        path.unlink()
    output = run(zygote, tmp_path, 1, status=2)
    assert "runs/job/games: not" in output and output.count("error:") == 1


def test_self_play_has_a_precision_of_its_own(zygote, undisturbed, tmp_path) -> None:
    """It is int8 on a CPU unless another is asked for; the banner says which."""
    one = ("--generations", "1")
    said = {name: run(zygote, tmp_path / name, 1, *one, *flags) for name, flags in PLAYED_IN.items()}
    for name, output in said.items():
        assert f"batches of 8 in {name}\n" in output and "precision         fp32" in output
    first = {
        name: games_of(path).shards[0].table.column("root_q").to_pylist()
        for name, path in (("again", undisturbed), *((name, tmp_path / name) for name in said))
    }
    assert first["again"] == first["int8"] != first["fp32"]


def test_tablebases_that_cannot_be_used_end_the_start_in_one_line(zygote, tmp_path) -> None:
    output = run(zygote, tmp_path, 2, "--syzygy", str(tmp_path / "absent"), status=2)
    assert output.count("--syzygy") == 1 and "Traceback" not in output
    assert not (tmp_path / RUN / "checkpoints").exists()


def test_other_lanes_are_refused_on_resume(zygote, tmp_path) -> None:
    run(zygote, tmp_path, 1, "--generations", "1")
    output = run(zygote, tmp_path, 1, "--lanes", "12", status=2)
    assert "--lanes 12:" in output and output.count("error:") == 1


def test_lanes_and_budget_are_chosen_for_the_first_ranks_and_kept_by_others(zygote, tmp_path) -> None:
    """Two batches of 80 for each of two ranks. On one rank, asked for again or not, the run has as many."""

    def chosen(step: int) -> tuple[int, int]:
        state = tmp_path / RUN / "checkpoints" / f"step-{step:08d}" / "state.json"
        own = json.loads(state.read_text())["config"]["self_play"]
        return own["lanes"], own["simulations_per_round"]

    auto = ("--lanes", "auto", "--simulations-per-round", "auto", "--evaluation-batch", "80")
    said = run(zygote, tmp_path, 2, *auto, "--generations", "1")
    assert "320 lanes, puct with 6" in said
    # 160 positions of 6 simulations are less than a search of every lane, which a round has at least.
    assert chosen(5) == (320, 6)
    said = run(zygote, tmp_path, 1, *auto, "--generations", "2")
    assert "320 lanes" in said and "lanes 320" not in said and chosen(10) == (320, 6)


def test_given_games_are_mixed_in_and_a_resume_asks_for_the_same(zygote, undisturbed, tmp_path) -> None:
    given = undisturbed / RUN / "games"
    mixed = ("--mode", "mixed", "--pretraining-steps", "3", "--historical-share", "0.5")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    end = ("--steps", "13")
    run(zygote, whole, 1, *mixed, "--data", str(given), *end)
    figures = RunFigures.read(RunDirectory(whole / RUN)).of("self_play").rows()
    assert [line["step"] for line in figures] == [3, 8]
    run(zygote, halves, 1, *mixed, "--data", str(given), "--steps", "9")
    others = whole / RUN / "games"
    said = run(zygote, halves, 1, *mixed, "--data", str(others), *end, status=2)
    assert "data was" in said and "--accept-new-data" in said
    assert said.count("data was") == 1
    run(zygote, halves, 1, *mixed, "--data", str(given), *end)
    assert games_of(halves).manifest.sha256 == games_of(whole).manifest.sha256
    weights = [
        load_file(d / RUN / "checkpoints" / "step-00000013" / "weights.safetensors") for d in (whole, halves)
    ]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    said = run(zygote, halves, 1, *mixed, "--data", str(others), "--steps", "14", "--accept-new-data")
    assert re.search(r"^changed: data \w{12} -> \w{12}$", said, re.MULTILINE)
