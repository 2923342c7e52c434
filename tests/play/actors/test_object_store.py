"""The place as a bucket with S3's interface: an actor plays for it, the service stops, refuses, is slow."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from alphazero.base.errors import PlaceError, PlaceRefusedError
from alphazero.cli.main import main
from alphazero.play.actors.place import PlaceEntry, open_place
from alphazero.play.actors.pointers import read_statuses
from tests.support.actors.learner import StandInLearner, games_in
from tests.support.actors.player import ActorThread, hurry
from tests.support.actors.s3 import BUCKET, LocalS3, listing, refusing, s3_url


@pytest.fixture(autouse=True)
def credentials(monkeypatch, tmp_path) -> None:
    """In the environment, as pyarrow takes them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    hurry(monkeypatch, tmp_path)


@pytest.fixture
def service():
    local = LocalS3()
    yield local
    local.close()


def test_an_object_is_written_read_listed_and_deleted(service) -> None:
    place = open_place(s3_url(service.port))
    assert place.get("games/a/1", 10) is None and place.entries("games") == []
    place.put("games/a/1", b"one")
    place.put("weights/2", bytes(20 << 20))
    assert place.get("games/a/1", 10) == b"one"
    assert place.entries("games") == [PlaceEntry("games/a/1", 3)]
    place.delete("games/a/1")
    place.delete("games/a/1")
    place.clear("games/a")
    assert place.entries("games") == [] and place.name == f"s3://{BUCKET}/run"


@pytest.mark.slow
def test_an_actor_plays_for_a_bucket_while_its_service_stops_and_returns(service, tmp_path) -> None:
    learner = StandInLearner(open_place(s3_url(service.port)))
    learner.publish(0)
    player = ActorThread(s3_url(service.port))
    player.until(lambda: len(learner.shards()) > 0)
    service.stop()
    player.until(lambda: any("; will be tried again" in line for line in player.lines))
    player.until(lambda: len(list((tmp_path / "cache").rglob("*.arrow"))) > 1)
    service.start()
    player.until(lambda: "the place answers again" in "\n".join(player.lines))
    player.end()
    assert games_in(learner) and not list((tmp_path / "cache").rglob("*.arrow"))
    ((_, status),) = read_statuses(learner.place).items()
    assert status.ended and status.shards == len(learner.shards())


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("ExpiredToken", 400, "the credentials have expired; expected new ones"),
        # Signed and asked again five times.
        pytest.param(
            *("RequestTimeTooSkewed", 403, "the clock of this machine says 20"), marks=pytest.mark.slow
        ),
        ("InvalidAccessKeyId", 403, "the access key is not known there; expected other credentials"),
        ("AccessDenied", 403, "access is denied; expected credentials that may read, write, list and delete"),
    ],
)
def test_what_a_service_refuses_is_one_line(code, status, said, capfd) -> None:
    with refusing(code, status) as url:
        assert main(["selfplay", "--for", url]) == 2
        assert f"{BUCKET}/run: settings.json: {said}" in (lines := capfd.readouterr().err)
        assert lines.count("\n") == 1
        with pytest.raises(PlaceRefusedError, match=said.partition(";")[0]):
            open_place(url).put("x", b"")


def test_a_bucket_that_is_not_there_is_refused_when_it_is_written_to(service) -> None:
    with pytest.raises(PlaceRefusedError, match="no such bucket"):
        open_place(s3_url(service.port).replace(BUCKET, "another-bucket")).put("x", b"")


@pytest.mark.slow
def test_a_service_that_does_not_answer_may_do_so_later(service) -> None:
    place = open_place(s3_url(service.port))
    service.stop()
    with pytest.raises(PlaceError, match="Could not connect") as caught:
        place.entries("games")
    assert not isinstance(caught.value, PlaceRefusedError)
    service.start()


def test_100_000_shards_are_listed_in_as_many_requests_as_there_are_thousands() -> None:
    names = [
        f"games/{actor:016x}/{number:08}-{number:016x}.arrow" for actor in range(50) for number in range(2000)
    ]
    requests: list[str] = []
    with listing(names, requests) as url:
        place = open_place(url)
        assert [entry.name for entry in place.entries("games")] == names
    assert len(requests) == 100


def test_a_signal_ends_an_actor_while_a_service_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-m", "alphazero", "selfplay", "--device", "cpu"]
        url = s3_url(silent.getsockname()[1])
        actor = subprocess.Popen([*command, "--for", url], stderr=subprocess.PIPE, text=True)
        try:
            silent.settimeout(60)
            connection, _ = silent.accept()  # it waits for an answer now
            actor.send_signal(signal.SIGTERM)
            began = time.monotonic()
            _, said = actor.communicate(timeout=60)
            assert (actor.returncode, said) == (0, "") and time.monotonic() - began < 10
            connection.close()
        finally:
            actor.kill()
