"""What the device can do at best: a large matrix product, and bare convolutions as the tower's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from alphazero.network.model.precision import DTYPES
from benchmarks.measuring.trainer_bench import wait

BOARD = 8
KERNEL = 3
TURNS = 5
WARM_UPS = 3

Work = Callable[[], object]


def measure_matmul(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """TFLOP/s of a square product of random numbers; zeros would run faster."""
    device, size = torch.device(settings["device"]), int(settings["size"])
    torch.set_float32_matmul_precision("high" if settings["precision"] == "tf32" else "highest")
    dtype = dtype_of(settings["precision"])
    chance = torch.Generator(device).manual_seed(1)
    left, right = (torch.randn(size, size, generator=chance, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    seconds = median_s(lambda: torch.mm(left, right, out=product), device, float(settings["seconds"]))
    return {"tflops": 2 * size**3 / seconds / 1e12, "seconds_each": seconds}


def measure_convolutions(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """TFLOP/s of a chain of bare 3x3 convolutions, forward and backward, channels last.

    As many in a row as the tower has, no activation or normalisation between them: the device never waits
    for the host. On CUDA also as a graph of all of it.
    """
    device = torch.device(settings["device"])
    batch, channels, depth = (int(settings[key]) for key in ("batch", "channels", "depth"))
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = settings["precision"] == "tf32"
    work = convolution_chain(batch, channels, depth, dtype_of(settings["precision"]), device)
    flops = 3 * depth * 2 * batch * BOARD**2 * channels**2 * KERNEL**2  # backward is two forwards
    seconds = median_s(work, device, float(settings["seconds"]))
    figures: dict[str, object] = {"tflops_eager": flops / seconds / 1e12, "tflops": flops / seconds / 1e12}
    if device.type == "cuda":
        graphed = median_s(captured(work, device), device, float(settings["seconds"]))
        figures["tflops_graphed"] = flops / graphed / 1e12
        figures["tflops"] = flops / min(seconds, graphed) / 1e12
    return figures


def convolution_chain(
    batch: int, channels: int, depth: int, dtype: torch.dtype, device: torch.device
) -> Work:
    """Forward and backward through `depth` convolutions whose values keep their size."""
    chance = torch.Generator(device).manual_seed(1)

    def random(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, generator=chance, device=device).to(dtype)
        return drawn.to(memory_format=torch.channels_last)

    inputs_BCHW = random(batch, channels, BOARD, BOARD).requires_grad_()
    spread = (channels * KERNEL**2) ** -0.5
    weights = [(spread * random(channels, channels, KERNEL, KERNEL)).requires_grad_() for _ in range(depth)]
    gradient_BCHW = random(batch, channels, BOARD, BOARD)

    def work() -> object:
        values_BCHW = inputs_BCHW
        for weight in weights:
            values_BCHW = functional.conv2d(values_BCHW, weight, padding=KERNEL // 2)
        return torch.autograd.grad(values_BCHW, [inputs_BCHW, *weights], gradient_BCHW)

    return work


def captured(work: Work, device: torch.device) -> Work:
    """`work` as a CUDA graph."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def median_s(work: Work, device: torch.device, seconds: float) -> float:
    """Seconds of one `work`: the median over turns of the mean within each, after a warm-up."""
    for _ in range(WARM_UPS):
        work()
    wait(device)
    begun = time.perf_counter()
    work()
    wait(device)
    repeats = max(1, round(seconds / TURNS / max(time.perf_counter() - begun, 1e-6)))
    times = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        for _ in range(repeats):
            work()
        wait(device)
        times.append((time.perf_counter() - begun) / repeats)
    return statistics.median(times)


def dtype_of(precision: str) -> torch.dtype:
    """Of tensors; TF32 computes with fp32 tensors."""
    return torch.float32 if precision == "tf32" else DTYPES[precision]
