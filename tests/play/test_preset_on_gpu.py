"""Self-play of the main preset as it is, on the device: how full its batches are, and how many there are."""

import time

import torch

from alphazero.games.registry import get_spec
from alphazero.network.inference.purpose import evaluator_for_self_play
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_cache, new_lane, play
from alphazero.settings.load import load_config
from alphazero.settings.self_play import settled
from tests.support.gpu import DEVICE, REHEARSAL, on_gpu

PLAY_S = 5.0 if REHEARSAL else 30.0
# On a CPU the search and its lanes are the preset's, the network is not.
SMALL = {"blocks": 1, "filters": 8, "precision": "fp32"} if REHEARSAL else {}


@on_gpu(order=2, seconds=75, alone=True)
def test_the_preset_plays_on_the_device_in_full_batches(record_property):
    config = load_config("chess_20x256", SMALL)
    own = settled(config.self_play, config.search, config.training.batch_size, num_ranks=1)
    device = torch.device(DEVICE)
    network = AlphaZeroNet(config.network, get_spec("chess"), torch.Generator().manual_seed(0)).to(device)
    precision = "fp32" if REHEARSAL else "bf16"
    evaluator = evaluator_for_self_play(network, device, precision, own.evaluation_batch)
    started = time.monotonic()
    played = play(
        "chess",
        self_play_settings(config.search, own, config.training.seed),
        [new_lane(number) for number in range(own.lanes)],
        own.simulations_per_round,
        evaluator,
        in_simulations=True,
        cache=new_cache(own.evaluation_cache),
        on_progress=lambda moves, games: time.monotonic() < started + PLAY_S,
    )
    fill = played.evaluations / (played.batches * own.evaluation_batch)
    record_property("batch_fill", round(fill, 3))
    record_property("evaluations_per_s", round(played.evaluations / (time.monotonic() - started)))
    assert played.batches > 10
    assert fill > 0.9
