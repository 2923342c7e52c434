"""Arithmetic of the network by name: fp32, or autocast to bf16 or fp16 with fp32 weights."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


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
    return ("bf16", "fp32") if has_onednn_bf16() else ("fp32",)


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
