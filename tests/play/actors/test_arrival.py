"""Shards that arrive: sound ones enter, and nothing that is damaged or made up does."""

import dataclasses
import hashlib
import random
import struct

import pyarrow as pa
import pytest

from alphazero.base.errors import DataError
from alphazero.play import lanes
from alphazero.play.actors.arrival import check_shard
from alphazero.play.actors.pointers import PlaceSettings
from alphazero.play.actors.shard import ShardName, shard_of
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.fuzz.mutation import damaged
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluation, MadeUpEvaluator

ACTOR, STEP = "0123456789abcdef", 20
SEARCH = SearchConfig(simulations=12, dirichlet_alpha=1.0)
OWN = SelfPlayConfig(
    opening_plies=3, full_search_share=0.5, fast_simulations=4, resign_threshold=0.3, max_plies=40
)


def settings_of(game: str, search: SearchConfig = SEARCH) -> PlaceSettings:
    return PlaceSettings(game, 1000, 3, "fp32", search, OWN)


class SureEvaluator(MadeUpEvaluator):
    """Sure of the first move: the share of each other one is 0.4 of 65535, which is left out as 0."""

    def submit(self, packed, legal_index, legal_offset) -> MadeUpEvaluation:
        found = super().submit(packed, legal_index, legal_offset)
        found.legal_logits[:], found.wdl[:] = 0, (0, 1, 0)
        found.legal_logits[legal_offset[:-1]] = 12
        return found


def played(
    game: str,
    lanes_played: int = 12,
    moves: int = 60,
    search: SearchConfig = SEARCH,
    kind: type[MadeUpEvaluator] = MadeUpEvaluator,
) -> pa.RecordBatch:
    rules, evaluator = self_play_settings(search, OWN, seed=3), kind(game, 8)
    result = play(game, rules, [new_lane(number) for number in range(lanes_played)], moves, evaluator)
    assert {game.end.name for game in result.finished} >= {"RULES", "RESIGNATION"} or game != "connect4"
    return lanes.to_batch(result.finished)


def shard(batch: pa.RecordBatch, step: int = STEP, rules: str = "") -> tuple[ShardName, bytes]:
    return shard_of(ACTOR, 7, batch, step, rules)


@pytest.fixture(scope="module")
def connect4() -> pa.RecordBatch:
    return played("connect4")


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize("game", ["connect4", "othello", "tictactoe", "chess"])
def test_games_that_were_played_enter_whole(game, algorithm) -> None:
    search = dataclasses.replace(SEARCH, algorithm=algorithm)
    batch = played(game, search=search)
    arrived = check_shard(*shard(batch), settings_of(game, search), {STEP})
    assert lanes.to_bytes(arrived.batch) == lanes.to_bytes(batch) and arrived.step == STEP
    assert arrived.positions == lanes.num_trained_positions(batch) > 0


def test_games_of_a_policy_whose_unlikely_moves_round_to_0_enter() -> None:
    search = dataclasses.replace(SEARCH, algorithm="gumbel")
    batch = played("chess", search=search, kind=SureEvaluator)
    shares, flags = (lanes.entries(batch, name).astype(int) for name in ("policy_prob", "flags"))
    assert shares.sum() < (65535 - 8) * flags.sum()  # of each ply so much is missing
    check_shard(*shard(batch), settings_of("chess", search), {STEP})


def altered(batch: pa.RecordBatch, name: str, change) -> pa.RecordBatch:
    rows = batch.to_pylist()
    rows[1][name] = change(rows[1][name])
    return pa.RecordBatch.from_pylist(rows, lanes.GAME_SCHEMA)


def last(value):
    return lambda values: [*values[:-1], value]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("result", lambda result: 0, "game 1: "),
        ("result", lambda result: 5, "game 1: "),
        ("end", lambda end: "NONE", "game 1: is not over"),
        ("end", lambda end: "ADJUDICATED", "game 1: "),
        ("end", lambda end: "TOO_LONG", "game 1: "),
        ("end", lambda end: "x" * (1 << 20), "x.* ends no game"),
        ("termination", lambda end: "REPETITION", "game 1: the rules end it otherwise"),
        ("moves", last(9), "move 9 is not legal"),
        ("moves", lambda moves: [0] * len(moves), "game 1, ply "),
        ("flags", last(3), "unknown flags"),
        ("flags", lambda flags: [1 - flag for flag in flags], "of all: "),
        ("root_q", last(1.5), "root_q 1.5; expected -1 to 1"),
        ("root_q", last(float("nan")), "root_q nan"),
        ("best_d", last(float("inf")), "best_d inf"),
        ("root_d", last(1.0), "root_q and root_d do not fit"),
        ("visits", last(50), "more visits than simulations"),
        ("visits", last(0), "of all: "),
        ("policy_prob", last(9), "do not add up to 1"),
        ("policy_move", last(6000), "move 6000 of the policy is not legal"),
        ("policy_offset", last(1), "policy offsets do not fit"),
        ("lane", lambda lane: 99, "is not the next"),
        ("resign_ply", lambda ply: 1000, "no side can resign there"),
    ],
)
def test_what_is_made_up_is_refused_with_the_reason(connect4, name, change, words) -> None:
    with pytest.raises(DataError, match=words) as error:
        check_shard(*shard(altered(connect4, name, change)), settings_of("connect4"), {STEP})
    assert str(error.value).startswith(f"games/{ACTOR}/00000007-") and "\n" not in str(error.value)


