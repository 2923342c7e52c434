"""Switches of the whole process that decide how a device computes: TF32, autotuning, determinism."""

from __future__ import annotations

import os

import torch

from alphazero.config import TrainingConfig
from alphazero.errors import ConfigError

# The two workspaces with which cuBLAS gives the same bits every time (cuBLAS manual, "Results
# reproducibility"); the first, of 8 buffers of 4 MiB, costs the least speed.
DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")
TF32_CAPABILITY = (8, 0)  # Ampere


def apply_device_settings(config: TrainingConfig, device: torch.device) -> tuple[str, ...]:
    """Set what `config` asks for, before the first use of `device`; lines for the banner say what holds.

    Raises ConfigError where CUBLAS_WORKSPACE_CONFIG contradicts --deterministic.
    """
    lines: tuple[str, ...] = ()
    if device.type == "cuda":
        lines = (f"{_set_tf32(config, device)}, {_set_autotune(config)}",)
    if config.deterministic:
        lines += (_set_deterministic(device),)
    return lines


def _set_tf32(config: TrainingConfig, device: torch.device) -> str:
    """Both of these calls, and no `fp32_precision`: that alone leaves torch's switches at odds.

    torch 2.13 raises "mix of the legacy and new APIs" when its compiler then asks for
    get_float32_matmul_precision, or when anything enters torch.backends.cudnn.flags.
    """
    has_tf32 = torch.cuda.get_device_capability(device) >= TF32_CAPABILITY
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = config.tf32
    if config.tf32 and not has_tf32:
        return "TF32: this GPU has none"
    return f"TF32 {'on' if config.tf32 else 'off'}"


def _set_autotune(config: TrainingConfig) -> str:
    """Every pass has the same shapes: trying cudnn's algorithms once pays off at once."""
    torch.backends.cudnn.benchmark = not config.deterministic
    return f"cudnn autotune {'off' if config.deterministic else 'on'}"


def _set_deterministic(device: torch.device) -> str:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    if device.type != "cuda":
        return "deterministic: operations that could give other bits are refused; threads must stay the same"
    # Read by cuBLAS when a process makes its first handle, and by child processes.
    workspace = os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", DETERMINISTIC_WORKSPACES[0])
    if workspace not in DETERMINISTIC_WORKSPACES:
        expected = " or ".join(DETERMINISTIC_WORKSPACES)
        raise ConfigError(
            f"CUBLAS_WORKSPACE_CONFIG={workspace}: contradicts --deterministic; expected {expected}, or unset"
        )
    return f"deterministic: operations that could give other bits are refused, cuBLAS workspace {workspace}"
