"""How the device computes: TF32, cudnn's search for algorithms, determinism."""

from __future__ import annotations

import os

import torch

from alphazero.config import TrainingConfig


def apply_device_settings(config: TrainingConfig, device: torch.device) -> tuple[str, ...]:
    """Set torch's switches for this process, before its first CUDA operation; lines for the banner."""
    if config.deterministic:
        # cuBLAS reads it when CUDA starts (torch docs, notes/randomness).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if device.type != "cuda":
        return ()
    torch.backends.cudnn.benchmark = not config.deterministic
    torch.backends.cudnn.deterministic = config.deterministic
    torch.backends.cuda.matmul.allow_tf32 = config.tf32
    torch.backends.cudnn.allow_tf32 = config.tf32
    autotune = "off (deterministic)" if config.deterministic else "on"
    return (f"TF32 {'on' if config.tf32 else 'off'}, cudnn autotune {autotune}",)
