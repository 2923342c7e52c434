"""Rows that other benchmarks measure: inference, self-play, the loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarks import evaluator, loader, selfplay


def measure_evaluator(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """Evaluations/s, and of the bare forward pass."""
    torch.set_float32_matmul_precision("high")  # as training has it where precision is fp32
    return evaluator.run(flags_of(settings))


def measure_selfplay(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """Evaluations/s of self-play and of the bare network, and how long the device was idle."""
    return selfplay.run(flags_of(settings))


def measure_loader(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """Positions/s on one thread and on all."""
    return loader.run(flags_of(settings))


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the flags of a command: a name that is True stands alone, one that is False is absent."""
    words: list[str] = []
    for name, value in settings.items():
        if value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words
