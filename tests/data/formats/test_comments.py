"""Evaluations and clocks in comments: each program's form by hand, Lichess's against python-chess."""

import random
from pathlib import Path
from typing import Any

import chess
import chess.engine
import chess.pgn
import pytest

from alphazero.cli.main import main
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.pgn_export import export_pgn
from alphazero.data.store.schema import PLY_NOTES
from alphazero.data.store.store import GameStore

Note = tuple[int | None, int | None, int | None, int | None, int | None]
NOTHING: Note = (None, None, None, None, None)
LICHESS, ENGINE = 1, 2
OLD_TCEC = " ev=-0.24, d=22, pd=Ne5, mt=00:02:40, tl=02:22:58, s=5786 kN/s, tb=0,  "
NO_EVALUATIONS = (
    *("", "book", "book, mb=+0+0+0+0+0,", "a fine move, d=5, tl=7", "[%csl Ge4][%evaluation 1.0]"),
    *("[%eval nan]", "[%eval 1e9]", "[%eval 1000000000]", "[%eval 0.3,99999]", "[%eval #0]"),
    *("[%eval 1.0", "[%eval]", "[%eval .]", "[%eval #99999]", "[%eval 1001.00]"),
    *("[%clk 99999999999:00:00]", "[%clk 3:00]", "[%clk -0:00:01]"),
    *("wv=nan, d=30", "wv=0.24, d=99999", "wv=1e9, d=3", "wv=24, d=3", "wv=0.24, d=-2", "wv=, d=2"),
    *("ev=-12,d=21", "pv=Nf3 wv=0.30, d=9", "0.12/14 20 (Bd7)", "+0.35/12", "+0.35/99999 1s"),
    *("+nan/3 1s", "+0.35/12 1.2s and so on", "35/12 1s", "+M0/3 1s", "+0.35 12 1s"),
    *("-", "+", "+1", "9" * 300),
)


def imported(tmp_path: Path, text: str, name: str = "games") -> list[dict[str, Any]]:
    """The rows of a file's store."""
    (tmp_path / f"{name}.pgn").write_text(text)
    import_games([tmp_path / f"{name}.pgn"], tmp_path / name, workers=1)
    store = GameStore.open(tmp_path / name)
    store.verify()
    return [row for shard in store.shards for row in shard.table.to_pylist()]


def notes_of(row: dict[str, Any]) -> list[Note]:
    """Centipawns, mate, depth, source, clock of each ply."""
    lists = [row.get(name) or [None] * len(row["moves"]) for name in PLY_NOTES]
    return list(zip(*lists, strict=True))


def notes_after(tmp_path: Path, comment: str) -> tuple[Note, Note]:
    """What the comment says after a move of White's, and after one of Black's."""
    row = imported(tmp_path, f"1. e4 {{{comment}}} e5 {{{comment}}} 2. Nf3 1-0\n")[0]
    white, black, last = notes_of(row)
    assert last == NOTHING
    return white, black


@pytest.mark.parametrize(
    ("comment", "note"),
    [
        ("[%eval 0.35]", (35, None, None, LICHESS, None)),
        ("[%eval -1.2,20]", (-120, None, 20, LICHESS, None)),
        (" good! [%eval\n17] ", (1700, None, None, LICHESS, None)),
        ("[%eval .055]", (6, None, None, LICHESS, None)),
        ("[%eval #-3]", (None, -3, None, LICHESS, None)),
        ("[%eval #12,40] [%clk 0:03:00]", (None, 12, 40, LICHESS, 180_000)),
        ("[%clk 0:02:59.9]", (None, None, None, None, 179_900)),
        ("[%clk 1:00:00][%emt 0:00:01]", (None, None, None, None, 3_600_000)),
        ("[%eval 0.1] [%eval 0.2]", (10, None, None, LICHESS, None)),
        ("[%eval x] [%eval 0.2]", (20, None, None, LICHESS, None)),
        (
            "d=30, sd=44, mt=90906, tl=3514094, pv=d4 d5 c4, wv=0.24, R50=50,",
            (24, None, 30, ENGINE, 3_514_094),
        ),
        (OLD_TCEC, (-24, None, 22, ENGINE, 8_578_000)),
        ("ev=-0.24, d=22, wv=0.24", (24, None, 22, ENGINE, None)),
        ("d=30, wv=M57", (None, 57, 30, ENGINE, None)),
        ("d=30, wv=-M59", (None, -59, 30, ENGINE, None)),
        ("d=30, wv=-#24, wv=1.00", (None, -24, 30, ENGINE, None)),
        ("d=1, mt=00:00:00, tl=01:40:00, wv=0.00", (None, None, None, None, 6_000_000)),
    ],
)
def test_annotations_and_tcec_count_for_white(tmp_path: Path, comment: str, note: Note):
    assert notes_after(tmp_path, comment) == (note, note)


