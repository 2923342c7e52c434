"""The optimizers of the settings make the steps of torch's own, and none where a step is skipped."""

import subprocess
import sys

import pytest
import torch

from alphazero.settings.sections import OptimizerConfig
from alphazero.training.engine.optimizer import make_optimizer


def network():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def trained(optimizer, model, num_steps=5):
    torch.manual_seed(1)
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("settings", "kind", "options"),
    [
        (
            {"optimizer": "adam", "weight_decay": 0.1, "adam_beta1": 0.8, "adam_eps": 1e-3},
            torch.optim.Adam,
            {"weight_decay": 0.1, "betas": (0.8, 0.999), "eps": 1e-3},
        ),
        ({"optimizer": "adamw", "weight_decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1}),
        (
            {"optimizer": "sgd", "momentum": 0.5, "nesterov": False, "weight_decay": 0.1},
            torch.optim.SGD,
            {"momentum": 0.5, "weight_decay": 0.1},
        ),
        ({"optimizer": "sgd", "momentum": 0.0}, torch.optim.SGD, {"weight_decay": 1e-4}),
        (
            {"optimizer": "sgd"},
            torch.optim.SGD,
            {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
        ),
    ],
)
def test_it_is_torchs_with_no_decay_on_vectors(settings, kind, options):
    ours, theirs = network(), network()
    groups = [{"params": [theirs.weight]}, {"params": [theirs.bias], "weight_decay": 0.0}]
    found = trained(make_optimizer(ours, OptimizerConfig(learning_rate=0.01, **settings)), ours)
    for mine, expected in zip(found, trained(kind(groups, lr=0.01, **options), theirs), strict=True):
        assert torch.equal(mine, expected)


STEP = """
import sys
import torch
from alphazero.settings.sections import OptimizerConfig
from alphazero.training.engine.optimizer import make_optimizer
model = torch.nn.Linear(3, 2)
for name in ("adam", "adamw", "sgd", "muon"):
    optimizer = make_optimizer(model, OptimizerConfig(optimizer=name))
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""


MUON = """
import sys
from alphazero.training.engine.engine import _import_muon_uncompiled
_import_muon_uncompiled()
sys.exit("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("code", [STEP, MUON])
def test_neither_a_step_nor_zero_imports_torch_s_compiler(code):
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("by_group", [False, True])
def test_without_bias_correction_a_step_is_the_moments_alone(name, by_group):
    """As DeepSpeed's FusedAdam with bias_correction false (csrc/adam/multi_tensor_adam.cu).

    by_group: as above ZeRO 0, where DeepSpeed steps one group after the other.
    """
    settings = {"weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_eps": 1e-3}
    model = network()
    optimizer = make_optimizer(
        model, OptimizerConfig(optimizer=name, learning_rate=0.01, adam_bias_correction=False, **settings)
    )
    for parameter in model.parameters():  # as ZeroState makes it before the first step
        zeros = {key: torch.zeros_like(parameter.detach()) for key in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {**zeros, "step": torch.tensor(0.0)}
    weight = model.weight.detach().clone()
    moment, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        gradient = model.weight.grad + (0.1 * weight if name == "adam" else 0)
        moment = 0.8 * moment + 0.2 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        decay = 0.1 * weight if name == "adamw" else 0
        groups = optimizer.param_groups
        for optimizer.param_groups in [[group] for group in groups] if by_group else [groups]:
            optimizer.step()
        optimizer.param_groups = groups
        weight = weight - 0.01 * (moment / (square.sqrt() + 1e-3) + decay)
        torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-5, atol=1e-7)
    assert {float(entry["step"]) for entry in optimizer.state.values()} == {4.0}


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_a_skipped_step_leaves_no_trace(name):
    model = network()
    optimizer = make_optimizer(model, OptimizerConfig(optimizer=name))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.skips = True
    assert all(map(torch.equal, before, trained(optimizer, model)))
