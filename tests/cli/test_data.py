"""`alphazero data` as typed: what it prints, and one line with exit code 2 for each mistake."""

import json
import os
import random
from pathlib import Path

import pytest

from alphazero.cli.main import main
from tests.support.data.lc0_records import records_of, standard_game, write

GAMES = (
    '[Event "a"]\n[White "w"]\n[WhiteElo "2500"]\n[Result "1-0"]\n\n1. e4 e5 2. Nf3 1-0\n\n'
    '[Event "b"]\n[Result "0-1"]\n\n1. e4 e5 2. Ke3 0-1\n\n'
    '[Event "c"]\n[Variant "atomic"]\n\n1. e4 *\n\n'
    '[Event "d"]\n[Result "1/2-1/2"]\n\n1. d4 1/2-1/2\n'
)


@pytest.fixture
def games(tmp_path: Path) -> Path:
    path = tmp_path / "games.pgn"
    path.write_text(GAMES)
    return path


@pytest.fixture
def store(games: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "store"
    assert main(["data", "import", str(games), "--store", str(path), "--workers", "1"]) == 0
    return path


def test_import_tells_totals_that_add_up(games: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = tmp_path / "store"
    assert main(["data", "import", str(games), "--store", str(store)]) == 0
    shown = capsys.readouterr()
    assert "2 games, 4 plies" in shown.out
    assert "4 = imported 2 + quarantined 2" in shown.out
    assert f"1 x move (see {store / 'quarantine.jsonl'})" in shown.out
    assert shown.err == ""  # no terminal, and over before there is anything to wait for
    assert main(["data", "import", str(games), "--store", str(store)]) == 0
    assert "already holds" in capsys.readouterr().out


def test_info_describes_a_store(store: Path, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    assert main(["data", "info", str(store)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "chess, 2 games, 4 plies",
        "mean length   2.0 plies",
        "1-0 1, 1/2-1/2 1, 0-1 0, * 0",
        "Elo           2500-2500",
        "quarantined   move 1, variant 1",
        "games.pgn: 4 games, 2 imported, 2 quarantined",
    ):
        assert words in shown
    assert main(["data", "info", str(store), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["results"] == {"1-0": 1, "1/2-1/2": 1, "0-1": 0, "*": 0}
    assert summary["quarantined"] == {"move": 1, "variant": 1}


def test_verify_says_that_all_is_well(store: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["data", "verify", str(store)]) == 0
    assert "2 games, 4 plies: checksums" in capsys.readouterr().out


def test_lc0_data_goes_in_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    leela, store = tmp_path / "leela", tmp_path / "store"
    leela.mkdir()
    for number in range(3):
        records = records_of(standard_game(number, 12), 1, random.Random(number))
        write(leela / f"training.{number}.gz", records)
    assert main(["data", "import", str(leela), "--store", str(store), "--workers", "1"]) == 0
    assert "3 games, 36 plies" in capsys.readouterr().out
    assert main(["data", "info", str(store)]) == 0
    assert "2, with best_d, played_q" in capsys.readouterr().out
    assert main(["data", "export", str(store), "--to", "lc0", "--out", str(tmp_path / "out")]) == 0
    assert f"{tmp_path / 'out'}: 3 games, 36 positions" in capsys.readouterr().out
    pgn = str(tmp_path / "games.pgn")
    words = ["data", "export", str(store), "--to", "pgn", "--out", pgn, "--first", "1", "--games", "1"]
    assert main(words) == 0
    assert f"{pgn}: 1 game, 12 plies" in capsys.readouterr().out
    assert main(words) == 2
    assert main(["data", "export", str(store), "--to", "lc0", "--out", "-"]) == 2
    (leela / "more.pgn").write_text(GAMES)
    assert main(["data", "import", str(leela), "--store", str(tmp_path / "other")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "expected" in line] == lines
    named = f"{leela / 'training.0.gz'} holds lc0 training data and {leela / 'more.pgn'} PGN"
    assert named in lines[-1]
    assert not (tmp_path / "other").exists()


def test_mistakes_are_one_line_and_exit_code_2(store: Path, games: Path, capsys: pytest.CaptureFixture[str]):
    here = games.parent
    (here / "not.pgn").write_text("nothing that is chess")
    (here / "half.pgn.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0")
    (here / "empty").mkdir()
    (here / "void.pgn").write_text("")
    damaged = here / "damaged"
    damaged.mkdir()
    for file in store.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    shard = damaged / "shard-00000.arrow"
    shard.write_bytes(shard.read_bytes().replace(b"\x0c", b"\x0d"))
    new = ["--store", str(here / "new")]
    capsys.readouterr()
    for arguments, words in (
        (["import", str(here / "missing.pgn"), *new], "missing.pgn: cannot read: No such file or directory"),
        (["import", str(here / "empty"), *new], "empty: no PGN files below this directory"),
        (["import", str(here / "not.pgn"), *new], "not.pgn: no game could be imported"),
        (["import", str(here / "void.pgn"), *new], "void.pgn: no game could be imported"),
        (["import", str(here / "half.pgn.gz"), *new], "half.pgn.gz: damaged gzip data after 0 bytes of text"),
        (["import", str(games), str(games), *new], "games.pgn: given twice"),
        (["import", str(games), "--store", str(here)], f"{here}: not a game store"),
        (["import", str(games), "--store", str(games)], "games.pgn: not a game store"),
        (["import", str(here / "not.pgn"), "--store", str(store)], "holds the games of other sources"),
        (
            ["import", str(games), *new, "--workers", "0"],
            "--workers: '0': expected a whole number from 1",
        ),
        (
            ["import", str(games), *new, "--workers", "two"],
            "--workers: 'two': expected a whole number from 1",
        ),
        (["import", str(games)], "--store"),
        (["info", str(here / "nowhere")], "nowhere: no game store here"),
        (["info", str(games.parent)], "no game store here"),
        (["verify", str(damaged)], "shard-00000.arrow: "),
        (["explode"], "explode"),
        ([], "{import,info,verify,export}"),
    ):
        assert main(["data", *arguments]) == 2, arguments
        shown = capsys.readouterr()
        message = [line for line in shown.err.splitlines() if line.startswith("alphazero: error: ")]
        assert len(message) == 1, shown.err
        assert words in message[0]
        assert "Traceback" not in shown.err
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["import", "", "--store", "s"],
        ["import", "x.pgn", "--store", ""],
        ["info", ""],
        ["verify", ""],
    ],
)
def test_an_empty_path_is_not_the_current_directory(
    words: list[str], games: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(games.parent)
    assert main(["data", *words]) == 2
    assert "'': expected the path" in capsys.readouterr().err


def test_names_that_are_not_utf8_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store, source = tmp_path / os.fsdecode(b"s\xff"), tmp_path / os.fsdecode(b"g\xe9.pgn")
    source.write_text(GAMES)
    assert main(["data", "import", str(source), "--store", str(store)]) == 0
    assert main(["data", "info", str(store)]) == 0
    assert main(["data", "verify", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "s\\xff: 2 games" in shown
    assert "g\\xe9.pgn: 4 games" in shown
    shown.encode("utf-8")


@pytest.mark.parametrize(
    "command",
    [
        ["launch", "--device", "cpu", "--gpus", "1", "--data"],
        ["launch", "--device", "cpu", "--gpus", "1", "--validation-data"],
        ["data", "import", "--store", "store", "--"],
    ],
)
def test_positions_are_refused_as_games_by_their_file_name(
    tmp_path: Path, monkeypatch, capsys, command: list[str]
):
    monkeypatch.chdir(tmp_path)
    Path("my book.EPD").write_text("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - bm e4;\n")
    assert main([*command, "my book.EPD"]) == 2
    assert capsys.readouterr().err.endswith(
        "alphazero: error: my book.EPD: EPD has positions and no games; expected PGN (`alphazero match "
        "--openings 'my book.EPD' --pgn-out games.pgn` plays games from these positions)\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["my book.EPD"]
