"""Fixtures of the tests of PGN import."""

import gzip
from pathlib import Path

import pytest
import zstandard

from tests.support.data.pgn_sources import ILLEGAL, game


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """100 games in four files, ten of them bad, and an empty file."""
    directory = tmp_path / "games"
    (directory / "deep").mkdir(parents=True)
    texts = [
        "".join(ILLEGAL if number % 10 == 7 else game(number) for number in range(begin, begin + 25))
        for begin in range(0, 100, 25)
    ]
    (directory / "a.pgn").write_text(texts[0])
    (directory / "b.pgn.gz").write_bytes(gzip.compress(texts[1].encode()))
    (directory / "c.pgn.zst").write_bytes(zstandard.compress(texts[2].encode()))
    (directory / "deep" / "d.pgn").write_bytes(b"\xef\xbb\xbf" + texts[3].replace("\n", "\r\n").encode())
    (directory / "empty.pgn").write_bytes(b"")
    return directory
