"""How a rank leaves the others: in order when all is done, and without waiting for them after a fault."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alphazero.base.errors import TrainingError
from alphazero.training.start import train as module


def train_with(monkeypatch: pytest.MonkeyPatch, work: Any) -> list[str]:
    """Run train() with `work` for what a rank does; what was called, in order."""
    called: list[str] = []
    console = SimpleNamespace(alarm=None, begin=lambda what: None, close=lambda: called.append("end of bar"))
    request = module.Request(argv=(), command="")
    cpu = torch.device("cpu")
    runtime: Any = SimpleNamespace(is_main=True, local_rank=0, local_world_size=1, device=cpu)
    monkeypatch.setattr(module, "keep_freed_memory", lambda: None)  # of this process, which has more to test
    monkeypatch.setattr(module, "start_process_group", lambda runtime: None)
    monkeypatch.setattr(module, "with_local_ranks", lambda runtime, exchange: runtime)
    monkeypatch.setattr(module, "end_process_group", lambda: called.append("end of group"))
    monkeypatch.setattr(module, "Console", lambda is_main, **style: console)
    monkeypatch.setattr(module, "compare_ranks", lambda *args: ())
    monkeypatch.setattr(module, "find_run", lambda *args: contextlib.nullcontext())
    monkeypatch.setattr(module, "_train", work)
    config: Any = SimpleNamespace(
        run=SimpleNamespace(log_format="text", quiet=False), preset="", training=None
    )
    with contextlib.suppress(TrainingError):
        called.append(f"status {module.train(config, runtime, request)}")
    return called


def test_a_rank_whose_work_is_done_leaves_the_process_group(monkeypatch):
    assert train_with(monkeypatch, lambda *args: 0) == ["end of bar", "end of group", "status 0"]


def test_a_rank_that_fails_does_not_wait_for_the_others_before_its_error_is_told(monkeypatch):
    def fail(*args: object) -> int:
        raise TrainingError("a test")

    assert train_with(monkeypatch, fail) == ["end of bar"]
