"""The gate's sign of life: its matches may take longer than a supervisor's patience."""

import contextlib
from types import SimpleNamespace

import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.run.rank import Phase
from alphazero.settings.load import load_config
from alphazero.training.sources.gate import Gate

SPEC = get_spec("tictactoe")
CONFIG = load_config(
    "", {"game": "tictactoe", "blocks": "1", "filters": "4", "simulations": "4", "gate_games": "2"}
)


def weights(seed: int) -> dict[str, torch.Tensor]:
    return AlphaZeroNet(CONFIG.network, SPEC, torch.Generator().manual_seed(seed)).state_dict()


def test_every_batch_of_a_match_beats_and_moves_the_progress_on():
    beats: list[tuple[object, ...]] = []
    job = SimpleNamespace(config=CONFIG, spec=SPEC, runtime=SimpleNamespace(device=torch.device("cpu")))
    services = SimpleNamespace(
        exchange=SimpleNamespace(rank=0, world_size=1, sum=lambda values: values),
        console=SimpleNamespace(working=lambda what: contextlib.nullcontext()),
        heartbeat=SimpleNamespace(beat=lambda *beat: beats.append(beat)),
    )
    gate = Gate(job, services)
    gate.decide(weights(0), generation=1, step=0)
    assert beats == []  # the first weights play: there is no match
    assert "of 2 games" in gate.decide(weights(1), generation=2, step=7)
    *during, after = beats
    assert {(phase, step) for phase, step, _ in during} == {(Phase.GATE, 7)}
    progress = [done for _, _, done in during]
    assert len(progress) > 4
    assert progress == list(range(len(progress)))
    assert after == (Phase.DATA, 7)  # other ranks may play on
