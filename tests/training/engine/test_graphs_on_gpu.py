"""Recorded passes on a GPU: equal to plain ones, also while another thread uses the device."""

import copy
import threading

import pytest
import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.planes import to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import LossConfig, NetworkConfig, TrainingConfig
from alphazero.training.engine.graphed_network import CudaRecorder
from alphazero.training.engine.probe import random_batch
from alphazero.training.engine.training_module import TrainingModule
from tests.support.gpu import on_cuda

SPEC = get_spec("chess")


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
