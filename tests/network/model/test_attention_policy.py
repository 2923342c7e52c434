"""The attention policy head against hand-worked moves, and where its numbers lie."""

from __future__ import annotations

import pytest
import torch

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_spec
from alphazero.network.model.heads import AttentionPolicyHead
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

CHESS = get_spec("chess")


def _head(filters: int) -> AttentionPolicyHead:
    config = NetworkConfig(game="chess", blocks=1, filters=filters, policy_head="attention")
    return AttentionPolicyHead(config, CHESS).double()


def test_a_plain_move_is_the_product_of_its_two_squares() -> None:
    head = _head(4)
    torch.manual_seed(3)
    tower_BCHW = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    logits_BA = head(tower_BCHW)
    moves = [move for move in _policy_moves() if len(move) == 4]
    for move in moves[::97]:
        index = _policy_moves().index(move)
        for position in range(2):
            at_from, at_to = (tower_BCHW[position, :, rank, file] for file, rank in _squares(move))
            embedded = [torch.nn.functional.selu(head.embed(square)) for square in (at_from, at_to)]
            wanted = head.query(embedded[0]) @ head.key(embedded[1]) / 2  # the root of 4 channels
            torch.testing.assert_close(logits_BA[position, index], wanted)


@pytest.mark.parametrize(("piece", "row"), [("q", 0), ("r", 1), ("b", 2)])
def test_a_promotion_adds_what_its_square_says_of_the_piece(piece: str, row: int) -> None:
    head = _head(4)
    torch.manual_seed(4)
    tower_BCHW = torch.randn(1, 4, 8, 8, dtype=torch.float64)
    logits_A = head(tower_BCHW)[0]
    moves = _policy_moves()
    for move in ("a7a8", "b7a8", "g7h8", "e7e8"):
        to_file, to_rank = _squares(move)[1]
        key = head.key(torch.nn.functional.selu(head.embed(tower_BCHW[0, :, to_rank, to_file])))
        offset = (head.promotion.weight[row] + head.promotion.weight[3]) @ key
        plain = logits_A[moves.index(move)]
        torch.testing.assert_close(logits_A[moves.index(move + piece)], plain + offset)


def test_every_policy_index_has_a_place_of_its_own() -> None:
    assert len(CHESS.attention_map) == len(set(CHESS.attention_map)) == CHESS.policy_size
    assert max(CHESS.attention_map) == 64 * 64 + 8 * 8 * 3 - 1
    # kAttnPolicyMap of lc0 begins a1a1 (none), a1b1 ... a1h1, a1a2, a1b2, a1c2 and ends with h7h8b.
    assert CHESS.attention_map[:10] == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert CHESS.attention_map[-1] == 64 * 64 + 7 * 24 + 7 * 3 + 2


@pytest.mark.parametrize("game", ["connect4", "tictactoe", "othello"])
def test_games_without_moves_from_square_to_square_are_refused(game: str) -> None:
    config = NetworkConfig(game=game, blocks=1, filters=4, policy_head="attention")
    with pytest.raises(ConfigError, match=f"policy_head attention: .*{game} "):
        AlphaZeroNet(config, get_spec(game))


def _policy_moves() -> list[str]:
    import alphazero._core as _core

    return list(_core.chess_policy_moves())


def _squares(move: str) -> list[tuple[int, int]]:
    return [(ord(move[at]) - ord("a"), int(move[at + 1]) - 1) for at in (0, 2)]
