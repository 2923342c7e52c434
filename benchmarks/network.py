"""Speed of the network alone: forward, or forward and backward, in positions/s and TFLOP/s."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from alphazero.base.errors import ConfigError
from alphazero.games.registry import GameSpec, get_spec
from alphazero.network.model.precision import autocast
from alphazero.network.model.resnet import AlphaZeroNet, NetworkOutput
from alphazero.settings.flags import Parser, batch_size, seconds, whole
from alphazero.settings.sections import NetworkConfig


def run(arguments: list[str]) -> dict[str, object]:
    """Measure with random planes; positions/s is the median over passes.

    TFLOP/s counts two operations a multiply-add of convolutions and fully connected layers alone, and a
    backward pass as two forwards.
    """
    parser = Parser(prog="alphazero bench network", description=__doc__)
    parser.add_argument("--blocks", type=whole(1, 256), default=20, help="residual blocks")
    parser.add_argument("--filters", type=whole(1, 4096), default=256, help="channels of the tower")
    parser.add_argument("--se-ratio", type=whole(0, 4096), default=0, help="squeeze-excitation; 0 is none")
    parser.add_argument("--policy-head", choices=("convolution", "attention"), default="convolution")
    parser.add_argument("--batch", type=batch_size, default=256, help="positions per pass")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="arithmetic")
    parser.add_argument("--channels-last", action="store_true", help="input planes channels last")
    parser.add_argument("--weights-channels-last", action="store_true", help="weights channels last")
    parser.add_argument("--backward", action="store_true", help="forward and backward, as in training")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network")
    parser.add_argument("--seconds", type=seconds(), default=5.0, help="how long to measure")
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: no CUDA device can be used")
    names = ("blocks", "filters", "se_ratio", "policy_head")
    config = NetworkConfig(**{name: getattr(args, name) for name in names})
    network = AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(0))
    flops = forward_flops(network, network.spec) * (3 if args.backward else 1)
    times = time_passes(build_pass(args, network, device), device, args.seconds)
    speed = args.batch / statistics.median(times)
    return {
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "parameters": network.parameter_count(),
        "gflop_per_position": flops / 1e9,
        "positions_per_s": speed,
        "positions_per_s_best": args.batch / min(times),
        "tflop_per_s": speed * flops / 1e12,
    }


def build_pass(args: argparse.Namespace, network: AlphaZeroNet, device: torch.device) -> Callable[[], None]:
    """One forward (or forward and backward) pass as the arguments ask for."""
    network.train(args.backward).to(device)
    if args.weights_channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    spec, chance = network.spec, torch.Generator().manual_seed(1)
    shape = (args.batch, spec.num_planes, spec.board_height, spec.board_width)
    planes_BCHW = torch.rand(shape, generator=chance).lt(0.1).to(device, torch.float32)
    if args.channels_last:
        planes_BCHW = planes_BCHW.contiguous(memory_format=torch.channels_last)
    callable_network = torch.compile(network) if args.compile else network

    def one_pass() -> None:
        with torch.inference_mode(not args.backward), autocast(device, args.precision):
            output = callable_network(planes_BCHW)
        if args.backward:
            torch.autograd.backward(simple_loss(output))
            network.zero_grad(set_to_none=False)

    return one_pass


def simple_loss(output: NetworkOutput) -> Tensor:
    """A loss that touches every output; the real one costs little beside the tower."""
    policy_loss = output.policy_BA.float().log_softmax(dim=1).square().mean()
    return policy_loss + output.wdl_B3.float().log_softmax(dim=1).square().mean()


def time_passes(one_pass: Callable[[], None], device: torch.device, seconds: float) -> list[float]:
    """Seconds of each pass, measured for about `seconds` after two that warm up."""
    for _ in range(2):
        one_pass()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        one_pass()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return times


@torch.no_grad()
def forward_flops(network: AlphaZeroNet, spec: GameSpec) -> int:
    """Operations of one position's forward pass, from the shapes of the layers."""
    flops = 0

    def count(module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal flops
        weight = module.weight
        assert isinstance(weight, Tensor)
        positions_in_plane = output.shape[2] * output.shape[3] if output.ndim == 4 else 1
        flops += 2 * weight.numel() * positions_in_plane

    handles = [
        module.register_forward_hook(count)
        for module in network.modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    was_training = network.training
    network.eval()(torch.zeros(1, spec.num_planes, spec.board_height, spec.board_width))
    network.train(was_training)
    for handle in handles:
        handle.remove()
    return flops


def cpu_name() -> str:
    """The processor's name as Linux tells it, with the number of cores this process may use."""
    name = "unknown processor"
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {len(os.sched_getaffinity(0))} cores"
