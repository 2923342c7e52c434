"""Checks of weights that may be hostile: a .safetensors before it is opened, tensors before use.

The `*_fault` functions return the fault without the file's name; the reader of the file raises its kind of
error.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from alphazero.base.text import quoted, shortened

# 256 residual blocks have 4,100 tensors of 100 bytes each in the header.
MAX_SAFETENSORS_HEADER_BYTES = 4 << 20
MAX_DIMENSIONS = 16
MOST_SHOWN = 120  # characters of a value from a file


def shown(value: object) -> str:
    """A value from a file for one line of an error: short, and without line breaks."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    try:
        return " ".join(reprlib.repr(value).split())[:MOST_SHOWN]
    except (ValueError, RecursionError):  # numbers of thousands of digits
        return quoted(value)


def safetensors_header_fault(path: Path) -> str | None:
    """What is wrong with the size of the header, which the library would read as a whole. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(8)
    size = int.from_bytes(start, "little")
    if len(start) == 8 and size <= MAX_SAFETENSORS_HEADER_BYTES:
        return None
    return f"a header of {size} bytes: expected at most {MAX_SAFETENSORS_HEADER_BYTES}"


def values_fault(tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor that is neither fp32 nor int64, or has a shape or numbers that cannot be."""
    for name, tensor in tensors.items():
        if tensor.dim() > MAX_DIMENSIONS:
            return f"{shortened(name)}: {tensor.dim()} dimensions: expected at most {MAX_DIMENSIONS}"
        if tensor.dtype not in (torch.float32, torch.int64):
            return f"{shortened(name)}: {tensor.dtype}, expected torch.float32"
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        # One pass without a copy; a NaN is both the least and the greatest.
        least, greatest = torch.aminmax(tensor)
        if not (math.isfinite(least) and math.isfinite(greatest)):
            bad = int(tensor.numel() - torch.isfinite(tensor).sum())
            return f"{shortened(name)}: {bad} of {tensor.numel()} numbers are not finite"
        if name.endswith(".running_var") and least <= 0:
            return f"{shortened(name)}: {float(least)}: expected variances above 0"
    return None
