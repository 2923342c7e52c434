"""What Python reads from outside: a sound example of each kind of file, how to damage it, who reads it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import torch
import zstandard

from alphazero._core import SelfPlayGame, TicTacToeLine
from alphazero.base.errors import CheckpointError
from alphazero.base.records import to_json
from alphazero.cli.main import main
from alphazero.games.registry import get_spec
from alphazero.launch.plan.hostfile import read_hostfile
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights import checkpoint
from alphazero.network.weights.weights import WeightsFile, write_weights
from alphazero.play import lanes
from alphazero.play.matches import engines
from alphazero.play.matches.openings import BALANCED
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import play
from alphazero.run import checkpoint_files as files
from alphazero.run.rank import Heartbeat, Phase
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.fuzz import mutation
from tests.fuzz.corpus import FENS, LINES, ODD_PGN, embedded_games, random_moves
from tests.fuzz.mutation import Mutate, damaged
from tests.support.data.lc0_records import as_v7, records_of, standard_game
from tests.support.data.stores import write_random_store
from tests.support.jobs.saving import checkpoint_of
from tests.support.network.lc0_files import net_file, network_format, weights_fields
from tests.support.paths import REPOSITORY, SUPPORT
from tests.support.report.made_up_runs import supervised_lines, supervised_run
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator


@dataclass(frozen=True)
class Kind:
    """A kind of input. make: writes a sound example, a file or a directory, in an empty directory and says
    where. mutations: how to damage a file, by how its name ends; the first that fits. mend: makes checksums
    right again after damage, so that what lies behind them is tried. read: all who read it.
    """

    name: str
    make: Callable[[Path, Random], Path]
    mutations: tuple[tuple[str, Mutate], ...]
    readers: tuple[Callable[[Path], int | None], ...]
    mend: Callable[[Path], None] | None = None
    files: str = "*"  # of a directory, which are damaged


def damage(kind: Kind, example: Path, random: Random) -> None:
    """Change one file of the example, in place."""
    files_in = (
        [example]
        if example.is_file()
        else sorted(path for path in example.rglob(kind.files) if path.is_file())
    )
    path = random.choice(files_in)
    mutate = next((mutate for suffix, mutate in kind.mutations if path.name.endswith(suffix)), damaged)
    path.write_bytes(mutate(path.read_bytes(), random))
    if kind.mend is not None and random.randrange(4):
        kind.mend(example)


def command(*words: str) -> Callable[[Path], int]:
    """`alphazero WORDS`; {path} is the example, {beside} a path beside it."""

    def read(path: Path) -> int:
        return main([word.format(path=path, beside=path.parent / "made") for word in words])

    return read


def make_pgn(directory: Path, random: Random) -> Path:
    text = random.choice((ODD_PGN, embedded_games(random.randint(1, 5)))).encode()
    ending, pack = random.choice(
        (("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstandard.compress))
    )
    path = directory / f"games.pgn{ending}"
    path.write_bytes(pack(text))
    return path


def make_fen(directory: Path, random: Random) -> Path:
    path = directory / "position.fen"
    path.write_text(random.choice(FENS))
    write_network(directory.parent / "chess.pt", "chess")
    return path


def analyse_fen(path: Path) -> int:
    fen = path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "")  # as the shell hands it over
    return main(["analyse", "--weights", str(path.parent.parent / "chess.pt"), "--fen", fen])


def count_moves(path: Path) -> int:
    fen = path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "")
    return main(["perft", fen, "2"])


def make_book(directory: Path, random: Random) -> Path:
    if random.randrange(2):
        path = directory / "book.pgn"
        path.write_text(embedded_games(random.randint(1, 3)))
        return path
    path = directory / "book.epd"
    lines = BALANCED.read_text().splitlines()
    path.write_text("\n".join(["# a comment", *random.sample(lines, 4), random.choice(FENS)]) + "\n")
    return path


SUITE = ('bm e4 Nf3; id "1; 2";', "0 1 am g4;", 'c0 "text"; am f3 Na3; bm e2e4', "bm d4; hmvc 0;")


def make_suite(directory: Path, random: Random) -> Path:
    write_network(directory.parent / "chess.pt", "chess")
    path = directory / "suite.epd"
    start = " ".join(FENS[0].split()[:4])
    path.write_text("".join(f"{start} {random.choice(SUITE)}\n" for _ in range(4)))
    return path


def make_puzzles(directory: Path, random: Random) -> Path:
    write_network(directory.parent / "chess.pt", "chess")
    path = directory / "puzzles.csv"
    head = random.choice(("", "PuzzleId,FEN,Moves,Rating,Themes\n"))
    row = f"{FENS[0]},f2f3 e7e5 g2g4 d8h4,1500"
    path.write_text(head + "".join(f"{number},{row},mate\n" if head else f"{row}\n" for number in range(4)))
    return path


def with_chess(*words: str) -> Callable[[Path], int]:
    """A command for a small network of chess."""
    return lambda path: command(*words, "--weights", str(path.parent.parent / "chess.pt"))(path)


def make_games(directory: Path, random: Random) -> Path:
    write_network(directory.parent / "chess.pt", "chess")
    return make_pgn(directory, random)


def make_store(directory: Path, random: Random) -> Path:
    write_network(directory.parent / "chess.pt", "chess")
    write_random_store(directory / "store", num_games=random.choice((1, 8)))
    return directory / "store"


def mend_store(path: Path) -> None:
    """Sizes and checksums as the shards now have them, where the manifest can still be read."""
    manifest = path / "manifest.json"
    try:
        body = json.loads(manifest.read_bytes())
        for entry in body["shards"]:
            content = (path / entry["name"]).read_bytes()
            entry.update(size_bytes=len(content), sha256=sha256(content).hexdigest())
        body.pop("manifest_sha256", None)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        manifest.write_text(json.dumps({**body, "manifest_sha256": sha256(text.encode()).hexdigest()}))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        return


def evaluate_store(path: Path) -> int:
    weights, cache = path.parent.parent / "chess.pt", path.parent / "cache"
    words = ("--weights", weights, "--data", path, "--device", "cpu", "--positions", 40, "--cache-dir", cache)
    return main(["eval", *map(str, words)])


def make_checkpoint(directory: Path, random: Random) -> Path:
    whole = checkpoint_of(random.randint(1, 99), {"policy_top1": 0.5})
    games = lanes.to_batch([lane(number, random) for number in range(3)])
    path = checkpoint.save(directory, replace(whole, lanes=lanes.to_bytes(games)))
    for other in set(directory.iterdir()) - {path}:  # the names that point to it
        other.unlink()
    return path


def lane(number: int, random: Random) -> SelfPlayGame:
    """A game of tic-tac-toe under way."""
    game = SelfPlayGame()
    game.lane, game.number = number, random.randrange(5)
    moves = random_moves(LINES.index(TicTacToeLine), number, 4)
    plies = len(moves)
    game.moves = np.array(moves, np.uint16)
    game.flags = np.zeros(plies, np.uint8)
    game.visits = np.zeros(plies, np.uint32)
    game.root_q = game.root_d = game.best_q = np.zeros(plies, np.float32)
    game.best_d = game.orig_q = game.orig_d = np.zeros(plies, np.float32)
    game.policy_offset = np.zeros(plies + 1, np.uint32)
    return game


def mend_checkpoint(path: Path) -> None:
    """A manifest that fits the files."""
    names = [file.name for file in path.iterdir() if file.name != files.MANIFEST]
    files.write_manifest(path, sorted(names))


def resume(path: Path) -> None:
    """What a resumed run reads; its lanes go on."""
    content = checkpoint.load(path).lanes
    if content is not None:
        under_way = lanes.from_batch(lanes.from_bytes(content, "lanes.arrow"))
        settings = self_play_settings(SearchConfig(simulations=4), SelfPlayConfig(), seed=1)
        play("tictactoe", settings, under_way, 2, MadeUpEvaluator("tictactoe", batch_size=4))


def checkpoint_table(action: str) -> Callable[[Path], int]:
    """`alphazero checkpoint ACTION`, which shows damaged checkpoints in its table and then ends with 2."""

    def read(path: Path) -> int:
        status = main(["checkpoint", action, str(path)])
        return 0 if status == CheckpointError.exit_code else status

    return read


def write_network(path: Path, game: str) -> None:
    """A small network with random weights, once."""
    if path.exists():
        return
    config = NetworkConfig(game=game, blocks=1, filters=8, value_hidden=8)
    network = AlphaZeroNet(config, get_spec(game), torch.Generator().manual_seed(0))
    write_weights(path, WeightsFile(config, network.state_dict(), {"step": 3}))


def make_pt(directory: Path, random: Random) -> Path:
    write_network(directory / "net.pt", random.choice(("chess", "connect4")))
    return directory / "net.pt"


def make_safetensors(directory: Path, random: Random) -> Path:
    write_network(directory / "net.safetensors", random.choice(("chess", "connect4")))
    return directory / "net.safetensors"


def make_lc0(directory: Path, random: Random) -> Path:
    head, policy = random.choice((("convolution", 2), ("attention", 3)))
    config = NetworkConfig(blocks=1, filters=8, value_hidden=8, policy_head=head)
    network = AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(random.randrange(3)))
    path = directory / "net.pb.gz"
    layout = network_format(policy=policy)
    path.write_bytes(gzip.compress(net_file(weights_fields(network), format_bytes=layout), 1))
    return path


def make_lc0_games(directory: Path, random: Random) -> Path:
    """A game's records, or an archive of two."""
    seed = random.randrange(1000)
    packed = []
    for number in range(2):
        board = standard_game(seed + number, 12)
        records = records_of(board, random.choice((1, 0, -1)), random)
        packed.append(gzip.compress((as_v7(records) if number else records).tobytes(), 1))
    if random.randrange(2):
        path = directory / "game_000000.gz"
        path.write_bytes(packed[random.randrange(2)])
        return path
    path = directory / "training-run1--20200101-0000.tar"
    with tarfile.open(path, "w") as archive:
        members = {"LICENSE": b"text", "training.1.gz": packed[0], "training.2.gz": packed[1]}
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def make_toml(directory: Path, random: Random) -> Path:
    sources = sorted((REPOSITORY / "configs").glob("*.toml"))
    return shutil.copy(random.choice(sources), directory / "settings.toml")


