"""The games of another run, generation by generation: training can be repeated from them to the bit."""

from __future__ import annotations

from pathlib import Path

from alphazero.base.errors import ConfigError, DataError
from alphazero.base.text import counted
from alphazero.data.store.store import GameStore, ShardView, check_sha256, named_faults
from alphazero.network.weights.checkpoint import read_state
from alphazero.run import checkpoint_files
from alphazero.run.directory import RunDirectory
from alphazero.training.loop.job import Job
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.shared_games import GenerationState


def num_samples_of(shard: ShardView) -> int:
    """Positions of a shard that are trained on."""
    return 0 if shard.search is None else int(shard.search.is_trained_on.sum())


class ReplayedGames:
    """A shard of a run's store for each of its generations. Collective; rank 0 reads."""

    def __init__(self, job: Job, exchange: Exchange) -> None:
        """Raises ConfigError and DataError on all ranks alike."""
        self._exchange = exchange
        self._run = job.config.self_play.replay
        self._by_generation: dict[int, tuple[Path, str]] = {}
        self._last = 0  # generation of its newest checkpoint

        def read() -> None:
            run = RunDirectory(Path(self._run))
            newest = next(reversed(checkpoint_files.checkpoints_in(run.checkpoints)), None)
            if newest is None:
                raise ConfigError(f"--replay {self._run}: expected the directory of a run with a checkpoint")
            self._last = GenerationState.of(read_state(newest).self_play).generation
            store = GameStore.open(run.games)
            if store.manifest.game_now != job.spec.name:
                raise ConfigError(
                    f"--replay {self._run}: games of {store.manifest.game}; expected {job.spec.name}"
                )
            for shard, sha256 in store.listed_shards():
                (event,) = {str(text) for text in shard.table.column("event").unique().to_pylist()}
                word, _, number = event.partition(" ")
                if word != "generation" or not number.isdigit():
                    raise DataError(f"{shard.path}: games of {event!r}; expected those of a generation")
                self._by_generation[int(number)] = (shard.path, sha256)

        exchange.on_main(read)

    def shard_of(self, generation: int) -> bytes:
        """The content of a generation's shard, empty where none of its games ended. Raises as __init__."""

        contents: list[bytes] = []

        def read() -> None:
            if generation > self._last:
                raise ConfigError(
                    f"--replay {self._run}: has {counted(self._last, 'generation')}; expected no more here"
                )
            if generation in self._by_generation:
                path, sha256 = self._by_generation[generation]
                check_sha256(path, sha256)
                with named_faults("read", path):
                    contents.append(path.read_bytes())

        self._exchange.on_main(read)
        return self._exchange.bytes_from(0, b"".join(contents))
