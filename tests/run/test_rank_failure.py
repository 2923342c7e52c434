"""A failed rank's account: written where the exception is at hand, read without English."""

import platform
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError, DivergedRanksError, LaunchError, LostConnectionError
from alphazero.cli.command_table import COMMANDS, CommandEntry
from alphazero.cli.main import main
from alphazero.launch.blame import read_account
from alphazero.run import rank
from alphazero.run.rank import OUTPUT_VARIABLE, Failure, note_failure, read_record


def account_of(error: BaseException, directory: Path) -> Failure:
    note_failure(error, 1, {OUTPUT_VARIABLE: str(directory), "LOCAL_RANK": "3"})
    found = read_account(directory, 3)
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
        (OSError(28, "no space", "/a"), "input", (), "[Errno 28] no space: '/a'"),
        (MemoryError(), "out of memory", (), "MemoryError:"),
        (RuntimeError("Connection closed by peer"), "crash", (), "RuntimeError: Connection closed by peer"),
        (KeyError("a"), "crash", (), "KeyError: 'a'"),
    ],
)
def test_an_exception_is_an_account_by_its_type(tmp_path, error, kind, ranks, text):
    found = account_of(error, tmp_path)
    assert (found.kind, found.ranks, found.cause.strip(), found.status) == (kind, ranks, text, 1)


def test_a_full_disk_without_a_file_is_named_with_its_host(tmp_path: Path, monkeypatch):
    full = tmp_path / "full"
    full.mkdir()
    monkeypatch.chdir(full)
    usage = rank.disk_usage
    monkeypatch.setattr(
        rank, "disk_usage", lambda path: usage(path)._replace(free=0 if path == full else 1 << 30)
    )
    text = account_of(OSError(28, "No space left on device"), tmp_path).cause
    assert text.endswith(f"on {platform.node()}: {full}")


def test_what_another_rank_has_caused_is_one_line(monkeypatch, capsys):
    import torch.distributed as dist

    def lose(words: object) -> int:
        raise dist.DistBackendError("Connection closed by peer\nframe #0")

    monkeypatch.setattr("alphazero.cli.main.run_command", lose)
    monkeypatch.setenv("RANK", "1")
    assert main(["train"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Connection closed" in line


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
    assert read_account(tmp_path, 0) is None
    assert read_account(None, 0) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rank": 1, "fate": "ended", "time_s": 1}', '{"ranks": 3}'])
def test_an_account_that_cannot_be_read_is_none(tmp_path: Path, text: str):
    (tmp_path / "0.account.json").write_text(text)
    assert read_account(tmp_path, 0) is None
    assert read_record(Failure, tmp_path / "0.account.json") is None


def test_the_command_leaves_an_account_of_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(OUTPUT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["no-such-command"]) == 2
    found = read_account(tmp_path, 0)
    assert found is not None
    assert (found.kind, found.status) == ("config", 2)
    assert capsys.readouterr().err == f"alphazero: error: {found.cause}\n"
    monkeypatch.setitem(COMMANDS, "crash", CommandEntry("program", ""))
    with pytest.raises(ModuleNotFoundError):
        main(["crash"])
    found = read_account(tmp_path, 0)
    assert found is not None
    assert (found.kind, found.status) == ("crash", 1)
