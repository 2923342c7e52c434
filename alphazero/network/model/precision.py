"""The arithmetic of a network and the device it computes on.

Training computes in fp32, or under autocast in bf16 or fp16 with fp32 weights; frozen weights also in int8.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from alphazero.base.errors import ConfigError, LaunchError
from alphazero.base.text import counted
from alphazero.games.outside.names import is_outside
from alphazero.machine.nvml import device_files_present

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
INT8 = "int8"  # of frozen weights alone, on the CPU
EVALUATION_PRECISIONS = (*DTYPES, INT8)


def has_onednn_bf16() -> bool:
    """Whether oneDNN computes in bf16 on this CPU (x86: AVX-512 or newer); without it bf16 crawls."""
    return hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported") and bool(
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def fast_precisions(device: torch.device) -> tuple[str, ...]:
    """The precisions that are worth while on a device, fastest first; fp32 is always among them."""
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bf16", "fp16", "fp32") if has_bf16 else ("fp16", "fp32")
    instructions, is_alone = torch.cpu.get_capabilities(), torch.get_num_threads() == 1
    # Measured: without AMX, bf16 wins over fp32 with one thread per rank and loses with two.
    has_bf16 = instructions.get("amx_bf16") or (instructions.get("avx512_bf16") and is_alone)
    return ("bf16", "fp32") if has_bf16 and has_onednn_bf16() else ("fp32",)


def why_not_int8(device: torch.device, body: str = "residual", game: str = "") -> str:
    """Why a network cannot be evaluated in int8 there; empty if it can."""
    if body == "attention":
        return "attention bodies have no int8"
    if is_outside(game):
        return "games of OpenSpiel and Python files, whose input is any number, have no int8"
    if device.type != "cpu":
        return "int8 is for the CPU"
    if not hasattr(torch.ops.onednn, "qconv2d_pointwise"):
        return "this build of torch has no quantised oneDNN"
    return "" if torch.cpu._is_avx2_supported() else "this CPU has no AVX2"


def require_int8(
    device: torch.device, flag: str = "--precision", body: str = "residual", game: str = ""
) -> None:
    """Raises ConfigError where a network cannot be evaluated in int8."""
    reason = why_not_int8(device, body, game)
    if reason:
        raise ConfigError(f"{flag} int8: {reason}; expected one of {', '.join(DTYPES)}")


def evaluation_precision(
    asked: str, training: str, device: torch.device, body: str = "residual", game: str = ""
) -> str:
    """The arithmetic of self-play. asked: one by name, `training` for that of training, or `auto`.

    auto: int8 where the device has it, which is faster than bf16 (docs/performance.md), else as in training.
    Raises ConfigError for int8 where there is none.
    """
    if asked == "auto":
        return training if why_not_int8(device, body, game) else INT8
    if asked == INT8:
        require_int8(device, "--evaluation-precision", body, game)
    return training if asked == "training" else asked


def autocast(
    device: torch.device, precision: str, *, keep_casts: bool = True
) -> contextlib.AbstractContextManager[Any]:
    """Autocast where precision asks for it; weights, BatchNorm and loss stay fp32.

    keep_casts: of weights, for a second use within the context; a CUDA graph must cast them itself.
    """
    enabled = precision != "fp32"
    return torch.autocast(
        device.type, dtype=DTYPES[precision], enabled=enabled, cache_enabled=enabled and keep_casts
    )


SLURM_BINDS = {"SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND"}  # srun --gpus-per-task, --gpu-bind


def choose_device(asked: str, local_rank: int, environment: Mapping[str, str]) -> torch.device:
    """The device of a process; `asked` is auto, cuda or cpu.

    Raises LaunchError where an NVIDIA device exists and CUDA cannot use it: a broken driver must
    never become a silent CPU run.
    """
    hidden = environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if asked == "cpu" or (asked == "auto" and (hidden or not device_files_present())):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"
        raise LaunchError(
            f"--device {asked}: CUDA does not work here ({built}); expected a working driver or --device cpu"
        )
    count = torch.cuda.device_count()
    is_bound = count == 1 and not SLURM_BINDS.isdisjoint(environment)
    if is_bound and environment.get("SLURM_LOCALID") == str(local_rank):
        return torch.device("cuda", 0)  # each task sees a device that is its own
    if local_rank >= count:
        raise LaunchError(
            f"local rank {local_rank}: this host has {counted(count, 'CUDA device')}; "
            "expected at most one process per device"
        )
    return torch.device("cuda", local_rank)
