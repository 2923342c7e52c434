"""Muon's steps: orthogonal, torch's own to bf16, and left out where a step is skipped."""

import pytest
import torch
from torch import nn

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.load import load_config
from alphazero.settings.sections import OptimizerConfig
from alphazero.training.engine.optimizer import (
    MOMENTUM,
    make_optimizer,
    make_orthogonal,
    orthogonal,
    state_keys,
)

SHAPES = [(24, 24), (48, 16), (16, 48)]


class Body(nn.Module):
    """A matrix of a body under the name that a network gives it, and a head."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(shape[1], shape[0], bias=False))
        self.head = nn.Linear(shape[0], 3)


def body(shape: tuple[int, int]) -> Body:
    """The same weights for the same shape."""
    torch.manual_seed(0)
    return Body(shape)


def with_values(rows: int, columns: int, values: torch.Tensor) -> torch.Tensor:
    """A matrix with these singular values, by its rank."""
    left, _, right = torch.linalg.svd(torch.randn(rows, columns), full_matrices=False)
    return left @ torch.diag(values) @ right


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_singular_values_become_about_one_times_the_scale_of_the_shape(rows, columns):
    """Of those of a hundredth of the largest and more; vectors stay as they are."""
    torch.manual_seed(0)
    matrix = with_values(rows, columns, torch.logspace(0, -2, min(rows, columns)))
    found = orthogonal(matrix[None])[0] / max(1.0, rows / columns) ** 0.5
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    core = left.T @ found @ right.T
    assert core.diagonal().min() > 0.3 and core.diagonal().max() < 1.25
    assert (core - torch.diag(core.diagonal())).abs().max() < 1e-4


def test_a_convolution_is_a_matrix_with_a_row_per_channel():
    torch.manual_seed(0)
    weight = torch.randn(8, 4, 3, 3)
    found, expected = weight.to(memory_format=torch.channels_last), weight.reshape(8, 36).clone()
    make_orthogonal([found, expected])
    torch.testing.assert_close(found.reshape(8, 36), expected)


def give_gradients(model: Body) -> None:
    """The same for the same shape; that of the matrix has no small singular values, which bf16 would blur."""
    torch.manual_seed(1)
    matrix, head = model.blocks[0].weight, model.head
    matrix.grad = with_values(*matrix.shape, torch.logspace(0, -1, min(matrix.shape)))
    head.weight.grad, head.bias.grad = torch.randn_like(head.weight), torch.randn_like(head.bias)


def make_own(model: Body, **settings: float) -> torch.optim.Optimizer:
    """Muon with the empty state that ZeroState makes before the first step."""
    config = OptimizerConfig(optimizer="muon", learning_rate=0.01, weight_decay=0.1, **settings)
    optimizer = make_optimizer(model, config)
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * group.get("rate_share", 1.0)
        for parameter in group["params"] if group["is_muon"] else ():
            optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
    return optimizer


@pytest.mark.parametrize("shape", SHAPES)
def test_a_matrix_moves_as_by_torchs_muon_and_the_rest_as_by_adamw(shape):
    """torch iterates in bf16, and is off by some percent of a step."""
    ours, theirs = body(shape), body(shape)
    before = theirs.blocks[0].weight.detach().clone()
    rest = [{"params": [theirs.head.weight]}, {"params": [theirs.head.bias], "weight_decay": 0.0}]
    muon = torch.optim.Muon(theirs.blocks.parameters(), lr=0.02, momentum=0.9, weight_decay=0.1)
    own = make_own(ours, muon_learning_rate=0.02, muon_momentum=0.9)
    for optimizer, model in (
        (own, ours),
        (muon, theirs),
        (torch.optim.AdamW(rest, lr=0.01, weight_decay=0.1), theirs),
    ):
        give_gradients(model)
        optimizer.step()
    found, expected = ours.blocks[0].weight, theirs.blocks[0].weight
    assert (found - expected).norm() < 0.03 * (expected - before).norm()
    assert torch.equal(ours.head.weight, theirs.head.weight) and torch.equal(ours.head.bias, theirs.head.bias)


@pytest.mark.parametrize("skip", ["skips", "found_inf"])
def test_a_skipped_step_changes_neither_weights_nor_momentum(skip):
    model = body((24, 24))
    optimizer = make_own(model)
    give_gradients(model)
    optimizer.step()
    matrix = model.blocks[0].weight
    before, momentum = matrix.detach().clone(), optimizer.state[matrix]["momentum_buffer"].clone()
    matrix.grad = torch.full_like(matrix, float("nan"))
    # torch's AdamW knows found_inf on GPUs alone.
    optimizer.param_groups = [group for group in optimizer.param_groups if group["is_muon"]]
    setattr(optimizer, skip, True if skip == "skips" else torch.ones(()))
    optimizer.step()
    assert torch.equal(matrix, before)
    assert torch.equal(optimizer.state[matrix]["momentum_buffer"], momentum)


@pytest.mark.parametrize("flags", [{}, {"body": "attention", "heads": 4, "smolgen_channels": 2}])
def test_embedding_heads_gates_and_norms_are_not_muons(flags):
    config = load_config("", {"game": "connect4", "blocks": 2, "filters": 16, **flags}).network
    network = AlphaZeroNet(config, get_spec("connect4"))
    keys = state_keys(network, "muon")
    moved = {name for name, kept in keys.items() if kept == MOMENTUM}
    prefix = ("body.encoders.", "body.scores.") if flags else ("blocks.",)
    assert moved == {
        name
        for name, parameter in network.named_parameters()
        if name.startswith(prefix) and parameter.ndim > 1
    }
    assert len(moved) > 3 and len(moved) < len(keys)