@pytest.mark.parametrize(
    ("comment", "cp", "mate", "depth"),
    [
        ("+0.35/12 1.2s", 35, None, 12),
        ('-1.05/7 0.004s, n=12, pv="e5"', -105, None, 7),
        ("0.00/1 0s", 0, None, 1),
        ("-M4/20 0.5s, White mates", None, -2, 20),  # 4 plies
        ("+M5/9\n12s", None, 3, 9),
    ],
)
def test_cutechess_and_fastchess_count_for_the_mover(
    tmp_path: Path, comment: str, cp: int | None, mate: int | None, depth: int
):
    white, black = notes_after(tmp_path, comment)
    assert white == (cp, mate, depth, ENGINE, None)
    turned = (None if cp is None else -cp, None if mate is None else -mate)
    assert black == (*turned, depth, ENGINE, None)


@pytest.mark.parametrize("comment", NO_EVALUATIONS)
def test_anything_else_is_no_evaluation(tmp_path: Path, comment: str):
    assert notes_after(tmp_path, comment) == (NOTHING, NOTHING)


def test_a_comment_belongs_to_the_move_of_the_main_line_before_it(tmp_path: Path):
    text = (
        "{ [%eval 9.0] } 1. e4 (1. d4 { [%eval 8.0] }) {one} { [%eval 0.1] } 1... e5 ; [%eval 7.0]\n"
        "2. Nf3 Nc6 {[%eval 0.2]} 1-0 {[%eval 0.3]}\n\n"
        '[Event "the next"]\n\n{[%eval 5.0]} 1. d4 d5 {[%clk 0:00:01]} *\n'
    )
    first, second = imported(tmp_path, text)
    assert [note[0] for note in notes_of(first)] == [10, None, None, 20]
    assert first["clock_ms"] is None
    assert second["eval_cp"] is None
    assert second["clock_ms"] == [None, 1000]


def test_a_faulty_game_leaves_its_comments_behind(tmp_path: Path):
    text = "".join(
        f'[Event "{number}"]\n\n1. e4 {{[%eval 0.{number}1]}} {move} {{[%eval 1.0]}} *\n\n'
        for number, move in enumerate(("e5", "e6 2. Ke3", "e5 {", "c5"))
    )
    rows = imported(tmp_path, text.replace('} *\n\n[Event "3', '*\n\n[Event "3'))
    assert [row["eval_cp"] for row in rows] == [[1, 100], [31, 100]]


def test_the_time_control_is_kept_with_comments_or_without(tmp_path: Path):
    rows = imported(
        tmp_path,
        '[Event "a"]\n[TimeControl "180+2"]\n\n1. e4 *\n\n[Event "b"]\n[TimeControl "?"]\n\n1. d4 *\n\n'
        '[Event "c"]\n[TimeControl "-"]\n\n1. d4 *\n',
    )
    assert [row["time_control"] for row in rows] == ["180+2", None, "-"]
    assert "eval_cp" not in rows[0]


def test_text_without_any_of_it_makes_version_1(tmp_path: Path):
    imported(tmp_path, '[Event "a"]\n[White "x"]\n\n1. e4 {best by test} e5 {book} *\n')
    assert GameStore.open(tmp_path / "games").manifest.version == 1


