"""Hosts that are not as they should be: another file, another version, a wrong clock, a full disk.

Each is one line, costs no game, and is mended without a new start where it can be.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from alphazero import __version__
from alphazero.games.registry import read_game
from alphazero.play.actors.place import open_place
from tests.support.actors.bucket import VARIABLES, Bucket
from tests.support.actors.learner import StandInLearner, games_in
from tests.support.actors.ledger import Archive, add_up
from tests.support.hosts.hosts import Host, run
from tests.support.jobs.jobs import TRAIN, environment
from tests.support.jobs.zygote import Job, Zygote
from tests.support.paths import REPOSITORY
from tests.training.sources.test_arrivals import QuickActor
from tests.training.start.test_self_play_runs import ARGUMENTS, RUN

pytestmark = pytest.mark.slow
SUPPORT = REPOSITORY / "tests" / "support"
LEARNER = (*ARGUMENTS, "--self-play-from", "elsewhere")
LIMIT_S = 120.0


class Site:
    """Starts actors and learners on hosts."""

    def __init__(self, zygote: Zygote, directory: Path) -> None:
        self._zygote, self._directory = zygote, directory

    def actor(self, host: Host, place: Path, *flags: str) -> Job:
        words = ("--for", str(place), "--device", "cpu", *flags)
        return self._start(host, SUPPORT / "actors" / "act.py", words, self._directory / host.name)

    def learner(self, host: Host, *flags: str) -> Job:
        return self._start(host, TRAIN, (*LEARNER, *flags), self._directory)

    def _start(self, host: Host, script: Path, words: tuple[str, ...], directory: Path) -> Job:
        variables = {"XDG_CACHE_HOME": str(directory / "cache")}
        arguments = [str(host.space.pid), str(script), *words]
        return self._zygote.start(directory, 1, arguments, SUPPORT / "actors" / "on_host.py", variables)


@pytest.fixture
def site(zygote, tmp_path) -> Site:
    return Site(zygote, tmp_path)


def until(what: Callable[[], object], *jobs: Job) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, "\n\n".join(job.output()[-4000:] for job in jobs)
        time.sleep(0.1)


def small_disk(host: Host, path: Path, size: str) -> Path:
    """A file system of its own; where all other processes see it."""
    path.mkdir(parents=True, exist_ok=True)
    host.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    return Path(f"/proc/{host.space.pid}/root{path}")


def fill(disk: Path) -> None:
    """To the last byte."""
    subprocess.run(["dd", "if=/dev/zero", f"of={disk}/filler", "bs=4k"], stderr=subprocess.DEVNULL)


def lines_with(words: str, job: Job) -> list[str]:
    return [line for line in job.output().splitlines() if words in line]


def generations_of(run_directory: Path) -> int:
    order = run_directory / "games-order.jsonl"
    return order.read_text().count("\n") if order.exists() else 0


def test_another_python_file_is_one_line_and_the_learners_file_is_played(site, network, tmp_path) -> None:
    host = network(1).hosts[0]
    file, place = tmp_path / "games" / "nim.py", open_place(str(tmp_path / "place"), make=True)
    host.make_private(file.parent)
    there = Path(f"/proc/{host.space.pid}/root{file}")
    shutil.copy(REPOSITORY / "examples" / "nim.py", file)
    there.write_text(f"{file.read_text()}# changed\n")
    learner = StandInLearner(place, game=(game := read_game("--game", f"{file}:Nim")))
    learner.publish(0)
    other = site.actor(host, tmp_path / "place", "--game", f"{file}:Nim")
    assert other.wait() == [2]
    (line,) = other.output().splitlines()
    digest = game.rpartition("@")[2]
    assert re.search(
        rf"sha256 begins with \w{{12}}, that of the learner's file with {digest}; expected", line
    )
    shutil.copy(file, there)
    same = site.actor(host, tmp_path / "place", "--game", f"{file}:Nim")
    until(learner.shards, same)
    same.send(15)
    assert same.wait() == [0] and games_in(learner)


def test_another_version_on_a_host_is_one_line(network, tmp_path) -> None:
    host = network(1).hosts[0]
    ours = REPOSITORY / "alphazero" / "__init__.py"
    other = tmp_path / "other.py"
    other.write_text(ours.read_text().replace(f'__version__ = "{__version__}"', '__version__ = "0.0.9"'))
    host.run("mount", "--bind", str(other), str(ours))
    StandInLearner(open_place(str(tmp_path / "place"), make=True)).publish(0)
    words = ("-m", "alphazero", "selfplay", "--for", str(tmp_path / "place"), "--device", "cpu")
    actor = host.argv(sys.executable, *words, cwd=tmp_path)
    said = subprocess.run(actor, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
    assert said.returncode == 2 and said.stderr.count("\n") == 1
    words = f"settings.json: the learner is alphazero version {__version__} (format 1); expected 0.0.9 (1)"
    assert words in said.stderr


def test_clocks_two_hours_off_on_both_sides_cost_no_game(network, tmp_path) -> None:
    """S3's client corrects its signatures by the service's time; the program itself compares no clocks."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    run(["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "clock.so"), str(SUPPORT / "hosts" / "clock.c")])
    store, early, late = network(3).hosts
    bucket = Bucket(store, tmp_path)

    def start(host: Host, ahead_s: int, *words: str) -> tuple[subprocess.Popen, Path, Path]:
        clock, output = tmp_path / f"{host.name}-ahead", tmp_path / f"{host.name}.txt"
        clock.write_text(str(ahead_s))
        variables = {"LD_PRELOAD": str(tmp_path / "clock.so"), "CLOCK_AHEAD": str(clock)}
        own = {**environment(), **VARIABLES, **variables, "XDG_CACHE_HOME": str(tmp_path / host.name)}
        log = output.open("w")
        words = (sys.executable, "-m", "alphazero", *words)
        return host.popen(*words, cwd=tmp_path, env=own, stdout=log, stderr=log), clock, output

    flags = ("--place", bucket.place, "--generations", "12")
    learner, _, said = start(early, -7200, "train", *LEARNER, *flags)
    actor, clock, said_there = start(late, 7200, "selfplay", "--for", bucket.place, "--device", "cpu")
    try:
        deadline = time.monotonic() + LIMIT_S
        while generations_of(tmp_path / RUN) < 4:
            assert time.monotonic() < deadline, said.read_text() + said_there.read_text()
            time.sleep(0.2)
        clock.write_text("0")  # it is set while it plays
        refused = bucket.requests().count("skewed")
        assert learner.wait(LIMIT_S) == 0, said.read_text()
        assert actor.wait(60) == 0, said_there.read_text()
    finally:
        for process in (learner, actor):
            process.kill()
    assert refused >= 2 and bucket.requests().count("skewed") > refused
    for text in (said.read_text(), said_there.read_text()):
        assert "Traceback" not in text and "training continues" not in text
        failed = [line for line in text.splitlines() if "tried again" in line]
        assert all("no learner has started here" in line for line in failed)
    found = add_up(tmp_path / RUN, bucket.archive, bucket.objects)
    assert found["used"] > 0 and found["refused"] == 0


