"""Is the data of all hosts what its manifests say? Before step 1 if that is quick, else beside training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from alphazero.data.sampling.window import Window
from alphazero.data.store.store import MANIFEST_NAME, GameStore, ShardView
from alphazero.data.store.verification import Verification
from alphazero.run.run_directory import RunDirectory
from alphazero.training.exchange import Exchange

_POLL_S = 0.5


class DataCheck:
    """One rank a host reads; all ranks of the job hear of what it finds."""

    def __init__(self, verification: Verification | None, exchange: Exchange) -> None:
        self._verification = verification
        self._exchange = exchange
        self._is_done = False

    @classmethod
    def start(
        cls,
        windows: Sequence[Window | None],
        run: RunDirectory,
        exchange: Exchange,
        *,
        reads: bool,
        enabled: bool,
    ) -> DataCheck:
        """Begin with the shards of these windows and of the games that the run has played before.

        Collective. reads: this rank reads for its host. Raises DataError on all ranks for what is found in
        the first seconds.
        """
        verification = exchange.on_each(
            lambda: Verification.start_shards(_shards_of(windows, run)) if enabled and reads else None
        )
        return cls(verification, exchange)

    def finish(self, beat: Callable[[], None]) -> None:
        """Return when all hosts have found their data in order; call it before anything is published.

        Collective; later calls return at once. beat: called while it waits. Raises DataError on all ranks.
        """
        own = self._verification
        while not self._is_done:
            is_own_done = own is None or own.is_done
            self._exchange.on_each(lambda: None if own is None else own.check())
            self._is_done = all(self._exchange.numbers(int(is_own_done)))
            if not self._is_done:
                beat()
                time.sleep(_POLL_S)

    def close(self) -> None:
        """End this rank's reading."""
        if self._verification is not None:
            self._verification.close()

    def __enter__(self) -> DataCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shards_of(windows: Sequence[Window | None], run: RunDirectory) -> list[tuple[ShardView, str]]:
    """The shards behind the windows, and those that a self-play run that is continued has written."""
    pairs = [
        (view, sha256)
        for window in windows
        if window is not None
        for view, sha256 in zip(window.shards, window.content_ids, strict=True)
    ]
    if (run.games / MANIFEST_NAME).is_file():
        pairs += GameStore.open(run.games).listed_shards()
    return list({view.path: (view, sha256) for view, sha256 in pairs}.values())
