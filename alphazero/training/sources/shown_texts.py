"""What viewers of curves show of play itself: a game of each generation, and the network's opening moves."""

from __future__ import annotations

import pyarrow as pa
import torch

from alphazero.games.core_types import Line
from alphazero.games.drawing import Style, draw
from alphazero.games.notation import RESULTS, move_text, move_texts
from alphazero.games.registry import get_game
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.precision import autocast
from alphazero.network.model.resnet import AlphaZeroNet

MOST_MOVES = 8  # of the opening position that are shown


@torch.inference_mode()
def opening_text(network: AlphaZeroNet, game: str, device: torch.device, precision: str) -> str:
    """The first position, what the network expects of it, and the moves that it likes best: Markdown.

    By the module as it is, on every rank: at ZeRO 3 its weights are gathered in each pass.
    """
    line = get_game(game).core.line()
    packed_BN = torch.as_tensor(line.packed()[None]).to(device)
    with autocast(device, precision):
        output = network(expand_planes(packed_BN, network.spec))
    win, draw_share, loss = output.wdl_B3.float().softmax(1)[0].tolist()
    legal = line.legal_indices()
    shares = output.policy_BA.float()[0].cpu()[torch.as_tensor(legal).long()].softmax(0)
    rows = [
        f"| {move_text(line, line.index_to_move(int(legal[at])))} | {float(shares[at]):.1%} |"
        for at in shares.argsort(descending=True)[:MOST_MOVES].tolist()
    ]
    expects = f"To move: win {win:.1%}, draw {draw_share:.1%}, loss {loss:.1%}"
    return "\n".join([_board(line), "", expects, "", "| move | policy |", "|---|---|", *rows])


def game_text(game: str, finished: pa.RecordBatch) -> str:
    """The first of the games that ended: its last position, its moves and its result. Markdown."""
    (row,) = finished.slice(0, 1).to_pylist()
    line = get_game(game).core.line()
    texts = move_texts(line, row["moves"])
    for move in row["moves"]:
        line.push(move)
    numbered = [f"{1 + at // 2}. {' '.join(texts[at : at + 2])}" for at in range(0, len(texts), 2)]
    end = str(row["termination"] if row["end"] == "RULES" else row["end"]).lower().replace("_", " ")
    return "\n".join([_board(line), "", f"{' '.join(numbered)} {RESULTS[row['result']]} ({end})"])


def _board(line: Line) -> str:
    """A board as a block of code."""
    drawn = draw(line, Style(unicode=False))
    return "\n".join(f"    {row}" for row in drawn.splitlines())
