"""A disk that is full while weights are written is called that, whoever notices it first."""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import torch

from alphazero.base.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights import weights
from alphazero.settings.sections import NetworkConfig

FULL = Path("/dev/full")  # every write to it fails as on a full disk


class FillingDisk(io.RawIOBase):
    """A file on a disk that takes so many bytes more."""

    def __init__(self, room: int) -> None:
        self._room = room

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        size = memoryview(data).nbytes
        if size > self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= size
        return size


@pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
@pytest.mark.parametrize("room", [None, 0, 100, 20_000, 50_000])
def test_a_full_disk_is_named_and_no_file_of_torch_s(
    name: str, room: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    @contextmanager
    def to_a_full_disk(path: Path) -> Iterator[IO[bytes]]:
        with FULL.open("wb") if room is None else FillingDisk(room) as file:
            yield file
            file.flush()

    monkeypatch.setattr(weights, "replacing", to_a_full_disk)
    config = NetworkConfig(blocks=1, filters=16)
    with torch.random.fork_rng():
        network = AlphaZeroNet(config, get_spec(config.game))
    with pytest.raises(WeightsError) as caught:
        weights.save_weights(tmp_path / name, network, {})
    assert str(caught.value).startswith(f"{tmp_path / name}: ") and "No space left" in str(caught.value)
