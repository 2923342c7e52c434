"""Names, settings and tags of strangers: nothing printed moves the cursor, sets a title or forges a row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alphazero.base.log import error_line, program_line
from alphazero.base.text import escaped, printable, table
from alphazero.cli.main import main
from alphazero.machine.lock import Holder
from alphazero.run.checkpoint_files import STATE, checkpoints_in, write_manifest
from alphazero.settings.scope import Change
from alphazero.show.console import Console
from tests.run.test_run_overview import make_run
from tests.support.evaluation.small_nets import write_small_net

HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b1m\u202e\r\nmine  chess 20x256  9 of 9"


def check(text: str, *, rows: int = 0) -> None:
    assert all(sign.isprintable() or sign == "\n" for sign in text), text
    assert not any(line.startswith("mine") for line in text.splitlines())
    assert not rows or text.count("\n") == rows, text


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose directory, settings and state were written by a stranger."""
    run = make_run(tmp_path / "runs" / HOSTILE, (10, 20), None)
    config = json.loads((run / "config.json").read_text())
    config["network"]["game"] = HOSTILE
    (run / "config.json").write_text(json.dumps(config))
    for checkpoint in checkpoints_in(run / "checkpoints"):
        state = json.loads((checkpoint / STATE).read_text())
        (checkpoint / STATE).write_text(json.dumps({**state, "figures": HOSTILE}))
        write_manifest(checkpoint, ["weights.safetensors", "optimizer.safetensors", "state.json"])
    return run


def test_the_tables_of_runs_and_checkpoints(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(run.parent)]) == 0
    check(capsys.readouterr().out, rows=2)
    assert main(["checkpoint", "list", str(run)]) == 2  # no figures
    check(capsys.readouterr().out, rows=3)
    (run / "checkpoints" / "step-00000020" / STATE).write_text("[]")
    assert main(["checkpoint", "verify", str(run)]) == 2
    check(capsys.readouterr().out, rows=3)
    assert main(["checkpoint", "prune", str(run), "--keep", "1", "--dry-run"]) == 0
    check(capsys.readouterr().out)


def test_errors_about_what_a_stranger_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["checkpoint", "list", HOSTILE], ["data", "info", HOSTILE], ["play", HOSTILE], [HOSTILE]):
        assert main(words) == 2
        check(capsys.readouterr().err, rows=1)


def test_names_of_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    weights = write_small_net(tmp_path / f"{HOSTILE}.pt", "tictactoe")
    monkeypatch.setattr("builtins.input", lambda prompt="": "quit")
    assert main(["play", weights, "--device", "cpu", "--simulations", "2", "--ascii"]) == 0
    assert main(["match", weights, "--against", "random", "--games", "2", "--simulations", "2"]) == 0
    found = capsys.readouterr()
    check(found.out)
    check(found.err)


def test_tags_and_names_of_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    games = tmp_path / f"{HOSTILE}.pgn"
    tag = HOSTILE.replace("\r\n", " ")
    games.write_text(
        f'[Event "{tag}"]\n[White "{tag}"]\n[Variant "{tag}"]\n\n1. e4 {{{tag}}} e5 1-0\n\n', "utf-8"
    )
    assert main(["data", "import", str(games), "--out", str(tmp_path / "store")]) in (0, 2)
    found = capsys.readouterr()
    check(found.out)
    check(found.err)
    if (tmp_path / "store").exists():
        assert main(["data", "info", str(tmp_path / "store")]) == 0
        check(capsys.readouterr().out)
    games.write_text(f'[Event "{tag}"]\n[White "{tag}"]\n\n1. e4 {{{tag}}} e5 1-0\n\n', "utf-8")
    weights = write_small_net(tmp_path / "net.pt", "chess")
    assert main(["analyse", weights, "--pgn", str(games), "--simulations", "2", "--device", "cpu"]) == 0
    check(capsys.readouterr().out)


def test_lines_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (error_line(HOSTILE), program_line(HOSTILE), *table([(HOSTILE, "a"), ("b", HOSTILE)])):
        check(line)
    check(str(Holder(HOSTILE, 1, HOSTILE, HOSTILE)))
    check(str(Change("network", "game", HOSTILE, HOSTILE)))
    console = Console(True)
    console.log_to(tmp_path)
    console.say("two\nlines\x1b[2J")
    console.close()
    check(capsys.readouterr().err)
    check((tmp_path / "log.txt").read_text())


def test_what_is_printable_stays() -> None:
    for text in ("Größe 9, ♞f3, 日本", "", "a b"):
        assert escaped(text) == printable(text) == text
    assert escaped("a\x1b\n") == "a\\x1b\\n" and escaped("a\nb\t", "\n") == "a\nb\\t"
