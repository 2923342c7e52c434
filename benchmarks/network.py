"""Speed of the network alone, forward, forward and backward, or evaluating, in positions/s and TFLOP/s."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from alphazero.base.errors import ConfigError
from alphazero.games.registry import game_names, get_spec
from alphazero.machine.environment import processor_name
from alphazero.network.inference.evaluator import make_forward
from alphazero.network.inference.kernels import ATTENTION_KERNELS, OPERATORS, use_kernels
from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model.attention import run_part
from alphazero.network.model.precision import DTYPES, autocast, choose_device
from alphazero.network.model.resnet import AlphaZeroNet, NetworkOutput
from alphazero.network.model.sizes import PASSES_OF_STEP, forward_flops
from alphazero.settings.flags import Parser, batch_size, seconds, whole
from alphazero.settings.load import with_smolgen
from alphazero.settings.sections import NetworkConfig
from benchmarks.measuring.clock import pass_times


def run(arguments: list[str]) -> dict[str, object]:
    """Measure with random planes; positions/s is the median over passes, on a GPU also as a CUDA graph.

    TFLOP/s counts two operations a multiply-add of convolutions and matrix products alone, and a backward
    pass as two forwards. MiB a position are what a pass takes on a GPU beside the weights and gradients.
    """
    parser = Parser(prog="alphazero bench network", description=__doc__)
    parser.add_argument("--game", choices=game_names(), default="chess")
    parser.add_argument("--blocks", type=whole(1, 256), default=20, help="residual blocks or encoders")
    parser.add_argument("--filters", type=whole(1, 4096), default=256, help="channels of the body")
    add_body_flags(parser)
    parser.add_argument("--se-ratio", type=whole(0, 4096), default=0, help="squeeze-excitation; 0 is none")
    parser.add_argument("--policy-head", choices=("convolution", "attention"), default="", help=AS_THE_BODY)
    parser.add_argument("--batch", type=batch_size, default=256, help="positions per pass")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="arithmetic")
    parser.add_argument(
        "--kernels", choices=ATTENTION_KERNELS, default=OPERATORS, help="attention: what computes it"
    )
    parser.add_argument(
        "--activation-checkpointing",
        choices=("none", "scores", "encoders"),
        default="none",
        help="attention: what the backward pass computes again",
    )
    parser.add_argument("--channels-last", action="store_true", help="input planes channels last")
    parser.add_argument("--weights-channels-last", action="store_true", help="weights channels last")
    passes = parser.add_mutually_exclusive_group()
    passes.add_argument("--backward", action="store_true", help="forward and backward, as in training")
    passes.add_argument("--evaluates", action="store_true", help="as frozen weights are evaluated")
    parser.add_argument("--seconds", type=seconds(), default=5.0, help="how long to measure")
    args = parser.parse_args(arguments)
    device = choose_device(args.device, 0, os.environ)
    if args.kernels != OPERATORS and (args.body != "attention" or (device.type == "cpu" and args.evaluates)):
        raise ConfigError(
            f"--kernels {args.kernels}: expected --body attention, and --device cuda with --evaluates"
        )
    if args.activation_checkpointing != "none" and (args.body != "attention" or not args.backward):
        raise ConfigError(
            f"--activation-checkpointing {args.activation_checkpointing}: expected --body attention and "
            "--backward with it"
        )
    config = config_of(args)
    network = AlphaZeroNet(config, get_spec(config.game), torch.Generator().manual_seed(0))
    flops = forward_flops(config) * (PASSES_OF_STEP if args.backward else 1)
    one_pass = build_pass(args, network, device)
    times = pass_times(one_pass, device, args.seconds)
    if device.type == "cuda":
        recorder = CudaRecorder(device)
        recorder.warm_up(one_pass)
        times = min(times, pass_times(recorder.record(one_pass), device, args.seconds), key=statistics.median)
    speed = args.batch / statistics.median(times)
    figures: dict[str, object] = {
        "device_name": device_name(device),
        "parameters": network.parameter_count(),
        "gflop_per_position": flops / 1e9,
        "positions_per_s": speed,
        "positions_per_s_best": args.batch / min(times),
        "tflop_per_s": speed * flops / 1e12,
    }
    if device.type == "cuda":
        figures["mib_per_position"] = memory_of(one_pass, device) / args.batch / MIB
    return figures


MIB = 2**20
AS_THE_BODY = "attention for an attention body, else convolution, if not given"


def add_body_flags(parser: argparse.ArgumentParser) -> None:
    """What makes an attention body."""
    default = NetworkConfig()
    parser.add_argument("--body", choices=("residual", "attention"), default=default.body)
    parser.add_argument("--heads", type=whole(1, 4096), default=default.heads, help="attention: heads")
    parser.add_argument(
        "--ffn-width", type=whole(1, 65536), default=default.ffn_width, help="attention: feed-forward units"
    )
    parser.add_argument(
        "--smolgen-channels", type=whole(0, 4096), default=default.smolgen_channels, help="0 is no smolgen"
    )
    parser.add_argument(
        "--embedding",
        choices=("dense", "map"),
        default=default.embedding,
        help="attention: its kind",
    )


def config_of(args: argparse.Namespace) -> NetworkConfig:
    """The network that the arguments ask for."""
    sizes = ("blocks", "filters", "heads", "ffn_width", "smolgen_channels", "se_ratio")
    names = ("game", "body", "embedding", *sizes)
    head = args.policy_head or ("attention" if args.body == "attention" else "convolution")
    config = NetworkConfig(policy_head=head, **{name: getattr(args, name) for name in names})
    return with_smolgen(config)


def build_pass(args: argparse.Namespace, network: AlphaZeroNet, device: torch.device) -> Callable[[], None]:
    """One forward (or forward and backward) pass as the arguments ask for."""
    if args.evaluates:
        return build_evaluation(args, network, device)
    network.train(args.backward).to(device)
    if args.weights_channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if args.body == "attention":
        network.body.checkpointing = args.activation_checkpointing
    planes_BCHW = random_planes(network, args.batch).to(device)
    if args.channels_last:
        planes_BCHW = planes_BCHW.contiguous(memory_format=torch.channels_last)

    run_parts = network.body.run_by(args.kernels) if args.body == "attention" else run_part

    def one_pass() -> None:
        with torch.inference_mode(not args.backward), autocast(device, args.precision, keep_casts=False):
            output = network(planes_BCHW, run_parts)
        if args.backward:
            torch.autograd.backward(simple_loss(output))
            network.zero_grad(set_to_none=False)

    return one_pass


def memory_of(one_pass: Callable[[], None], device: torch.device) -> int:
    """Bytes on the GPU that a pass holds at its peak beside what was there before."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    one_pass()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def build_evaluation(
    args: argparse.Namespace, network: AlphaZeroNet, device: torch.device
) -> Callable[[], None]:
    """One pass of the evaluator, without what it does before and after."""
    use_kernels(args.kernels if args.body == "attention" else "")
    forward = make_forward(network, device, args.precision, args.batch)
    planes_BCHW = random_planes(network, args.batch).to(device, DTYPES[args.precision])
    planes_BCHW = planes_BCHW.contiguous(memory_format=torch.channels_last)

    def one_pass() -> None:
        with torch.inference_mode():
            forward(planes_BCHW)

    return one_pass


def random_planes(network: AlphaZeroNet, batch: int) -> Tensor:
    """[batch, planes, H, W]."""
    spec = network.spec
    shape = (batch, spec.num_planes, spec.board_height, spec.board_width)
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)).lt(0.1).float()


def simple_loss(output: NetworkOutput) -> Tensor:
    """A loss that touches every output; the real one costs little beside the tower."""
    policy_loss = output.policy_BA.float().log_softmax(dim=1).square().mean()
    return policy_loss + output.wdl_B3.float().log_softmax(dim=1).square().mean()


def device_name(device: torch.device) -> str:
    """Of a GPU, or of the processor with the number of cores that this process may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {len(os.sched_getaffinity(0))} cores"