def test_games_of_other_settings_weights_rules_and_versions_are_refused(connect4) -> None:
    settings = settings_of("connect4")
    for changed, words in (
        (dataclasses.replace(settings, self_play=dataclasses.replace(OWN, max_plies=9)), "too long"),
        (
            dataclasses.replace(settings, self_play=dataclasses.replace(OWN, resign_threshold=0.0)),
            "no side may resign",
        ),
        (dataclasses.replace(settings, rules="0123456789ab"), "expected .* 0123456789ab"),
        (dataclasses.replace(settings, version="0.0.1"), "expected 0.0.1"),
        (dataclasses.replace(settings, game="othello"), "is not legal|do not fit"),
    ):
        with pytest.raises(DataError, match=words):
            check_shard(*shard(connect4), changed, {STEP})
    with pytest.raises(DataError, match="weights of step 20: not published here, or too old"):
        check_shard(*shard(connect4), settings, {19, 21})


def named(content: bytes) -> ShardName:
    return ShardName(ACTOR, 7, hashlib.sha256(content).hexdigest()[:16])


WINNING = [
    [(column + i * dx, row + i * dy) for i in range(4)]
    for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1))
    for column in range(7)
    for row in range(6)
    if 0 <= column + 3 * dx < 7 and 0 <= row + 3 * dy < 6
]


def assert_sound(batch: pa.RecordBatch) -> None:
    """By Connect Four's rules as they are written here, and by the bounds of what is trained on."""
    assert batch.num_rows
    for game in batch.to_pylist():
        stones: dict[tuple[int, int], int] = {}
        won = 0
        for ply, move in enumerate(game["moves"]):
            heights = [sum(place[0] == column for place in stones) for column in range(7)]
            legal = {column for column in range(7) if heights[column] < 6}
            assert not won and move in legal
            begin, end = game["policy_offset"][ply : ply + 2]
            policy = game["policy_move"][begin:end]
            assert set(policy) <= legal and len(set(policy)) == len(policy)
            if game["flags"][ply]:
                assert abs(sum(game["policy_prob"][begin:end]) - 65535) <= 7 / 2 and policy
            side = 1 if ply % 2 == 0 else -1
            stones[move, heights[move]] = side
            if any(all(stones.get(place) == side for place in four) for four in WINNING):
                won = side
        for q, d in zip(game["root_q"], game["root_d"], strict=True):
            assert -1.0001 <= q <= 1.0001 and -0.0001 <= d <= 1.0001 and abs(q) + d <= 1.0001
        plies = len(game["moves"])
        assert len(game["flags"]) == len(game["visits"]) == len(game["best_q"]) == plies > 0
        to_move = 1 if plies % 2 == 0 else -1
        full = len(stones) == 42
        expected = {"RULES": won, "RESIGNATION": -to_move, "TOO_LONG": 0}[game["end"]]
        assert game["result"] == expected and (game["end"] == "RULES") == (won != 0 or full)


def mutated(content: bytes, batch: pa.RecordBatch, rng: random.Random) -> bytes:
    """Bytes of a shard that are not what they were: flipped, cut, overwritten, or with another value."""
    kind = rng.randrange(4)
    if kind == 0:
        return damaged(content, rng)
    if kind == 1:  # bits
        changed = bytearray(content)
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 2:  # a number
        changed = bytearray(content)
        at = rng.randrange(0, len(content) - 8, 4)
        wild = (0, 1, 2**31, 2**32 - 1, rng.getrandbits(32), 0x3F800001, 0xFF800000, 0x7FC00000)
        changed[at : at + 4] = struct.pack("<I", rng.choice(wild))
        return bytes(changed)
    rows = batch.to_pylist()
    row = rng.choice(rows)
    name = rng.choice([field.name for field in lanes.GAME_SCHEMA])
    value = row[name]
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        is_float = isinstance(value[0], float)
        wild = (rng.uniform(-2, 2), float("nan"), float("inf"), 1.01) if is_float else range(8)
        row[name] = rng.choice(([*value[:at], rng.choice(wild), *value[at + 1 :]], value[:at], value + value))
    elif isinstance(value, bool):
        row[name] = not value
    elif isinstance(value, str):
        row[name] = rng.choice(("RULES", "RESIGNATION", "TOO_LONG", "ADJUDICATED", "NONE", "WIN", "", "\n"))
    elif isinstance(value, int):
        row[name] = rng.choice((0, 1, 2, 7, value + 1))
    try:
        return shard(pa.RecordBatch.from_pylist(rows, lanes.GAME_SCHEMA))[1]
    except (pa.ArrowException, OverflowError):
        return content + b"\0"


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_of_mutated_shards_nothing_enters_that_breaks_the_rules(count) -> None:
    batch = played("connect4", lanes_played=3, moves=30)
    name, content = shard(batch)
    settings, rng, entered = settings_of("connect4"), random.Random(count), 0
    check_shard(name, content, settings, {STEP})
    for _ in range(count):
        changed = mutated(content, batch, rng)
        if changed == content:
            continue
        with pytest.raises(DataError, match="the sha256 begins with"):
            check_shard(name, changed, settings, {STEP})
        try:
            arrived = check_shard(named(changed), changed, settings, {STEP})
        except DataError as error:
            assert "\n" not in str(error) and len(str(error)) < 600
            continue
        entered += 1
        assert_sound(arrived.batch)
    assert 0 < entered < count / 2
