"""Of the ranks of a host that failed, the one to blame."""

import json
from pathlib import Path

import pytest

from alphazero.launch.blame import failure_of, first_failure, order_of_blame
from alphazero.run.rank import Failure, read_record, write_record


def end(rank: int, exit_code: int, accounts: Path | None = None) -> Failure:
    return failure_of(rank, rank, 1000 + rank, exit_code, accounts)


def write(directory: Path, rank: int, kind: str, at_s: float, *ranks: int) -> None:
    fields = {"kind": kind, "ranks": ranks, "cause": f"of {rank}", "status": 1, "at": at_s}
    (directory / f"{rank}.account.json").write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        ({0: ("lost connection", 100.0), 1: ("crash", 100.4)}, 1),
        ({0: ("crash", 100.0), 1: ("config", 100.4)}, 1),
        ({0: ("crash", 100.0), 1: ("training", 103.0)}, 0),  # so much later: because of it
        ({0: ("crash", 100.2), 1: ("crash", 100.1)}, 1),
        ({0: ("out of memory", 100.2), 1: ("crash", 100.1), 2: ("lost connection", 100.0)}, 0),
    ],
)
def test_of_the_ranks_of_a_host_the_one_is_blamed_that_did_not_miss_another(tmp_path, kinds, first):
    for rank, (kind, at_s) in kinds.items():
        write(tmp_path, rank, kind, at_s, 7)
    found = first_failure([end(rank, 1, tmp_path) for rank in kinds])
    assert found.rank == first
    assert (found.kind, found.cause, found.at) == (kinds[first][0], f"of {first}", kinds[first][1])
    assert found.ranks == (7,)


def test_a_killed_rank_leaves_no_account_and_is_blamed_before_those_that_do(tmp_path: Path):
    write(tmp_path, 0, "config", 100.0)
    ends = [end(rank, code, tmp_path) for rank, code in enumerate((2, -9, -15, -6))]
    found = first_failure(ends)
    assert (found.rank, found.kind, found.cause, found.at) == (1, "signal", "", 0.0)
    assert "(pid 1001)" in found.fate and "SIGKILL" in found.fate
    assert first_failure([ends[0], *ends[2:]]).rank == 0


def test_without_accounts_the_exit_status_tells_what_it_can():
    assert first_failure([end(0, 1), end(1, 2)]).kind == "input"
    assert first_failure([end(0, 1), end(1, 3)]).kind == "training"
    assert first_failure([end(0, 7)]) == Failure("", 0, "(pid 1000) ended with exit status 7", status=7)
    assert (end(0, -9).status, end(0, 7).status) == (137, 7)


def test_what_a_launcher_says_arrives(tmp_path: Path):
    said = Failure("", 3, "ended", "text", "", 1, "launch", (1, 2), 5.5)
    write_record(tmp_path / "account.json", said)
    assert read_record(Failure, tmp_path / "account.json") == said
    assert list(tmp_path.iterdir()) == [tmp_path / "account.json"]


def test_the_order_of_blame():
    kinds = ["lost connection", "crash", "signal", "terminated", "", "weights", "out of memory", "hang"]
    assert sorted(kinds, key=order_of_blame) == [
        *("signal", "hang", "weights", "out of memory", "crash", "", "lost connection", "terminated"),
    ]
