"""Data that a host lacks: named without --sync-data, sent with it."""

from pathlib import Path

import pytest

from tests.support.hosts.real_job import error_line


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Like a game store, on host1 alone."""
    path = tmp_path / "data"
    path.mkdir()
    (path / "shard-1.arrow").write_bytes(bytes(range(256)) * 20000)
    (path / "manifest.json").write_text("{}")
    return path


def test_data_that_a_host_lacks_is_named_and_starts_nothing(start, data: Path):
    job = start(before=lambda hosts: hosts[1].make_private(data), data=[str(data)])
    status, said = job.end()
    assert status == 2
    expected = f"error: host2: data {data} is not there; expected the same: --sync-data sends it"
    assert expected in said
    assert "nothing started" in error_line(said)


def test_data_that_a_host_lacks_is_sent_and_the_job_starts(start, data: Path):
    job = start(
        before=lambda hosts: hosts[1].make_private(data), data=[str(data)], sync_data=True, num_steps=4
    )
    status, said = job.end()
    assert status == 0, said
    assert "host2: sent 4.9 MiB" in said
    assert job.hosts[1].run("sha256sum", *map(str, sorted(data.iterdir()))) == job.hosts[0].run(
        "sha256sum", *map(str, sorted(data.iterdir()))
    )
