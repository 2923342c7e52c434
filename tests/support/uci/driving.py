"""An engine in this process, driven like a GUI drives it: lines in, lines out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from alphazero.play.uci.engine import FindLevels, LoadedNetwork, NetworkRequest, OpenNetwork, UciEngine
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

PATIENCE_S = 20.0


class SlowEvaluator(MadeUpEvaluator):
    """Sleeps before each evaluation while `seconds` is above 0."""

    def __init__(self, batch_size: int, seconds: float) -> None:
        super().__init__("chess", batch_size)
        self.seconds = seconds

    def submit(self, packed, legal_index, legal_offset):
        time.sleep(self.seconds)
        return super().submit(packed, legal_index, legal_offset)


def made_up_network(request: NetworkRequest) -> LoadedNetwork:
    """For an engine that needs no torch."""
    return LoadedNetwork(MadeUpEvaluator("chess", request.minibatch_size or 8), "made up")


class DrivenEngine:
    """Use as a context: the engine ends with it."""

    def __init__(
        self,
        open_network: OpenNetwork = made_up_network,
        find_levels: FindLevels = lambda weights: None,
        **given: str,
    ) -> None:
        self.lines: list[str] = []
        self.status: int | None = None
        self.error: BaseException | None = None
        self._seen = 0
        self._news = threading.Condition()
        read, write = os.pipe()
        self._to_engine = os.fdopen(write, "w", encoding="utf-8")
        self.engine = UciEngine("test engine", "first", open_network, self._take, given, find_levels)
        self._input = os.fdopen(read, "rb")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> DrivenEngine:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
        self.join()

    def _run(self) -> None:
        try:
            self.status = self.engine.run(self._input)
        except BaseException as error:
            self.error = error

    def _take(self, text: str) -> None:
        with self._news:
            self.lines += text.splitlines()
            self._news.notify_all()

    def send(self, *lines: str) -> None:
        print(*lines, sep="\n", file=self._to_engine, flush=True)

    def close(self) -> None:
        """The end of its input."""
        self._to_engine.close()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def until(self, wanted: str | Callable[[str], bool]) -> list[str]:
        """Lines since the last call, up to the first that begins so."""
        fits = wanted if callable(wanted) else lambda line: line.startswith(wanted)
        end = time.monotonic() + PATIENCE_S
        with self._news:
            at = self._seen
            while True:
                while at < len(self.lines):
                    at += 1
                    if fits(self.lines[at - 1]):
                        found, self._seen = self.lines[self._seen : at], at
                        return found
                assert self._news.wait(end - time.monotonic()), f"no {wanted} in {self.lines[self._seen :]}"

    def best_move(self, *lines: str) -> str:
        """The answer to these lines, of which the last is a `go`."""
        self.send(*lines)
        return self.until("bestmove")[-1].split()[1]
