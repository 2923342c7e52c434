"""The place where actors and a learner meet, as a directory: objects, pointers, what is refused."""

import hashlib
import json
import re

import pyarrow as pa
import pytest
import torch

from alphazero.base.errors import ConfigError, DataError, PlaceError, PlaceRefusedError
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_weights
from alphazero.network.weights.weights import WeightsFile
from alphazero.play.actors.place import PlaceEntry, open_place
from alphazero.play.actors.pointers import (
    Account,
    ActorStatus,
    LearnerState,
    PlaceSettings,
    fetch_weights,
    publish_weights,
    read_learner,
    read_newest,
    read_settings,
    read_statuses,
    rules_digest,
    write_learner,
    write_settings,
    write_status,
)
from alphazero.play.actors.shard import ShardName, new_actor, read_shard, shard_of
from alphazero.play.lanes import GAME_SCHEMA, to_bytes
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.actors.learner import put_shard

EMPTY = pa.RecordBatch.from_pylist([], GAME_SCHEMA)
ACTOR = "0123456789abcdef"


def settings_of(**others: object) -> PlaceSettings:
    own = SelfPlayConfig(max_plies=77)
    values = {"game": "connect4", "lead_positions": 1000, "seed": 5, "precision": "fp32"}
    return PlaceSettings(**{**values, "search": SearchConfig(simulations=9), "self_play": own, **others})


@pytest.fixture
def place(tmp_path):
    return open_place(str(tmp_path / "place"), make=True)


def test_an_object_is_written_read_listed_and_deleted(place) -> None:
    assert place.get("games/a/1", 10) is None and place.entries("games") == []
    place.put("games/a/1", b"one")
    place.put("games/b/2", b"two two")
    place.put("games/a/1", b"again")
    assert place.get("games/a/1", 5) == b"again"
    assert place.entries("games") == [PlaceEntry("games/a/1", 5), PlaceEntry("games/b/2", 7)]
    with pytest.raises(DataError, match="games/b/2: over 6 bytes"):
        place.get("games/b/2", 6)
    place.delete("games/a/1")
    place.delete("games/a/1")
    assert place.entries("games/a") == [] and place.entries("games") == [PlaceEntry("games/b/2", 7)]


def test_what_a_killed_writer_left_is_not_listed_and_is_cleared(place, tmp_path) -> None:
    place.put("games/a/1", b"one")
    left = tmp_path / "place/games/a/.1.4711.tmp"
    left.write_bytes(b"o")
    assert place.entries("games") == [PlaceEntry("games/a/1", 3)]
    place.clear("games/a")
    assert not left.exists() and place.get("games/a/1", 9) == b"one"
    place.delete("games/a/1")
    place.clear("games/a")
    assert not (tmp_path / "place/games/a").exists()
    place.put("games/a/2", b"two")  # an actor that had only been away


def test_a_directory_that_is_not_there_is_no_empty_place(tmp_path) -> None:
    place = open_place(str(tmp_path / "share"))
    for call in (
        lambda: place.get("learner.json", 9),
        lambda: place.put("games/a/1", b""),
        lambda: place.entries("games"),
    ):
        with pytest.raises(PlaceError, match=r"share: .*: no such directory"):
            call()
    assert not (tmp_path / "share").exists()


def test_a_run_is_named_for_its_place(tmp_path) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    open_place(str(tmp_path / "run"), make=True).put("learner.json", b"x")
    assert (tmp_path / "run/place/learner.json").read_bytes() == b"x"
    assert open_place(str(tmp_path / "run/place")).get("learner.json", 1) == b"x"
    assert open_place(f"file://{tmp_path}/run").get("learner.json", 1) == b"x"


