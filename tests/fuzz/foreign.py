"""What strangers hand over besides data: tablebases, names of games, the state of a match, whole runs."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from random import Random

import chess

from alphazero.cli.main import main
from alphazero.games.registry import get_spec, known_game, make_line, read_game
from alphazero.games.tablebases import Tablebases
from alphazero.run import checkpoint_files as files
from tests.fuzz import mutation
from tests.fuzz.mutation import damaged
from tests.fuzz.readers import Kind, checkpoint_table, command
from tests.support.data.match_states import with_checksums
from tests.support.paths import FIXTURES, SHARED_DATA

SYZYGY = SHARED_DATA / "syzygy"
TABLES = {"KQvK": "KQk", "KPvK": "KPk", "KRvKP": "KRkp", "KBNvK": "KBNk"}
POSITIONS = 20


def make_tables(directory: Path, random: Random) -> Path:
    """Both files of one table, in a directory of that name."""
    name = random.choice(list(TABLES))
    made = directory / name
    made.mkdir()
    for suffix in (".rtbw", ".rtbz"):
        shutil.copy(SYZYGY / f"{name}{suffix}", made)
    return made


def in_place(content: bytes, random: Random) -> bytes:
    """Damage that leaves the size, so that the file still looks like a table; or any."""
    changed = damaged(content, random)
    return changed if random.randrange(4) == 0 else (changed + bytes(len(content)))[: len(content)]


def ask_tables(path: Path) -> None:
    """Refused, or a result for each position; nothing covers the bits of the results themselves."""
    tables = Tablebases(str(path), "--syzygy")
    random = Random(path.name)
    for _ in range(POSITIONS):
        board = chess.Board(None)
        for piece, square in zip(TABLES[path.name], random.sample(range(8, 56), 4), strict=False):
            board.set_piece_at(square, chess.Piece.from_symbol(piece))
        board.turn = random.random() < 0.5
        if not board.is_valid() or board.is_game_over():
            continue
        assert tables.result(board.fen()) in (None, -1, 0, 1), board.fen()
        line = make_line("chess", board.fen())
        if (best := tables.best_moves(line)) is not None:
            assert best.moves and set(best.moves) <= set(line.legal()), board.fen()
            assert best.result in (None, -1, 0, 1), board.fen()


NAMES = (
    "openspiel:mnk(m=3,n=3,k=3)",
    "openspiel:tic_tac_toe",
    "openspiel:connect_four(rows=4,columns=5,x_in_row=3)",
    "openspiel:hex(board_size=3)",
    "openspiel:dots_and_boxes(num_rows=2,num_cols=2)",
    "openspiel:breakthrough(rows=5,columns=4)",
    "openspiel:othello",
    "openspiel:go(board_size=5,komi=0.5)",
)
NUMBERS = (-1, 0, 1, 2, 19, 20, 64, 181, 255, 256, 257, 1000, 9999, 10000, 10001, 65536, 1 << 31, 0.5, True)


def make_name(directory: Path, random: Random) -> Path:
    path = directory / "name.txt"
    path.write_text(random.choice(NAMES))
    return path


def in_name(content: bytes, random: Random) -> bytes:
    """Numbers of all sizes among the parameters, or any damage."""
    if random.randrange(4) == 0:
        return damaged(content, random)

    def other(number: re.Match[bytes]) -> bytes:
        return random.choice((number[0], str(random.choice(NUMBERS)).encode()))

    return re.sub(rb"\d+", other, content)


def name_in(path: Path) -> str:
    """As a shell hands it over."""
    return path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "")


def count_moves_of_name(path: Path) -> int:
    return main(["perft", "startpos", "1", "--game", name_in(path)])


def play_name(path: Path) -> None:
    """As a weights file names it: a few random moves."""
    random, name = Random(0), known_game(read_game("--game", name_in(path)))
    get_spec(name)
    line = make_line(name)
    for _ in range(10):
        if line.outcome().over:
            break
        line.push(random.choice(line.legal()))
        line.packed()


MATCH = (
    *("--player", "random", "--player", "random", "--maxmoves", "4", "--plies", "2"),
    *("--resume", "match.json", "--pgn-out", "match.pgn"),
)


def play_match(path: Path, games: int) -> int:
    """Two random players, to so many games; the state and the PGN are in the directory."""
    os.chdir(path)
    return main(["match", *MATCH, "--games", str(games)])


def make_match(directory: Path, random: Random) -> Path:
    """A match that was stopped."""
    made = directory / "match"
    made.mkdir()
    play_match(made, random.choice((2, 4)))
    return made


def mend_match(path: Path) -> None:
    """Checksums that fit the lines of the state."""
    state = path / "match.json"
    state.write_bytes(with_checksums(state.read_bytes()))


EXECUTED = 98
CODE = f"import os\nos.write(2, b'executed')\nos._exit({EXECUTED})\n"
HOSTILE = (
    "runs/gift/e.py:Nim(piles=3)",
    "e.py:Nim",
    "openspiel:hex(board_size=1000000)",
    "openspiel:mnk(m=9999,n=9999,k=3)",
    "../../../etc/passwd",
    "/dev/zero",
    "-oProxyCommand=touch x",
    "$(touch x)",
    "\x1b]0;title\x07\nforged",
    "a" * 100_000,
)


def make_stranger(directory: Path, random: Random) -> Path:
    """A run beside which lies a file of code that nothing may execute."""
    run = directory / "runs" / "gift"
    others = ("games", "heartbeat", "log.txt", "step-00000008", "best-*")  # have kinds of their own
    shutil.copytree(FIXTURES / "v0" / "selfplay", run, symlinks=True, ignore=shutil.ignore_patterns(*others))
    (run / "e.py").write_text(CODE)
    return directory / "runs"


def in_json(content: bytes, random: Random) -> bytes:
    """A text of the tree that is hostile, or any damage to it."""
    if random.randrange(2):
        return mutation.in_json(content, random)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return damaged(content, random)
    leaves = list(_leaves(tree))
    if leaves:
        container, key = random.choice(leaves)
        container[key] = random.choice(HOSTILE)
    return json.dumps(tree).encode()


def _leaves(tree: object) -> list[tuple[dict | list, object]]:
    found: list[tuple[dict | list, object]] = []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found += _leaves(value) if isinstance(value, dict | list) and value else [(tree, key)]
    return found


def mend_stranger(path: Path) -> None:
    """Manifests that fit the files of the checkpoints."""
    for checkpoint in (path / "gift" / "checkpoints").glob("step-*"):
        if checkpoint.is_dir() and not checkpoint.is_symlink():
            names = [file.name for file in checkpoint.iterdir() if file.name != files.MANIFEST]
            files.write_manifest(checkpoint, sorted(names))


def launch(path: Path) -> int:
    """The plan of going on with the run; with any other command it is opened as well."""
    os.chdir(path.parent)
    return main(["launch", "--run-name", "gift", "--dry-run", "--gpus", "1", "--device", "cpu"])


OF_TABLES = Kind("syzygy", make_tables, ((".rtbw", in_place), (".rtbz", in_place)), (ask_tables,))
KINDS = (
    *([OF_TABLES] if SYZYGY.is_dir() else []),
    Kind("openspiel", make_name, ((".txt", in_name),), (count_moves_of_name, play_name)),
    Kind(
        "match",
        make_match,
        ((".json", mutation.in_lines),),
        tuple(lambda path, games=games: play_match(path, games) for games in (4, 6)),
        mend_match,
    ),
    Kind(
        "stranger",
        make_stranger,
        ((".json", in_json), (".jsonl", mutation.in_lines), (".safetensors", mutation.in_safetensors)),
        (
            launch,
            command("analyse", "--weights", "{path}/gift", "--simulations", "2"),
            lambda path: checkpoint_table("list")(path / "gift"),
            lambda path: checkpoint_table("verify")(path / "gift"),
            command("runs", "{path}"),
            command("report", "{path}/gift"),
        ),
        mend_stranger,
    ),
)
