"""Speed of the network alone: forward, or forward and backward, in positions/s and TFLOP/s."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from alphazero.games.registry import get_spec
from alphazero.machine.environment import processor_name
from alphazero.network.model.precision import autocast, choose_device
from alphazero.network.model.resnet import AlphaZeroNet, NetworkOutput
from alphazero.settings.flags import Parser, batch_size, seconds, whole
from alphazero.settings.sections import NetworkConfig
from benchmarks.measuring.clock import pass_times


def run(arguments: list[str]) -> dict[str, object]:
    """Measure with random planes; positions/s is the median over passes.

    TFLOP/s counts two operations a multiply-add of convolutions and matrix products alone, and a backward
    pass as two forwards.
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
    parser.add_argument("--seconds", type=seconds(), default=5.0, help="how long to measure")
    args = parser.parse_args(arguments)
    device = choose_device(args.device, 0, os.environ)
    names = ("blocks", "filters", "se_ratio", "policy_head")
    config = NetworkConfig(**{name: getattr(args, name) for name in names})
    network = AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(0))
    flops = forward_flops(config) * (3 if args.backward else 1)
    times = pass_times(build_pass(args, network, device), device, args.seconds)
    speed = args.batch / statistics.median(times)
    return {
        "device_name": device_name(device),
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

    def one_pass() -> None:
        with torch.inference_mode(not args.backward), autocast(device, args.precision):
            output = network(planes_BCHW)
        if args.backward:
            torch.autograd.backward(simple_loss(output))
            network.zero_grad(set_to_none=False)

    return one_pass


def simple_loss(output: NetworkOutput) -> Tensor:
    """A loss that touches every output; the real one costs little beside the tower."""
    policy_loss = output.policy_BA.float().log_softmax(dim=1).square().mean()
    return policy_loss + output.wdl_B3.float().log_softmax(dim=1).square().mean()


def on_meta_device(config: NetworkConfig) -> AlphaZeroNet:
    """A network that has shapes and no numbers."""
    with torch.device("meta"):
        return AlphaZeroNet(config, get_spec(config.game)).eval()


def forward_flops(config: NetworkConfig) -> int:
    """Operations of one position's forward pass: convolutions and matrix products."""
    network = on_meta_device(config)
    spec = network.spec
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, spec.num_planes, spec.board_height, spec.board_width, device="meta"))
    return int(counter.get_total_flops())


def device_name(device: torch.device) -> str:
    """Of a GPU, or of the processor with the number of cores that this process may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {len(os.sched_getaffinity(0))} cores"
