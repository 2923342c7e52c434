"""lc0 itself loads the networks we export and evaluates as we do."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import alphazero as az
from alphazero.network.weights.lc0_export import write_lc0
from alphazero.network.weights.lc0_weights import read_lc0
from alphazero.settings.sections import NetworkConfig
from tests.network.weights.test_lc0_export import SMALL, random_network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("LC0" not in os.environ, reason="LC0 names no program of lc0 with the Eigen backend"),
]
# The network's own policy and value of the root, by one node.
OPTIONS = {
    "Backend": "eigen",
    "Threads": "1",
    "VerboseMoveStats": "true",
    "PolicyTemperature": "1",
    "MinibatchSize": "1",
    "MaxPrefetch": "0",
    "HistoryFill": "fen_only",
}
POSITIONS: Sequence[tuple[str | None, str]] = (
    (None, ""),
    (None, "e2e4 c7c5 g1f3 d7d6 d2d4 c5d4 f3d4 g8f6 b1c3 a7a6"),
    (None, "g1f3 g8f6 f3g1 f6g8 g1f3 g8f6"),  # repetitions
    ("r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8", ""),
    ("8/2P3k1/8/8/8/5pp1/5p2/4N2K w - - 12 60", ""),  # promotions
    ("8/2P3k1/8/8/8/5pp1/5p2/4N2K b - - 12 60", ""),  # and by a capture, from one file to another
    ("rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3", ""),
)


@contextmanager
def lc0(weights: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [os.environ["LC0"], f"--weights={weights}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    for name, value in OPTIONS.items():
        process.stdin.write(f"setoption name {name} value {value}\n")
    yield process
    process.stdin.write("quit\n")
    process.stdin.close()
    assert process.wait(20) == 0


def asked(
    process: subprocess.Popen[str], fen: str | None, moves: str
) -> tuple[dict[str, float], float, float]:
    """lc0's P of each move in UCI, its value and its chance of a draw."""
    assert process.stdin is not None and process.stdout is not None
    start = f"fen {fen}" if fen else "startpos"
    process.stdin.write(f"ucinewgame\nposition {start}{' moves ' + moves if moves else ''}\ngo nodes 1\n")
    process.stdin.flush()
    policy: dict[str, float] = {}
    value = draw = float("nan")
    for line in process.stdout:
        if found := re.search(r"info string (\w+) .*\(P: *([\d.]+)%\)", line):
            policy[found[1]] = float(found[2]) / 100
        if found := re.search(r"info string node .*\(D: *([\d.]+)\).*\(V: *(-?[\d.]+)\)", line):
            draw, value = float(found[1]), float(found[2])
        if line.startswith("bestmove"):
            break
    del policy["node"]
    return policy, value, draw


def networks(shared_data: Path) -> Iterator[tuple[str, NetworkConfig, dict[str, torch.Tensor]]]:
    for policy_head, se_ratio in itertools.product(("convolution", "attention"), (4, 0)):
        config = dataclasses.replace(SMALL, se_ratio=se_ratio, policy_head=policy_head)
        yield f"ours with {policy_head} and se_ratio {se_ratio}", config, random_network(config).state_dict()
    maia = read_lc0(shared_data / "lc0" / "maia-1500.pb.gz")
    yield "maia-1500", maia.config, maia.state_dict


def test_lc0_evaluates_what_we_export_as_we_do(shared_data: Path, tmp_path: Path) -> None:
    for title, config, tensors in networks(shared_data):
        file = tmp_path / f"{title.replace(' ', '-')}.pb.gz"
        write_lc0(file, config, tensors, 1000)
        net = az.load(file, device="cpu")
        with lc0(file) as process:
            for fen, moves in POSITIONS:
                policy, value, draw = asked(process, fen, moves)
                ours = net.evaluate(fen, moves=moves.split())
                assert len(policy) == len(ours.policy), (title, fen)
                # lc0 prints a policy to 0.01 % and computes it by an exponential good to some 0.3 %.
                got = np.array(sorted(policy.values()))
                expected = np.array(sorted(ours.policy.values()))
                np.testing.assert_allclose(got, expected, rtol=5e-3, atol=1e-4, err_msg=f"{title} {fen}")
                for move in policy.keys() & ours.policy.keys():  # lc0 writes castling as king takes rook
                    assert policy[move] == pytest.approx(ours.policy[move], rel=5e-3, abs=2e-4), (title, move)
                assert value == pytest.approx(ours.value, abs=2e-4), (title, fen)
                # D has been through its rescaling, by fast logarithms, whose factor is 1 by default.
                assert draw == pytest.approx(ours.wdl[1], abs=4e-3), (title, fen)