def test_a_file_instead_of_a_folder_is_refused_in_one_line(place, tmp_path) -> None:
    (tmp_path / "place/games").write_text("")
    with pytest.raises(PlaceError, match="place: games/a/1: "):
        place.put("games/a/1", b"")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://AKIA1:hidden@bucket/x", "s3://...: has user:password@"),
        ("s3://AKIA1@bucket/x", "has user:password@"),
        ("s3://bucket/x?access_key=AKIA1&secret_key=hidden", "has access_key, secret_key"),
        ("abfs://me:hidden@account/x", "has user:password@"),
        ("abfs://c@account/x?sas_token=hidden", "has sas_token"),
        ("http://user:hidden@x/y", "'http'://...: expected a directory, or file://, s3://"),
        ("", "'': expected a directory or a URL"),
        ("a\nb", "expected a directory or a URL"),
    ],
)
def test_secrets_in_a_url_are_refused_and_not_repeated(url, said) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        open_place(url)
    assert "hidden" not in str(caught.value) and "AKIA1" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket/x?no_such=1", "s3://", "gs://"])
def test_a_url_that_cannot_be_opened_is_one_line(url) -> None:
    with pytest.raises(ConfigError, match=r"^--for [gs]"):
        open_place(url)


def test_a_shard_says_whose_it_is_and_its_name_its_digest(place) -> None:
    actor = new_actor()
    name = put_shard(place, actor, 3, EMPTY, 120, "abc")
    (entry,) = place.entries("games")
    assert ShardName.of(entry.name) == name and str(name) == entry.name
    assert re.fullmatch(rf"games/{actor}/00000003-[0-9a-f]{{16}}\.arrow", entry.name)
    content = place.get(entry.name, 10_000)
    origin, batch = read_shard(name, content)
    assert (origin.actor, origin.number, origin.step, origin.rules) == (actor, 3, 120, "abc")
    assert batch.num_rows == 0 and batch.schema.equals(GAME_SCHEMA)
    with pytest.raises(DataError, match=f"^{name}: the sha256 begins with"):
        read_shard(name, content[:-1] + b"x")
    with pytest.raises(DataError, match="says that it is shard 3 of actor"):
        read_shard(ShardName(actor, 4, name.digest), content)


def named(content: bytes) -> ShardName:
    return ShardName(ACTOR, 0, hashlib.sha256(content).hexdigest()[:16])


def test_a_shard_that_is_compressed_or_has_other_columns_is_refused() -> None:
    _, content = shard_of(ACTOR, 0, EMPTY, 1, "")
    assert read_shard(named(content), content)[1].num_rows == 0
    sink = pa.BufferOutputStream()
    usual = {
        "lane": 0,
        "number": 0,
        "result": 0,
        "plays_through": False,
        "resign_ply": 0,
        "end": "",
        "termination": "",
    }
    zeros = [0] * 300_000
    bomb = pa.RecordBatch.from_pylist(
        [{name: usual.get(name, zeros) for name in GAME_SCHEMA.names}], GAME_SCHEMA
    )
    with pa.ipc.new_file(sink, GAME_SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(bomb)
    small = sink.getvalue().to_pybytes()
    assert len(small) < bomb.nbytes / 100
    with pytest.raises(DataError, match="is compressed; expected plain columns"):
        read_shard(named(small), small)
    others = to_bytes(pa.RecordBatch.from_pydict({"x": [1]}))
    with pytest.raises(DataError, match="columns are not those of this version"):
        read_shard(named(others), others)
    two = to_bytes(EMPTY) + to_bytes(EMPTY)
    for bad in (b"", b"ARROW1", two[:100], two[8:], others[: len(others) // 2], content[:200] + bytes(300)):
        with pytest.raises(DataError, match=ACTOR):
            read_shard(named(bad), bad)


@pytest.mark.parametrize(
    "name",
    [
        "games/x.arrow",
        f"games/{ACTOR}/0000000-{ACTOR}.arrow",
        f"games/../{ACTOR}/00000000-{ACTOR}.arrow",
        f"games/{ACTOR}/00000000-{ACTOR}.arrow\n",
        f"games/{ACTOR}/0000000²-{ACTOR}.arrow",
    ],
)
def test_other_objects_are_no_shards(name) -> None:
    assert ShardName.of(name) is None


def test_settings_are_read_as_they_were_written(place) -> None:
    assert read_settings(place) is None
    digest = write_settings(place, settings_of())
    assert read_settings(place) == (settings_of(), digest)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"version": "0.0.9"}, ConfigError, "the learner is alphazero version 0.0.9 (format 1); expected "),
        ({"format": 2, "new": 1}, ConfigError, "(format 2); expected "),
        ({"search": {"simulations": 0}}, DataError, "simulations: 0: expected a whole number"),
        ({"search": {"simulations": "9"}}, DataError, "simulations '9': expected int"),
        ({"self_play": {"unknown": 1}}, DataError, "expected the fields of SelfPlayConfig"),
        ({"lead_positions": 0}, DataError, "out of range"),
        ({"seed": None}, DataError, "seed None: expected int"),
        ({"game": 3}, DataError, "game 3: expected str"),
    ],
)
def test_other_settings_are_refused_by_name(place, change, error, said) -> None:
    write_settings(place, settings_of())
    table = json.loads(place.get("settings.json", 100_000))
    place.put("settings.json", json.dumps({**table, **change}).encode())
    with pytest.raises(error, match=r"settings\.json: ") as caught:
        read_settings(place)
    assert said in str(caught.value)
    place.put("settings.json", b"[" * 100_000)
    with pytest.raises(DataError, match="is not what a learner writes"):
        read_settings(place)


