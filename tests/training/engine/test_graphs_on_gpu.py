"""Passes of training on a GPU: they learn in every precision; recorded ones are equal to plain ones."""

import copy
import dataclasses
import threading
from unittest import mock

import numpy as np
import pytest
import torch

from alphazero.games.batch import Batch
from alphazero.games.registry import get_spec
from alphazero.network.inference.kernels import ATTENTION_KERNELS, OPERATORS, trial
from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model import layers
from alphazero.network.model.layers import TRITON, SqueezeExcitation
from alphazero.network.model.planes import to_device
from alphazero.network.model.precision import DTYPES
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.load import load_config
from alphazero.settings.sections import LossConfig, NetworkConfig, TrainingConfig
from alphazero.training.engine.probe import attention_passes, random_batch, squeeze_passes
from alphazero.training.engine.training_module import TrainingModule
from tests.support.gpu import DEVICE, PRECISIONS, need, on_cuda, on_gpu

SPEC = get_spec("chess")
CONFIGS = {"chess": "chess_20x256", "connect4": "connect4"}


def modules(**changes: object) -> tuple[TrainingModule, TrainingModule, list[str]]:
    """The same module twice, the second one with recorded passes, and what it says."""
    device = torch.device("cuda", 0)
    config = NetworkConfig(blocks=3, filters=64, se_ratio=4, moves_left=True)
    network = AlphaZeroNet(config, SPEC, torch.Generator().manual_seed(0)).to(device).train()
    network.to(memory_format=torch.channels_last)
    pair = [TrainingModule(copy.deepcopy(network), LossConfig(), TrainingConfig(**changes)) for _ in range(2)]
    said: list[str] = []
    pair[1].use_graphs(CudaRecorder(device), said.append)
    return pair[0], pair[1], said


def train(module: TrainingModule, sizes: tuple[int, ...] = (64, 64, 64)) -> list[float]:
    """Steps of two passes each; their losses."""
    device = torch.device("cuda", 0)
    losses = []
    for size in sizes:
        for scale in (1.0, 0.5):
            loss = module(to_device(random_batch(SPEC, size), device))
            (loss * scale).backward()
            losses.append(loss.detach())
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    return [loss.item() for loss in losses]


@on_cuda(order=2, seconds=60)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_squeeze_excitation_by_triton_trains_as_by_operators_and_is_recorded(precision, monkeypatch):
    need("triton")
    plain, recorded, said = modules(precision=precision)
    losses = train(plain)
    monkeypatch.setattr(SqueezeExcitation, "trained_by", TRITON)
    with mock.patch.object(layers, "_call", wraps=layers._call) as call:
        assert train(recorded) == pytest.approx(losses, rel=1e-4 if precision == "fp32" else 2e-2)
    assert said == []
    assert {name for name, *_ in (each.args for each in call.call_args_list)} == {
        *("squeeze", "excite", "excite_backward")
    }


@on_cuda(order=2, seconds=60)
@pytest.mark.parametrize("game", ["chess", "connect4"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_trial_finds_triton_s_kernels_right_and_times_both_ways(precision, game, monkeypatch):
    need("triton")
    monkeypatch.setattr(SqueezeExcitation, "trained_by", "")
    flags = {"filters": 96, "se_ratio": 8, "precision": precision}
    device = torch.device("cuda", 0)
    passes = squeeze_passes(load_config(CONFIGS[game], flags), device)
    for kernels in (OPERATORS, TRITON):
        fault, seconds = trial(passes, DTYPES[precision], device, kernels)
        assert fault == "" and 0 < seconds < 1


@on_cuda(order=2, seconds=120)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_trial_finds_the_kernels_of_attention_right_and_times_them(precision):
    sizes = {"blocks": 2, "filters": 64, "heads": 8, "ffn_width": 128, "smolgen_channels": 8}
    body = {"body": "attention", "policy_head": "attention", "precision": precision}
    device = torch.device("cuda", 0)
    passes = attention_passes(load_config("", sizes | body), device)
    for kernels in ATTENTION_KERNELS:
        fault, seconds = trial(passes, DTYPES[precision], device, kernels)
        assert fault == "" and 0 < seconds < 1


@on_cuda(order=3, seconds=60)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_recorded_passes_train_as_plain_ones_do(precision, compiled):
    plain, recorded, said = modules(precision=precision, compile=compiled)
    tolerance = 1e-4 if precision == "fp32" else 2e-2
    sizes = (64, 64, 64, 32, 32)  # memory was short: smaller micro-batches
    assert train(recorded, sizes) == pytest.approx(train(plain, sizes), rel=tolerance)
    assert said == []


@on_cuda(order=3, seconds=10)
def test_a_recording_bears_another_thread_that_allocates_and_copies():
    _, recorded, said = modules(precision="bf16")
    over = threading.Event()

    def disturb() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            while not over.is_set():
                torch.empty(1 << 20, device="cuda").cpu()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        train(recorded, (64, 32, 16, 48))
    finally:
        over.set()
        thread.join()
    assert said == []


def one_move_each(count: int) -> Batch:
    """Random positions in which one of the legal moves is played and the game is won, drawn or lost."""
    batch = random_batch(SPEC, count)
    moves = np.arange(len(batch.policy)) % (len(batch.policy) // count)
    played = np.repeat(np.arange(count), len(batch.policy) // count) % (moves.max() + 1)
    results = np.eye(3, dtype=np.float32)[np.arange(count) % 3]
    return dataclasses.replace(batch, policy=(moves == played).astype(np.float32), wdl=results)


@on_gpu(order=1, seconds=20)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_network_learns_one_batch_by_heart_in_every_precision(precision):
    """Without DeepSpeed."""
    network = AlphaZeroNet(NetworkConfig(blocks=1, filters=16), SPEC, torch.Generator().manual_seed(0))
    network = network.to(DEVICE, memory_format=torch.channels_last).train()
    module = TrainingModule(network, LossConfig(), TrainingConfig(precision=precision))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    batch, losses = to_device(one_move_each(16), torch.device(DEVICE)), []
    for _ in range(60):
        loss = module(batch)
        (loss * 1024).backward()  # fp16 has small gradients; Adam does not see a factor
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3, losses
