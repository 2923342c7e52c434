"""What a user gets wrong: one line that names the place, the value and what was expected; exit code 2."""

import gzip
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from alphazero.cli.main import main
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import WeightsFile, write_weights
from alphazero.settings.sections import NetworkConfig

# Columns: what is wrong, argv ({name} are files made below), words the line must hold.
TABLE = [
    ("no such command", ["trian"], ["'trian'", "no such command", "train"]),
    ("no such flag", ["train", "--batchsize", "4"], ["unknown flag --batchsize; did you mean --batch-size?"]),
    (
        "no such flag of launch",
        ["launch", "--learningrate", "4"],
        ["--learningrate; did you mean --learning-rate?"],
    ),
    ("a flag of launch misspelt", ["launch", "--gpu", "4"], ["unknown flag --gpu; did you mean --gpus?"]),
    (
        "no such flag of an action",
        ["data", "info", "x", "--jsn"],
        ["unknown flag --jsn; did you mean --json?"],
    ),
    (
        "no such flag of a benchmark",
        ["bench", "loader", "--second", "1"],
        ["--second; did you mean --seconds?"],
    ),
    (
        "no such action",
        ["data", "inf", "x"],
        ["'inf'", "did you mean info? Expected one of import, info, verify"],
    ),
    (
        "not among argparse's choices",
        ["train", "--device", "gpu"],
        ["--device: 'gpu'", "one of auto, cuda, cpu"],
    ),
    ("an argument too many", ["perft", "startpos", "1", "--depth"], ["unknown flag --depth"]),
    ("a command misspelt", ["trian"], ["'trian': no such command; did you mean train?"]),
    (
        "more GPUs than can be",
        ["launch", "--gpus", "99999999999"],
        ["--gpus: '99999999999'", "from -1 to 1024"],
    ),
    (
        "a batch too large",
        ["train", "--batch-size", "1" + "0" * 18],
        ["--batch-size", "from 1 to 16,777,216"],
    ),
    (
        "a launched batch too large",
        ["launch", "--batch-size", "1" + "0" * 18],
        ["--batch-size", "16,777,216"],
    ),
    (
        "thousands of digits",
        ["train", "--seed", "9" * 5000],
        ["--seed", "(5,002 characters)", "whole number"],
    ),
    ("thousands of digits for argparse", ["launch", "--nodes", "9" * 5000], ["--nodes", "1 to 65536"]),
    ("a depth of thousands of digits", ["perft", "startpos", "9" * 5000], ["DEPTH", "1 to 99"]),
    ("a port that is none", ["launch", "--master-port", "70000"], ["--master-port: '70000'", "1 to 65535"]),
    ("seconds that are none", ["launch", "--hang-timeout", "nan"], ["--hang-timeout: 'nan'", "a number"]),
    ("no such flag of thousands of letters", ["train", "--" + "x" * 5000], ["unknown flag"]),
    ("flag is no number", ["train", "--batch-size", "many"], ["--batch-size", "'many'", "whole number"]),
    ("flag out of range", ["train", "--blocks", "0"], ["--blocks", "'0'", "1 to 256"]),
    ("flag not among the choices", ["train", "--precision", "fp8"], ["--precision", "'fp8'", "fp32, bf16"]),
    ("flags that contradict", ["train", "--mixed-precision", "--precision", "fp32"], ["--mixed-precision"]),
    ("resume and fresh start", ["train", "--resume", "--fresh-start"], ["--resume", "--fresh-start"]),
    ("no such preset", ["train", "--config", "chess_huge"], ["chess_huge", "chess_20x256"]),
    ("no such TOML file", ["train", "--config", "{tmp}/no.toml"], ["no.toml", "no such file"]),
    ("TOML syntax", ["train", "--config", "{syntax_toml}"], ["syntax.toml"]),
    ("TOML key misspelt", ["train", "--config", "{misspelt_toml}"], ["misspelt.toml:2", "'bloks'", "blocks"]),
    ("TOML value of another type", ["train", "--config", "{typed_toml}"], ["typed.toml:3", "'big'", "whole"]),
    ("no such ds_config", ["train", "--deepspeed_config", "{tmp}/no.json"], ["no.json", "cannot be read"]),
    ("ds_config syntax", ["train", "--deepspeed_config", "{syntax_json}"], ["syntax.json:1", "JSON"]),
    ("ds_config key", ["train", "--deepspeed_config", "{key_json}"], ["zero = 1", "zero_optimization"]),
    (
        "ds_config batch",
        ["train", "--deepspeed_config", "{batch_json}"],
        ["train_batch_size = 64.5", "whole number"],
    ),
    ("ds_config stage", ["train", "--deepspeed_config", "{stage_json}"], ["stage = 7", "from 0 to 3"]),
    ("no such data", ["train", "--data", "{tmp}/none.pgn"], ["none.pgn", "no such file"]),
    ("data without a game", ["train", "--data", "{text}"], ["text.pgn"]),
    ("micro-batch does not divide", ["train", "--micro-batch-size", "33"], ["33", "256"]),
    ("run name with a slash", ["train", "--run-name", "a/b"], ["'a/b'", "without '/'"]),
    ("resume of nothing", ["train", "--run-name", "new", "--resume"], ["no complete checkpoint"]),
    ("resume of no checkpoint", ["train", "--resume", "{tmp}"], ["manifest.json", "cannot be read"]),
    ("nccl on the CPU", ["train", "--backend", "nccl"], ["nccl", "gloo"]),
    ("import of nothing", ["data", "import", "{tmp}/none.pgn", "--store", "{tmp}/s"], ["none.pgn"]),
    ("import of damaged gzip", ["data", "import", "{gzip}", "--store", "{tmp}/s"], ["cut.pgn.gz"]),
    ("info of no store", ["data", "info", "{tmp}"], ["manifest.json"]),
    ("weights that are not there", ["analyse", "--weights", "{tmp}/no.pt"], ["no.pt", "no such file"]),
    ("weights that are text", ["analyse", "--weights", "{text}"], ["text.pgn", "no weights file"]),
    ("weights cut short", ["analyse", "--weights", "{cut_pt}"], ["cut.pt"]),
    ("a pickle from outside", ["analyse", "--weights", "{pickle_pt}"], ["pickle.pt"]),
    ("a FEN without kings", ["perft", "8/8/8/8/8/8/8/8 w - - 0 1", "1"], ["king"]),
    (
        "a FEN with fifteen queens",
        ["analyse", "--weights", "{chess_pt}", "--fen", "QQQQ3Q/5Q2/Q6Q/2Q5/Q5Q1/3Q4/1Q4QQ/1K2k3 w - - 0 1"],
        ["white has 14 pawns and promoted pieces", "expected at most 8"],
    ),
    ("a FEN that is not UTF-8", ["perft", "8/8\udcff/8", "1"], ["'8/8?/8'", "fields"]),
    (
        "a move that is not UTF-8",
        ["analyse", "--weights", "{chess_pt}", "--moves", "e2\udcff"],
        ["--moves, number 1", "e2?"],
    ),
    (
        "a FEN to analyse that is not UTF-8",
        ["analyse", "--weights", "{chess_pt}", "--fen", "\udcff"],
        ["'?'", "fields"],
    ),
    ("a depth of 5,000 digits", ["perft", "startpos", "1" * 5000], ["expected a whole number from 1 to 99"]),
    ("a depth that is no number", ["perft", "startpos", "deep"], ["'deep'"]),
    (
        "int8 for known games",
        ["eval", "--weights", "{tmp}/no.pt", "--data", "{tmp}", "--precision", "int8"],
        ["--precision int8", "--solved", "fp32, bf16, fp16"],
    ),
    ("eval of nothing", ["eval", "--weights", "{tmp}/no.pt", "--data", "{tmp}"], ["no.pt"]),
    (
        "data with self-play alone",
        ["train", "--config", "connect4", "--data", "{text}"],
        ["--data", "--mode selfplay", "--mode mixed"],
    ),
    (
        "no games of this game",
        ["train", "--config", "connect4", "--mode", "supervised"],
        ["connect4", "--data", "--mode selfplay"],
    ),
    ("no such mode", ["train", "--mode", "zero"], ["--mode", "'zero'", "selfplay, mixed"]),
    ("self-play without weights", ["selfplay", "--out", "{tmp}/out"], ["no network was named", "expected W"]),
    (
        "self-play of no weights file",
        ["selfplay", "--weights", "{text}", "--out", "{tmp}/out"],
        ["text.pgn", "no weights file"],
    ),
    (
        "no games to play",
        ["selfplay", "--weights", "{text}", "--out", "{tmp}/o", "--games", "0"],
        ["--games: '0'"],
    ),
    (
        "games into what is no store",
        ["selfplay", "--weights", "{connect4_pt}", "--out", "{tmp}", "--games", "1"],
        ["{tmp}", "store"],
    ),
    (
        "an odd match",
        ["match", "--weights", "{text}", "--against", "random", "--games", "3"],
        ["--games 3", "even"],
    ),
    (
        "a match of two games",
        ["match", "--weights", "{connect4_pt}", "--against", "{chess_pt}"],
        ["chess.pt", "chess", "connect4"],
    ),
    (
        "a match against nobody",
        ["match", "--weights", "{connect4_pt}", "--against", "{tmp}/no.pt"],
        ["no.pt"],
    ),
    ("a report of no run", ["report", "{tmp}/none"], ["none", "run directory"]),
    (
        "a report of a link to itself",
        ["report", "{loop}", "{tmp}"],
        ["loop", "Too many levels of symbolic links"],
    ),
    (
        "import of a link to itself",
        ["data", "import", "{loop}", "--store", "{tmp}/s"],
        ["loop", "Too many levels of symbolic links"],
    ),
    (
        "eval of a link to itself",
        ["eval", "--weights", "{chess_pt}", "--data", "{loop}"],
        ["loop", "Too many levels of symbolic links"],
    ),
    ("import into a link to itself", ["data", "import", "{gzip}", "--store", "{loop}"], ["not a game store"]),
    ("a report in no format", ["report", "{tmp}", "--out", "r.gif"], ["r.gif", ".html"]),
    ("a column that is none", ["solve", "448"], ["move 3", "'8'", "expected a legal move"]),
    ("a game that is over", ["solve", "1212121"], ["'1212121'", "over"]),
    ("no such benchmark", ["bench", "speed"], ["'speed'", "loader"]),
    ("more nodes without address", ["launch", "--nodes", "2", "--node-rank", "1"], ["--master-addr"]),
    (
        "hostfile line",
        ["launch", "--hostfile", "{hostfile}"],
        ["hosts:2", "'gpu1 slots=x'", "slots=<positive int>"],
    ),
    ("no such hostfile", ["launch", "--hostfile", "{tmp}/nohosts"], ["nohosts"]),
    ("launcher passes on a bad flag", ["launch", "--steps", "-1"], ["--steps", "'-1'", "from 0 to"]),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """Files that are wrong, by name."""
    tmp = tmp_path_factory.mktemp("bad")
    made = {"tmp": tmp}

    def write(key: str, name: str, content: str | bytes) -> None:
        made[key] = tmp / name
        made[key].write_bytes(content.encode() if isinstance(content, str) else content)

    write("syntax_toml", "syntax.toml", "[network\n")
    write("misspelt_toml", "misspelt.toml", "[network]\nbloks = 3\n")
    write("typed_toml", "typed.toml", "[network]\n# size\nfilters = 'big'\n")
    write("syntax_json", "syntax.json", "{,}")
    write("key_json", "key.json", '{"zero": 1}')
    write("batch_json", "batch.json", '{"train_batch_size": 64.5}')
    write("stage_json", "stage.json", '{"zero_optimization": {"stage": 7}}')
    write("text", "text.pgn", "no chess in here\n")
    write("gzip", "cut.pgn.gz", gzip.compress(b'[Event "a"]\n\n1. e4 e5 1-0\n' * 2000)[:-20])
    write("hostfile", "hosts", "# mine\ngpu1 slots=x\n")
    made["loop"] = tmp / "loop"
    made["loop"].symlink_to("loop")
    torch.save({"weights": np.zeros(3)}, tmp / "pickle.pt")
    made["pickle_pt"] = tmp / "pickle.pt"
    torch.save({"a": torch.zeros(100)}, tmp / "whole.pt")
    write("cut_pt", "cut.pt", (tmp / "whole.pt").read_bytes()[:-200])
    for game in ("chess", "connect4"):
        config = NetworkConfig(game=game, blocks=1, filters=8)
        network = AlphaZeroNet(config, get_spec(game))
        made[f"{game}_pt"] = tmp / f"{game}.pt"
        write_weights(made[f"{game}_pt"], WeightsFile(config, network.state_dict(), {}))
    return made


@pytest.mark.parametrize(("argv", "words"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_mistake_is_one_line_and_exit_code_2(argv, words, files, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    # `train` makes itself a job of one in the environment: it must not leak into other tests.
    with mock.patch.dict(os.environ):
        status = main([part.format(**files) for part in argv])
    errors = [line for line in capfd.readouterr().err.splitlines() if "error:" in line]
    assert status == 2
    assert len(errors) == 1, errors
    assert len(errors[0]) < 1500
    assert errors[0].startswith("alphazero: error: ")
    for word in words:
        assert word.format(**files) in errors[0]
    left = [path for path in tmp_path.rglob("*") if path.is_file() and "lock" not in path.name]
    assert left == [], "a mistake must leave nothing half-written"


def test_the_table_has_at_least_25_rows():
    assert len(TABLE) >= 25
