"""Expansion of packed positions against a slow and plain one, and CSR rows to dense."""

import chess
import numpy as np
import pytest
import torch

from alphazero.games.batch import Batch
from alphazero.games.registry import GameSpec, get_spec, make_line
from alphazero.network.model.planes import (
    csr_rows,
    dense_target,
    expand_planes,
    legal_mask,
    plane_constants,
    to_device,
)

GAMES = ("chess", "connect4", "tictactoe")
CPU = torch.device("cpu")


def slow_planes(packed: np.ndarray, spec: GameSpec) -> np.ndarray:
    """Bit by bit, as csrc/games/game.hpp describes `encode`."""
    planes = np.zeros((len(packed), spec.num_planes, spec.board_height, spec.board_width), np.float32)
    for position, row in enumerate(packed):
        for plane in range(spec.num_bit_planes):
            word = int.from_bytes(row[8 * plane : 8 * plane + 8].tobytes(), "little")
            for rank in range(spec.board_height):
                for file in range(spec.board_width):
                    planes[position, plane, rank, file] = word >> (rank * spec.board_width + file) & 1
        for scalar in range(spec.num_scalar_planes):
            value = row[8 * spec.num_bit_planes + scalar] * spec.scalar_scale[scalar]
            planes[position, spec.num_bit_planes + scalar] = value
    return planes


@pytest.mark.parametrize("game", GAMES)
def test_random_bytes_expand_as_they_do_bit_by_bit(game: str):
    spec = get_spec(game)
    packed = np.random.default_rng(5).integers(0, 256, (6, spec.packed_bytes), dtype=np.uint8)
    planes = expand_planes(torch.from_numpy(packed), spec)
    assert planes.dtype == torch.float32
    assert planes.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(planes.numpy(), slow_planes(packed, spec), rtol=1e-6)


def test_the_constants_of_a_game_are_copied_to_a_device_once(monkeypatch):
    """A copy waits for the device; also where inference asks first, training gets plain tensors."""
    plane_constants.cache_clear()
    made = []
    make = torch.tensor
    monkeypatch.setattr(torch, "tensor", lambda *args, **options: made.append(args) or make(*args, **options))
    spec = get_spec("chess")
    packed = torch.zeros((2, spec.packed_bytes), dtype=torch.uint8)
    with torch.inference_mode():
        expand_planes(packed, spec)
    assert not expand_planes(packed, spec).is_inference()
    assert len(made) == 2  # the bits of a byte, the scales
    assert not any(constant.is_inference() for constant in plane_constants(spec.scalar_scale, CPU))


def test_an_empty_batch_expands_to_an_empty_batch():
    spec = get_spec("chess")
    assert expand_planes(torch.zeros((0, spec.packed_bytes), dtype=torch.uint8), spec).shape == (0, 112, 8, 8)


def test_the_planes_of_a_position_are_those_that_python_chess_sees():
    fen = "r3k2r/pp1b1ppp/2n1pn2/q1pp4/3P1B2/2PBPN2/PP1N1PPP/R2QK2R b KQkq - 7 9"
    board = chess.Board(fen)
    planes = expand_planes(torch.from_numpy(make_line("chess", fen).packed()[None]), get_spec("chess"))[0]
    for index, color in enumerate((chess.BLACK, chess.WHITE)):
        for piece in range(6):
            squares = board.pieces(piece + 1, color)
            wanted = {(7 - chess.square_rank(square), chess.square_file(square)) for square in squares}
            assert set(map(tuple, planes[6 * index + piece].nonzero().tolist())) == wanted
    assert planes[108].min() == 1  # black to move
    assert planes[109, 3, 3] == pytest.approx(7 / 99)
    assert planes[111].min() == 1


def example_batch() -> Batch:
    """Three positions with two, none and three legal moves."""
    return Batch(
        packed=np.zeros((3, 4), np.uint8),
        legal_offset=np.array([0, 2, 2, 5], np.int32),
        legal_index=np.array([1, 4, 0, 2, 5], np.int32),
        policy=np.array([0.25, 0.75, 0.5, 0.5, 0.0], np.float32),
        wdl=np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32),
        moves_left=np.array([3, 2, 1], np.float32),
        sample_id=np.arange(3),
    )


def test_offsets_become_the_row_of_each_move():
    rows = csr_rows(torch.tensor([0, 2, 2, 5], dtype=torch.int32), 5)
    assert rows.tolist() == [0, 0, 2, 2, 2]


def test_a_batch_becomes_a_dense_target_and_a_mask():
    batch = to_device(example_batch(), CPU)
    assert dense_target(batch, 6).tolist() == [
        [0, 0.25, 0, 0, 0.75, 0],
        [0, 0, 0, 0, 0, 0],
        [0.5, 0, 0.5, 0, 0, 0],
    ]
    assert legal_mask(batch, 6).int().tolist() == [[0, 1, 0, 0, 1, 0], [0] * 6, [1, 0, 1, 0, 0, 1]]
