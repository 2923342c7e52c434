"""Muon's orthogonal matrices, from whole ones or from the pieces that ZeRO leaves on each rank.

Jordan et al. 2024 (kellerjordan.github.io/posts/muon): the step of a matrix is its momentum, made nearly
orthogonal by a Newton-Schulz iteration, times sqrt(max(1, rows / columns)). A convolution is the matrix
[channels out, the rest].

Shapes: N matrices of R rows and C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from alphazero.training.engine.gradients import Timed

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
EPS = 1e-7
BUCKET = 1 << 24  # numbers of the matrices that are made orthogonal at a time: 64 MiB in fp32


@dataclass(frozen=True)
class Piece:
    """The part of a matrix in a rank's flat tensor.

    shape: of the whole matrix. Its numbers [start, start + size) are in the flat tensor from `at` on; size: 0
    where the rank has none.
    """

    shape: tuple[int, int]
    start: int
    size: int
    at: int


def make_orthogonal_together(
    update: torch.Tensor, pieces: Sequence[Piece], device: torch.device, timed: Timed
) -> None:
    """Replace this rank's pieces in a flat `update` by those of the orthogonal matrices; collective.

    pieces: all matrices of the group, in an order that the ranks share. device: where they exchange.
    """
    for bucket in _buckets(pieces):
        sizes = [rows * columns for rows, columns in (piece.shape for piece in bucket)]
        numbers = torch.zeros(sum(sizes), device=device)
        matrices = torch.split(numbers, sizes)
        for piece, matrix in zip(bucket, matrices, strict=True):
            matrix[piece.start : piece.start + piece.size] = update[piece.at : piece.at + piece.size]
        with timed():
            dist.all_reduce(numbers)  # the other ranks have zeros there: exact
        own = [(piece, matrix) for piece, matrix in zip(bucket, matrices, strict=True) if piece.size]
        make_orthogonal([matrix.view(piece.shape) for piece, matrix in own])
        for piece, matrix in own:
            update[piece.at : piece.at + piece.size] = matrix[piece.start : piece.start + piece.size]


def make_orthogonal(updates: Sequence[torch.Tensor]) -> None:
    """Replace each by its nearest semi-orthogonal matrix, nearly, times sqrt(max(1, rows / columns))."""
    alike: dict[tuple[int, ...], list[torch.Tensor]] = defaultdict(list)
    for update in updates:
        alike[tuple(update.shape)].append(update)
    for same in alike.values():
        at_a_time = max(1, BUCKET // same[0].numel())
        for first in range(0, len(same), at_a_time):
            part = same[first : first + at_a_time]
            stacked_NRC = torch.stack([update.reshape(len(update), -1) for update in part])
            for update, matrix_RC in zip(part, orthogonal(stacked_NRC), strict=True):
                update.copy_(matrix_RC.reshape(update.shape))


def orthogonal(matrices_NRC: torch.Tensor) -> torch.Tensor:
    """[N, R, C] -> for each U S V^T the matrix U S' V^T, S' about 0.7 to 1.2, scaled. GPUs use bf16."""
    rows, columns = matrices_NRC.shape[1:]
    first, second, third = COEFFICIENTS
    wide = matrices_NRC.mT if rows > columns else matrices_NRC
    current = wide / (torch.linalg.matrix_norm(wide, keepdim=True) + EPS)
    if current.is_cuda:
        current = current.bfloat16()
    for _ in range(NUM_ITERATIONS):
        gram = current @ current.mT
        current = first * current + (second * gram + third * (gram @ gram)) @ current
    found = current.mT if rows > columns else current
    return found.to(matrices_NRC.dtype) * max(1.0, rows / columns) ** 0.5


def _buckets(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """All pieces, in order, matrices of at most BUCKET numbers together; a larger one comes alone."""
    bucket: list[Piece] = []
    numbers = 0
    for piece in pieces:
        size = piece.shape[0] * piece.shape[1]
        if bucket and numbers + size > BUCKET:
            yield bucket
            bucket, numbers = [], 0
        bucket.append(piece)
        numbers += size
    if bucket:
        yield bucket


def pieces_of(zero: Any, stage: int) -> dict[torch.Tensor, list[Piece]]:  # noqa: ANN401 - DeepSpeed has no types
    """Where DeepSpeed's ZeRO optimizer (0.19.8) keeps the parameters of each group on this rank."""
    if stage == 0:
        return {}
    if stage < 3:
        return {
            flat: [_piece_of_partition(parameter) for parameter in parameters]
            for flat, parameters in zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True)
        }
    return {
        flat: list(_pieces_of_sub_group(parameters))
        for flat, parameters in zip(zero.fp32_partitioned_groups_flat, zero.fp16_groups, strict=True)
    }


def _piece_of_partition(parameter: Any) -> Piece:  # noqa: ANN401
    """At stages 1 and 2 a rank has a range of all numbers of a group, which may begin or end in a matrix."""
    shape = (len(parameter), parameter[0].numel())
    mapping = parameter._hp_mapping
    if mapping is None:
        return Piece(shape, 0, 0, 0)
    there, here = mapping.lp_fragment_address, mapping.hp_fragment_address
    return Piece(shape, there.start, there.numel, here.start)


def _pieces_of_sub_group(parameters: Sequence[Any]) -> Iterator[Piece]:
    """At stage 3 a rank has an equal part of every parameter, the last ones padded."""
    at = 0
    for parameter in parameters:
        part, total = parameter.partition_numel(), parameter.ds_numel
        start = min(dist.get_rank() * part, total)
        rows = parameter.ds_shape[0]
        yield Piece((rows, total // rows), start, min(part, total - start), at)
        at += part