def commented_game(seed: int) -> chess.pgn.Game:
    """A random game with what Lichess writes, by python-chess."""
    rng = random.Random(seed)
    game = chess.pgn.Game({"Event": str(seed), "Result": "1-0"})
    node: chess.pgn.GameNode = game
    clock = 600.0
    for _ in range(rng.randrange(1, 30)):
        moves = list(node.board().legal_moves)
        if not moves:
            break
        node = node.add_variation(rng.choice(moves))
        depth = rng.choice([None, rng.randrange(60)])
        score = rng.choice([
            chess.engine.Cp(rng.randrange(-3000, 3000)), chess.engine.Mate(rng.choice([-9, -1, 1, 30]))
        ])  # fmt: skip
        if rng.random() < 0.8:
            node.set_eval(chess.engine.PovScore(score, chess.WHITE), depth)
        if rng.random() < 0.8:
            clock -= rng.choice([1, 0.5, 12.25])
            node.set_clock(clock)
        if rng.random() < 0.3:
            node.comment = f"Inaccuracy. {node.comment} d4 was best."
    return game


def test_lichess_comments_say_what_python_chess_reads(tmp_path: Path):
    games = [commented_game(seed) for seed in range(60)]
    rows = imported(tmp_path, "\n\n".join(str(game) for game in games) + "\n")
    num_evals = num_clocks = 0
    for game, row in zip(games, rows, strict=True):
        for node, (cp, mate, depth, source, clock_ms) in zip(game.mainline(), notes_of(row), strict=True):
            score, clock = node.eval(), node.clock()
            num_evals += score is not None
            num_clocks += clock is not None
            assert (
                (None, None) if score is None else (score.white().score(), score.white().mate()) == (cp, mate)
            )
            assert (depth, source) == (node.eval_depth(), None if score is None else LICHESS)
            assert clock_ms == (None if clock is None else round(clock * 1000))
    assert num_evals > 200
    assert num_clocks > 200


def test_export_writes_them_back(tmp_path: Path):
    """All but the source: an engine's evaluation comes back as an annotation."""
    games = "\n\n".join(str(commented_game(seed)) for seed in range(20))
    engine = '[Event "e"]\n[TimeControl "60+1"]\n\n1. e4 {d=9, wv=-M7, tl=12345} e5 {+0.35/12 1.2s} 2. d4 *\n'
    before = imported(tmp_path, f"{games}\n\n{engine}")
    export_pgn(GameStore.open(tmp_path / "games"), tmp_path / "out.pgn")
    after = imported(tmp_path, (tmp_path / "out.pgn").read_text(), "again")
    for old, new in zip(before, after, strict=True):
        changed = {**old, "eval_source": new["eval_source"], "source": new["source"]}
        assert new == changed
        assert [n[3] is None for n in notes_of(old)] == [n[3] is None for n in notes_of(new)]
    assert after[-1]["eval_source"] == [LICHESS, LICHESS, None]


@pytest.mark.parametrize("chunk_bytes", [300, 5000])
def test_chunks_and_shards_change_no_byte(tmp_path: Path, chunk_bytes: int):
    """Games with evaluations, with clocks and with neither, cut anywhere."""
    plain = '[Event "plain"]\n\n1. e4 e5 *\n'
    texts = [str(commented_game(seed)) if seed % 3 else plain for seed in range(40)]
    (tmp_path / "games.pgn").write_text("\n\n".join(texts) + "\n")
    whole = import_games([tmp_path / "games.pgn"], tmp_path / "a", workers=1, shard_limits=(7, 1 << 20))
    cut = import_games(
        [tmp_path / "games.pgn"],
        tmp_path / "b",
        workers=2,
        chunk_bytes=chunk_bytes,
        shard_limits=(7, 1 << 20),
    )
    assert [s.sha256 for s in whole.manifest.shards] == [s.sha256 for s in cut.manifest.shards]


def test_info_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "g.pgn").write_text("1. e4 {[%eval 0.1] [%clk 0:01:00]} e5 {[%eval #1]} *\n")
    store = str(tmp_path / "s")
    assert main(["data", "import", str(tmp_path / "g.pgn"), "--store", store, "--workers", "1"]) == 0
    assert main(["data", "info", store]) == 0
    assert "of 2, clocks of 1" in capsys.readouterr().out
