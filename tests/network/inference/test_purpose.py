"""One network behind evaluators of several batch sizes."""

import numpy as np
import pytest
import torch

from alphazero.games.lines import random_positions
from alphazero.games.registry import get_spec, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.purpose import (
    EvaluatorLadder,
    EvenLadder,
    batch_sizes,
    evaluator_for_self_play,
)
from alphazero.network.model.precision import why_not_int8
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_cache, new_lane, play
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig
from tests.support.network.evaluator_nets import calibrate, trained_like

CPU = torch.device("cpu")


def test_sizes_grow_fourfold_to_the_largest() -> None:
    assert batch_sizes(1) == [1]
    assert batch_sizes(4) == [1, 4]
    assert batch_sizes(32) == [1, 4, 16, 32]
    assert batch_sizes(256) == [1, 4, 16, 64, 256]


def test_each_batch_is_computed_by_the_smallest_evaluator_that_has_room() -> None:
    spec = get_spec("connect4")
    network = AlphaZeroNet(NetworkConfig(game="connect4", blocks=1, filters=8), spec)
    device = torch.device("cpu")
    ladder = EvaluatorLadder(network, device, "fp32", 6)
    line = make_line("connect4")
    legal = line.legal_indices()
    for rows, size in ((1, 1), (2, 4), (4, 4), (5, 6)):
        packed = np.stack([line.packed()] * rows)
        offset = np.arange(rows + 1, dtype=np.int32) * len(legal)
        asked = (packed, np.tile(legal, rows), offset)
        given = ladder.submit(*asked).result()
        plain = NetworkEvaluator(network, device, "fp32", size).submit(*asked).result()
        np.testing.assert_array_equal(given.legal_logits, plain.legal_logits)
        np.testing.assert_array_equal(given.wdl, plain.wdl)
    with pytest.raises(ValueError, match="7 positions"):
        ladder.submit(np.stack([line.packed()] * 7), legal, offset)


def trained(game: str = "connect4", seed: int = 4) -> AlphaZeroNet:
    network = trained_like(game, seed, filters=32)
    calibrate(network, random_positions(game)[0])
    return network.eval()


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow), "int8"])
def test_games_are_the_same_with_fewer_positions_a_batch(precision) -> None:
    """The last batches of a round are small; what is played does not depend on who computes them."""
    if precision == "int8" and why_not_int8(CPU):
        pytest.skip(why_not_int8(CPU))
    network = trained()
    config = load_config("connect4", {"simulations": 12})
    settings = self_play_settings(config.search, config.self_play, 3)
    ladder = evaluator_for_self_play(network, CPU, precision, 24)
    assert isinstance(ladder, EvenLadder)
    asked = []

    class Watched:
        batch_size = ladder.batch_size
        batches_ahead = 2

        def submit(self, packed, legal_index, legal_offset):
            asked.append(len(packed))
            return ladder.submit(packed, legal_index, legal_offset)

    played = [
        play("connect4", settings, [new_lane(n) for n in range(40)], 3, evaluator, cache=new_cache(1))
        for evaluator in (Watched(), NetworkEvaluator(network, CPU, precision, 24))
    ]
    assert max(asked) > 16 and min(asked) <= 4
    first, second = (
        [(*game.moves.tolist(), *game.root_q.tolist()) for game in one.finished + one.under_way]
        for one in played
    )
    assert first == second and len(first) >= 40


def test_a_size_that_rounds_otherwise_is_left_out_and_tried_again_with_new_weights(monkeypatch) -> None:
    network = trained()
    plain = NetworkEvaluator.__call__
    differs = True

    def call(self, *positions):
        evaluation = plain(self, *positions)
        if self.batch_size == 16 and differs:
            evaluation.wdl[-1, 0] = np.nextafter(evaluation.wdl[-1, 0], np.float32(1))
        return evaluation

    monkeypatch.setattr(NetworkEvaluator, "__call__", call)
    ladder = EvenLadder(network, CPU, "fp32", 24)
    sizes = [one.batch_size for one in ladder._evaluators]
    assert 16 not in sizes and sizes[-1] == 24
    differs = False
    ladder.load(trained(seed=5).state_dict())
    assert [one.batch_size for one in ladder._evaluators] == sorted({*sizes, 16})


def test_new_weights_reach_every_size() -> None:
    old, new = trained(seed=4), trained(seed=5)
    ladder = EvenLadder(old, CPU, "fp32", 16)
    ladder.load(new.state_dict())
    packed, legal_index, legal_offset = random_positions("connect4")
    for rows in (3, 16):
        asked = (packed[:rows], legal_index[: legal_offset[rows]], legal_offset[: rows + 1])
        expected = NetworkEvaluator(new, CPU, "fp32", 16)(*asked)
        np.testing.assert_array_equal(ladder.submit(*asked).result().wdl, expected.wdl)


def test_one_position_a_batch_has_one_size() -> None:
    network = trained()
    ladder = EvenLadder(network, CPU, "fp32", 1)
    assert [one.batch_size for one in ladder._all] == [1]