def test_a_full_disk_at_the_place_is_one_line_on_each_side_until_it_is_freed(site, network, tmp_path) -> None:
    host, path = network(1).hosts[0], tmp_path / "place"
    disk = small_disk(host, path, "16m")
    learner = site.learner(host, "--place", str(path), "--generations", "100")
    actor = site.actor(host, path)
    full = "No space left on device"
    with Archive(disk, tmp_path / "archive"):
        until(lambda: generations_of(tmp_path / RUN) > 2, learner, actor)
        fill(disk)
        until(lambda: lines_with(full, learner) and lines_with(full, actor), learner, actor)
        time.sleep(10)
        (disk / "filler").unlink()
        before = generations_of(tmp_path / RUN)
        until(lambda: generations_of(tmp_path / RUN) > before + 3, learner, actor)
        for job in (actor, learner):
            job.send(15)
        assert actor.wait() == [0] and learner.wait() == [143], learner.output()[-4000:]
    found = add_up(tmp_path / RUN, tmp_path / "archive", disk)
    assert found["used"] > 0 and found["refused"] == 0


def test_a_full_disk_of_an_actor_is_one_line_and_games_are_published_all_the_same(
    site, network, tmp_path
) -> None:
    host, place = network(1).hosts[0], open_place(str(tmp_path / "place"), make=True)
    disk = small_disk(host, tmp_path / "host1" / "cache", "4m")
    learner = StandInLearner(place)
    learner.publish(0)
    fill(disk)
    refused = site.actor(host, tmp_path / "place")
    assert refused.wait() == [2]
    (line,) = refused.output().splitlines()
    assert re.search(r"/cache/alphazero/actors/.*: No space left on device; expected a disk that has", line)
    (disk / "filler").unlink()
    actor = site.actor(host, tmp_path / "place")
    until(learner.shards, actor)
    fill(disk)
    before = len(learner.shards())
    learner.publish(7)
    until(lambda: len(learner.shards()) > before + 1 and lines_with("tried again", actor), actor)
    (of_games,) = lines_with("games wait in memory until they are published", actor)
    (of_weights,) = lines_with("tried again", actor)
    assert re.search(r"-\w+\.arrow: No space left on device; expected a disk that has space;", of_games)
    assert re.search(r"/7\.safetensors: No space left on device; expected a disk that has space;", of_weights)
    (disk / "filler").unlink()
    until(lambda: any(step == 7 for _, _, step, _ in games_in(learner)), actor)
    actor.send(15)
    assert actor.wait() == [0] and "Traceback" not in actor.output()


def test_a_full_disk_of_the_learner_is_one_line_and_the_next_start_goes_on(site, network, tmp_path) -> None:
    host, place = network(1).hosts[0], tmp_path / "place"
    disk = small_disk(host, tmp_path / "runs", "64m")
    flags = ("--place", str(place), "--generations", "12")
    learner = site.learner(host, *flags)
    with Archive(place, tmp_path / "archive"), QuickActor(place):
        until(lambda: generations_of(disk / "job") > 2, learner)
        fill(disk)
        assert learner.wait() == [2]
        (line,) = lines_with("error: ", learner)
        assert "No space left on device" in line and "runs/job/" in line
        (disk / "filler").unlink()
        again = site.learner(host, *flags)
        assert again.wait() == [0], again.output()[-4000:]
    found = add_up(disk / "job", tmp_path / "archive", place)
    assert found["used"] > 0 and found["refused"] == 0
