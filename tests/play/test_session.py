"""Sessions of random and mutated lines: every one leaves an engine that answers."""

import random

import pytest

from tests.support.uci.driving import DrivenEngine

LINES = (
    "uci",
    "isready",
    "ucinewgame",
    "stop",
    "ponderhit",
    "debug on",
    "register later",
    "setoption name Hash value 8",
    "setoption name MultiPV value 3",
    "setoption name Threads value 1",
    "setoption name UCI_Chess960 value true",
    "setoption name UCI_ShowWDL value true",
    "setoption name MemoryLimit value 2",
    "setoption name MinibatchSize value 4",
    "setoption name BatchesInFlight value 1",
    "setoption name CPuct value 2.5",
    "setoption name PolicyTemperature value 1",
    "setoption name Clear Hash",
    "setoption name WeightsFile value other",
    "position startpos",
    "position startpos moves e2e4 e7e5 g1f3",
    "position startpos moves f2f3 e7e5 g2g4 d8h4",
    "position fen r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1 moves e1g1",
    "position fen 7k/5Q2/8/8/8/8/8/K7 b - - 0 1",
    "position fen bbqnnrkr/pppppppp/8/8/8/8/PPPPPPPP/BBQNNRKR w HFhf - 0 1",
    "position fen 4k3/8/8/8/8/8/8/4K2R w K - 99 80",
    "go nodes 20",
    "go movetime 3",
    "go wtime 20 btime 20 winc 1 binc 1",
    "go depth 2",
    "go infinite",
    "go ponder wtime 10 btime 10",
    "go mate 1",
    "go nodes 10 searchmoves e2e4 e1e2",
    "setoption name Temperature value 2",
    "setoption name TempCutoffMove value 3",
    "setoption name TempDecayMoves value 9",
)
SIGNS = "0123456789abcdefgh /-._\t\x00\xffKQRkqrwé\u2028"


def mutated(line: str, rng: random.Random) -> str:
    words = line.split(" ")
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        kind = rng.randrange(6)
        at = rng.randrange(len(words))
        if kind == 0:
            words[at] = "".join(rng.choices(SIGNS, k=rng.randrange(8)))
        elif kind == 1 and len(words) > 1:
            del words[at]
        elif kind == 2:
            words.insert(at, rng.choice(rng.choice(LINES).split(" ")))
        elif kind == 3:
            words[at] = str(rng.choice((-1, 0, 2**31, 2**63, 10**30)))
        elif kind == 4:
            words = words * 2
        else:
            word = words[at]
            cut = rng.randrange(len(word) + 1)
            words[at] = word[:cut] + rng.choice(SIGNS) + word[cut:]
    return " ".join(words).replace("\n", " ")


def play_session(num_lines: int, seed: int) -> None:
    rng = random.Random(seed)
    with DrivenEngine() as engine:
        sent = 0
        while sent < num_lines:
            lines = [mutated(rng.choice(LINES), rng) for _ in range(rng.randrange(1, 12))]
            lines = [line for line in lines if "quit" not in line]
            engine.send(*lines)
            sent += len(lines)
            # Whatever came: it answers, and after `stop` it has a move for a sound position.
            engine.send("stop", "isready")
            engine.until("readyok")
            engine.send("position startpos", "go nodes 3", "isready")
            engine.until("bestmove")
            engine.send("stop", "setoption name MemoryLimit value 8", "isready")
            engine.until("readyok")
        engine.send("quit")
        engine.join()
        assert engine.error is None and engine.status == 0
    for line in engine.lines:
        word = line.split(" ")[0]
        assert word in ("id", "option", "uciok", "readyok", "info", "bestmove"), line


def test_a_session_of_random_and_mutated_lines() -> None:
    play_session(500, seed=1)


@pytest.mark.slow
def test_a_long_session_of_random_and_mutated_lines() -> None:
    play_session(10_000, seed=2)
