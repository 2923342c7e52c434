"""Arithmetic of the network by name: fp32, or autocast to bf16 or fp16 with fp32 weights."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast where precision asks for it; weights, BatchNorm and loss stay fp32."""
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")
