"""A failed rank's account: written where the exception is at hand, read without English."""

import json
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError, DivergedRanksError, LaunchError, LostConnectionError
from alphazero.cli.command_table import COMMANDS, CommandEntry
from alphazero.cli.main import main
from alphazero.run.rank import (
    OUTPUT_VARIABLE,
    FirstFailure,
    RankEnd,
    RankFailure,
    first_failure,
    note_failure,
    order_of_blame,
    read_failure,
    read_record,
    write_record,
)


def account_of(error: BaseException, directory: Path) -> RankFailure:
    note_failure(error, 1, {OUTPUT_VARIABLE: str(directory), "LOCAL_RANK": "3"})
    found = read_failure(directory, 3)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "kind", "ranks", "text"),
    [
        (ConfigError("--steps: no\nmore"), "config", (), "--steps: no"),
        (DivergedRanksError("they differ", ranks=[1, 5]), "diverged ranks", (1, 5), "they differ"),
        (LaunchError("connection by peer", ranks=[2]), "launch", (2,), "connection by peer"),
        (LostConnectionError("gone"), "lost connection", (), "gone"),
        (ConnectionResetError(104, "reset"), "lost connection", (), "[Errno 104] reset"),
        (OSError(28, "No space left on device"), "input", (), "[Errno 28] No space left on device"),
        (MemoryError(), "out of memory", (), "MemoryError:"),
        (RuntimeError("Connection closed by peer"), "crash", (), "RuntimeError: Connection closed by peer"),
        (KeyError("a"), "crash", (), "KeyError: 'a'"),
    ],
)
def test_an_exception_is_an_account_by_its_type(tmp_path, error, kind, ranks, text):
    found = account_of(error, tmp_path)
    assert (found.kind, found.ranks, found.text.strip(), found.status) == (kind, ranks, text, 1)


def test_torch_s_own_errors_are_known_by_type(tmp_path: Path):
    import torch
    import torch.distributed as dist

    assert account_of(dist.DistBackendError("NCCL"), tmp_path).kind == "lost connection"
    assert account_of(dist.DistNetworkError("no"), tmp_path).kind == "lost connection"
    assert account_of(torch.OutOfMemoryError("no"), tmp_path).kind == "out of memory"
    full = "NCCL error in: ProcessGroupNCCL.cpp, unhandled cuda error. Cuda failure 2 'out of memory'"
    assert account_of(dist.DistBackendError(full), tmp_path).kind == "out of memory"


def test_an_error_of_gloo_is_known_by_the_place_where_it_was_raised(tmp_path: Path):
    import torch.distributed as dist

    module = {"__name__": "torch.distributed.distributed_c10d"}
    exec("def all_reduce():\n    raise RuntimeError('something about a socket')", module)
    with pytest.raises(RuntimeError) as caught:
        module["all_reduce"]()
    assert account_of(caught.value, tmp_path).kind == "lost connection"
    # Whether or not an earlier test has left a process group.
    with pytest.raises(ValueError, match="must be string") as caught_misuse:
        dist.Backend(5)
    assert account_of(caught_misuse.value, tmp_path).kind == "crash"


def test_without_an_agent_and_for_a_rank_that_ends_by_itself_there_is_no_account(tmp_path: Path):
    note_failure(ValueError(), 1, {})
    note_failure(SystemExit(2), 2, {OUTPUT_VARIABLE: str(tmp_path), "LOCAL_RANK": "0"})
    note_failure(ValueError(), 1, {OUTPUT_VARIABLE: str(tmp_path / "gone"), "LOCAL_RANK": "0"})
    assert list(tmp_path.iterdir()) == []
    assert read_failure(tmp_path, 0) is None
    assert read_failure(None, 0) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rank": 1, "fate": "ended", "time_s": 1}', '{"ranks": 3}'])
def test_an_account_that_cannot_be_read_is_none(tmp_path: Path, text: str):
    (tmp_path / "0.failure.json").write_text(text)
    assert read_failure(tmp_path, 0) is None
    assert read_record(FirstFailure, tmp_path / "0.failure.json") is None


def test_the_command_leaves_an_account_of_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(OUTPUT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["no-such-command"]) == 2
    found = read_failure(tmp_path, 0)
    assert found is not None
    assert (found.kind, found.status) == ("config", 2)
    assert capsys.readouterr().err == f"alphazero: error: {found.text}\n"
    monkeypatch.setitem(COMMANDS, "crash", CommandEntry("program", ""))
    with pytest.raises(ModuleNotFoundError):
        main(["crash"])
    found = read_failure(tmp_path, 0)
    assert found is not None
    assert (found.kind, found.status) == ("crash", 1)


def end(rank: int, exit_code: int) -> RankEnd:
    return RankEnd(rank, rank, 1000 + rank, exit_code)


def write(directory: Path, rank: int, kind: str, at_s: float, *ranks: int) -> None:
    fields = {"kind": kind, "ranks": ranks, "text": f"of {rank}", "status": 1, "at_s": at_s}
    (directory / f"{rank}.failure.json").write_text(json.dumps(fields))


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
    found_end, found = first_failure([end(rank, 1) for rank in kinds], tmp_path)
    assert found_end.rank == found.rank == first
    assert (found.kind, found.text, found.at_s) == (kinds[first][0], f"of {first}", kinds[first][1])
    assert found.ranks == (7,)


def test_a_killed_rank_leaves_no_account_and_is_blamed_before_those_that_do(tmp_path: Path):
    write(tmp_path, 0, "config", 100.0)
    ends = [end(0, 2), end(1, -9), end(2, -15), end(3, -6)]
    _, found = first_failure(ends, tmp_path)
    assert (found.rank, found.kind, found.text, found.at_s) == (1, "signal", "", None)
    assert found.fate == "(pid 1001) was killed by SIGKILL: perhaps out of memory, see dmesg"
    assert first_failure([ends[0], *ends[2:]], tmp_path)[1].rank == 0


def test_without_accounts_the_exit_status_tells_what_it_can():
    assert first_failure([end(0, 1), end(1, 2)], None)[1].kind == "input"
    assert first_failure([end(0, 1), end(1, 3)], None)[1].kind == "training"
    assert first_failure([end(0, 7)], None)[1] == FirstFailure(
        0, "(pid 1000) ended with exit status 7", "", (), "", None
    )
    assert (end(0, -9).status, end(0, 7).status) == (137, 7)


def test_what_a_launcher_says_arrives(tmp_path: Path):
    said = FirstFailure(3, "ended", "launch", (1, 2), "text", 5.5)
    write_record(tmp_path / "failure.json", said)
    assert read_record(FirstFailure, tmp_path / "failure.json") == said
    assert list(tmp_path.iterdir()) == [tmp_path / "failure.json"]


def test_the_order_of_blame():
    kinds = ["lost connection", "crash", "signal", "terminated", "", "weights", "out of memory", "hang"]
    assert sorted(kinds, key=order_of_blame) == [
        *("signal", "hang", "weights", "out of memory", "crash", "", "lost connection", "terminated"),
    ]
