"""Where freed memory goes: back to the kernel, or to the process's next allocation."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LARGEST_MAPPED = 32 << 20  # the most that every glibc takes as M_MMAP_THRESHOLD
NEVER = -1


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Have glibc keep blocks of up to 32 MiB that are freed, for what is allocated next.

    A training step on a CPU frees its tensors and allocates the same ones in the next step. The kernel would
    map and zero their pages each time, which is up to a fifth of the step (docs/performance.md). False where
    the C library is another one, or `environment` has settings of malloc: those are left alone.
    """
    if any(name.startswith("MALLOC_") for name in environment) or "malloc" in environment.get(
        "GLIBC_TUNABLES", ""
    ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_MAPPED)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))