def test_the_newest_weights_are_those_whose_digest_is_named(place, tmp_path) -> None:
    config = NetworkConfig(game="tictactoe", blocks=1, filters=8)
    network = AlphaZeroNet(config, get_spec("tictactoe"), torch.Generator().manual_seed(0))
    assert read_newest(place) is None
    newest = publish_weights(place, 40, WeightsFile(config, network.state_dict(), {"step": 40}), "digest")
    assert read_newest(place) == newest and newest.name == "weights/0000000040.safetensors"
    copy = tmp_path / "copy.safetensors"
    assert fetch_weights(place, newest, copy)
    read = open_weights(copy)
    assert read.config == config and read.metadata["step"] == 40
    place.put(newest.name, b"other")
    with pytest.raises(DataError, match=r"sha256 .*expected"):
        fetch_weights(place, newest, copy)
    place.delete(newest.name)
    assert not fetch_weights(place, newest, copy)
    place.put("weights/newest.json", b'{"step": 1, "name": "../x", "sha256": "", "settings": ""}')
    with pytest.raises(DataError, match=r"\.\./x: expected weights of this place"):
        read_newest(place)


def test_statuses_and_the_learner_are_read_as_they_were_written(place) -> None:
    status = ActorStatus(ACTOR, "host", "cpu", 2, 3, 400, 55.5, 120)
    write_status(place, status)
    place.put("actors/fedcba9876543210.json", b"{}")
    place.put("actors/other.json", b"{}")
    assert read_statuses(place) == {ACTOR: status}
    assert read_learner(place) is None
    state = LearnerState("me", 7, 120, False, {ACTOR: Account(3, 400, 1)})
    write_learner(place, state)
    assert read_learner(place) == state
    place.put("learner.json", b'{"id": "me", "counter": "7"}')
    with pytest.raises(DataError, match=r"learner\.json: counter '7': expected int"):
        read_learner(place)


def test_rules_outside_the_core_have_a_digest() -> None:
    assert rules_digest("chess") == ""
    assert rules_digest("nim.py:Nim(piles=3)@0123456789ab") == "0123456789ab"
    assert rules_digest("openspiel:hex").startswith("open_spiel ")


def test_a_place_that_may_not_be_written_refuses(place, monkeypatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("alphazero.play.actors.place.replacing", denied)
    with pytest.raises(PlaceRefusedError, match=r"learner\.json: Permission denied"):
        place.put("learner.json", b"")