def make_ds_config(directory: Path, random: Random) -> Path:
    path = directory / "ds_config.json"
    table = json.loads((REPOSITORY / "ds_config.json").read_text())
    table["zero_optimization"]["stage"] = random.randrange(4)
    table.update(gradient_clipping=1.0, train_micro_batch_size_per_gpu="auto", train_batch_size=64)
    table["fp16"] = {"enabled": True, "loss_scale": 0, "hysteresis": 2, "min_loss_scale": 1}
    table["optimizer"] = {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.99], "eps": "auto"}}
    warmup = {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_type": "linear"}
    table["scheduler"] = {"type": random.choice(("WarmupDecayLR", "WarmupCosineLR")), "params": warmup}
    table["compression_training"] = {"layer_reduction": {"enabled": False, "keep_number_layer": 5}}
    text = json.dumps(table, indent=1)
    if random.random() < 0.7:  # what it may hold besides JSON
        path = path.with_suffix(".hjson")
        text = re.sub(r'"(\w+)":', r"\1:", text).replace(": true", ": true #").replace("}", ",} // end\n")
        text = text.replace("scheduler:", "/* of\n DeepSpeed */ scheduler:").replace('"auto"', "auto\n")
    path.write_text(text)
    return path


def read_deepspeed(path: Path) -> None:
    read_deepspeed_settings(path)


def make_hostfile(directory: Path, random: Random) -> Path:
    path = directory / "hostfile"
    lines = [
        "# mine",
        "gpu1 slots=8 weight=1.5",
        "10.0.0.2 slots=4",
        "host-3.local slots=1",
        "[fe80::1] slots=2",
    ]
    path.write_text("\n".join(random.sample(lines, random.randint(1, len(lines)))) + "\n")
    return path


def make_run(directory: Path, random: Random) -> Path:
    """A run that has trained, whose files are small."""
    run = supervised_run(directory / "run")
    run.metrics.write_text(
        "".join(json.dumps(line) + "\n" for line in supervised_lines(random.choice((10, 40))))
    )
    alarm = {"kind": "alarm", "step": 7, "cause": "loss", "text": "it rises", "advice": "wait"}
    rating = {"step": 10, "elo": 12.0, "elo_95": [3.0, 20.0]}
    with run.metrics.open("a") as file:
        file.write(json.dumps(alarm) + "\n" + json.dumps({**alarm, "kind": "self_play", "games": 3}) + "\n")
    (run.path / "ratings.jsonl").write_text(json.dumps(rating) + "\n")
    run.heartbeats.mkdir()
    beat = Heartbeat(0, "here", 1, "job", 40, Phase.END, 0, ())
    (run.heartbeats / "rank-0.json").write_text(to_json(beat))
    return run.path


def make_engine(directory: Path, random: Random) -> Path:
    """What an engine answers to `uci` and to each `go`."""
    path = directory / "answers.txt"
    greeting = "id name Reading\nid author tests\noption name Hash type spin default 1 min 1 max 9\n"
    greeting += "option name Style type combo default a var a var b\nuciok\n"
    told = "info depth 9 seldepth 12 multipv 1 score {} nodes 12 nps 456 hashfull 7 tbhits 0 time 8 pv MOVE\n"
    scores = random.sample(("cp 31", "mate 3", "mate -2", "cp -7 upperbound", "cp 0 wdl 300 400 300"), 3)
    parts = [greeting, *(told.format(score) + "info string x\nbestmove MOVE\n" for score in scores)]
    path.write_text("--\n".join(parts))
    (directory.parent / "start.epd").write_text("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -\n")
    return path


def play_engine(path: Path) -> int:
    """A short match of two of them."""
    engines.START_TIMEOUT_S = 2.0
    player = ("--player", f"cmd={sys.executable}", f"args=-S -E {READING_ENGINE} {path}")
    book, games = path.parent.parent / "start.epd", path.parent / "games.pgn"
    rules = ("--games", "2", "--maxmoves", "3", "--nodes", "9", "--engine-timeout", "2")
    return main(["match", *player * 2, *rules, "--openings", str(book), "--pgn-out", str(games)])


READING_ENGINE = SUPPORT / "evaluation" / "reading_engine.py"
TWO_RANDOM_PLAYERS = (*("--player", "random") * 2, *("--games", "2", "--maxmoves", "3", "--plies", "2"))
_JSON = (".json", mutation.in_json)
_SAFETENSORS = (".safetensors", mutation.in_safetensors)
KINDS = (
    Kind(
        "pgn",
        make_games,
        ((".gz", mutation.in_gzip), (".bz2", mutation.in_bz2), (".zst", mutation.in_zstd)),
        (
            command("data", "import", "{path}", "--store", "{beside}", "--workers", "1"),
            with_chess("analyse", "--pgn", "{path}", "--simulations", "1"),
        ),
    ),
    Kind("suite", make_suite, (), (with_chess("eval", "--epd", "{path}", "--device", "cpu"),)),
    Kind("puzzles", make_puzzles, (), (with_chess("eval", "--puzzles", "{path}", "--device", "cpu"),)),
    Kind("fen", make_fen, (), (analyse_fen, count_moves)),
    Kind("book", make_book, (), (command("match", *TWO_RANDOM_PLAYERS, "--openings", "{path}"),)),
    Kind(
        "store",
        make_store,
        (_JSON,),
        (command("data", "info", "{path}"), command("data", "verify", "{path}"), evaluate_store),
        mend_store,
    ),
    Kind(
        "checkpoint",
        make_checkpoint,
        (_JSON, _SAFETENSORS),
        (resume, checkpoint_table("verify"), checkpoint_table("list")),
        mend_checkpoint,
    ),
    Kind("pt", make_pt, ((".pt", mutation.in_zip),), (command("analyse", "--weights", "{path}"),)),
    Kind("safetensors", make_safetensors, (_SAFETENSORS,), (command("analyse", "--weights", "{path}"),)),
    Kind(
        "lc0",
        make_lc0,
        ((".gz", mutation.in_gzip),),
        (command("import-weights", "{path}", "{beside}.pt"), command("analyse", "--weights", "{path}")),
    ),
    Kind(
        "lc0_games",
        make_lc0_games,
        ((".gz", mutation.in_gzip),),
        (command("data", "import", "{path}", "--store", "{beside}", "--workers", "1"),),
    ),
    Kind("toml", make_toml, (), (lambda path: load_config(str(path), {}) and None,)),
    Kind(
        "run",
        make_run,
        ((".jsonl", mutation.in_lines), _JSON),
        (
            command("report", "{path}"),
            command("report", "{path}", "--out", "{beside}.svg"),
            command("runs", "{path}"),
        ),
    ),
    Kind("engine", make_engine, (), (play_engine,)),
    Kind("ds_config", make_ds_config, ((".json", mutation.in_hjson),), (read_deepspeed,)),
    Kind("hostfile", make_hostfile, (), (lambda path: read_hostfile(path) and None,)),
)
