"""Actors as threads of a test's process, with rounds, looks and reports that last as long as a test may."""

from __future__ import annotations

import threading
import time

import torch

from alphazero.play.actors import actor, courier
from alphazero.play.actors.actor import OfThisMachine, run_actor

CPU = OfThisMachine(torch.device("cpu"))
WAIT_S = 60.0


def hurry(monkeypatch, tmp_path) -> None:
    """Of the actors of a test; what they keep on this machine's disk is under tmp_path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(actor, "ROUND_S", 0.2)
    shorter = {"LOOK_S": 0.05, "REPORT_S": 0.2, "LONGEST_PAUSE_S": 0.1, "FIRST_PAUSE_S": 0.05}
    for name, seconds in shorter.items():
        monkeypatch.setattr(courier, name, seconds)


class ActorThread:
    """An actor in a thread of this process, and the lines that it prints."""

    def __init__(self, place: str, own: OfThisMachine = CPU) -> None:
        self.lines: list[str] = []
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(str(place), own), daemon=True)
        self._thread.start()

    def _run(self, place: str, own: OfThisMachine) -> None:
        try:
            run_actor(place, own, lambda: not self._stop.is_set(), self.lines.append)
        except BaseException as error:
            self.error = error

    def until(self, what, *, ends: bool = False) -> None:
        """Wait for what must come true."""
        deadline = time.monotonic() + WAIT_S
        while not what():
            assert time.monotonic() < deadline, self.lines
            assert self.error is None and (ends or self._thread.is_alive()), (self.error, self.lines)
            time.sleep(0.02)

    def wait(self) -> None:
        """Until it ends by itself, also with an error."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), self.lines

    def end(self) -> None:
        self._stop.set()
        self.wait()
        assert self.error is None, (self.error, self.lines)

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()
