"""Fixtures every test may use: the reference data that lies beside a checkout."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Reference data (perft counts, games, lc0 networks); tests that need it skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("reference data ../shared/data is not there")
    return SHARED_DATA
