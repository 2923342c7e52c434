"""The module that DeepSpeed wraps: its own timers and profiler find a plain loss."""

import pytest
import torch

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_spec
from alphazero.network.model.planes import to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.sections import LossConfig, NetworkConfig, TrainingConfig
from alphazero.training.engine.probe import random_batch
from alphazero.training.engine.training_module import TrainingModule
from tests.support.network.attention_bodies import SMALL_ATTENTION
from tests.support.training.lone_engine import POSITIONS, SHARED_OUT, SPEC


def weights_after(lone_engine, settings, stage, num_steps=3):
    engine = lone_engine.make(settings, zero_stage=stage)
    for step in range(num_steps):
        lone_engine.step(engine, step)
        assert not engine.take_verdict().is_bad
    weights = {name: tensor.clone() for name, tensor in engine.named_tensors()}
    engine.close()
    return weights


@pytest.mark.parametrize("stage", [0, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (1, 2)), 3])
def test_deepspeed_s_timers_and_profiler_work_and_change_nothing(lone_engine, tmp_path, stage, capfd):
    plain = weights_after(lone_engine, SHARED_OUT, stage)
    profile = tmp_path / "profile.txt"
    wanted = DeepSpeedSettings(
        zero_options=SHARED_OUT.zero_options,
        passed_on={
            "wall_clock_breakdown": True,
            "flops_profiler": {"enabled": True, "profile_step": 1, "output_file": str(profile)},
        },
    )
    watched = weights_after(lone_engine, wanted, stage)
    said = capfd.readouterr().out
    assert all(f"{part}_microstep: " in said for part in ("fwd", "bwd", "step")), said
    assert "AlphaZeroNet" in profile.read_text()
    assert plain.keys() == watched.keys()
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_the_terms_of_the_last_pass_lie_beside_the_loss_and_hold_no_graph(lone_engine):
    engine = lone_engine.make()
    module = engine._module
    loss = module(to_device(random_batch(SPEC, POSITIONS), torch.device("cpu")))
    assert loss.ndim == 0 and loss.requires_grad
    assert module.last_terms.total == loss
    assert not any(tensor.requires_grad for tensor in vars(module.last_terms).values())
    engine.close()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_activations_lie_channels_last_at_every_stage(lone_engine, stage):
    """Above stage 0 DeepSpeed flattens the weights; the input alone decides then."""
    engine = lone_engine.make(SHARED_OUT, zero_stage=stage)
    layouts = {}

    def note(name):
        def hook(module, inputs, output):
            layouts[name] = [
                tensor.is_contiguous(memory_format=torch.channels_last)
                for tensor in (*inputs, output)
                if tensor.ndim == 4 and tensor.shape[1] > 1
            ]

        return hook

    for name, module in engine.network.named_modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.BatchNorm2d):
            module.register_forward_hook(note(name))
    lone_engine.step(engine)
    assert len(layouts) > 10 and all(all(known) for known in layouts.values()), layouts
    engine.close()


def test_deepspeed_waits_for_no_device_in_a_step(lone_engine, monkeypatch):
    """Its throughput timer did at each forward pass and step, from the third step on."""
    from deepspeed.accelerator import get_accelerator

    waits = []
    monkeypatch.setattr(type(get_accelerator()), "synchronize", lambda *_: waits.append(1))
    engine = lone_engine.make()
    for number in range(5):
        lone_engine.step(engine, number, num_micro_batches=2)
    assert not waits
    engine.close()


def test_tensors_come_in_the_order_of_the_network_on_which_its_checksum_depends(lone_engine):
    engine = lone_engine.make()
    names = [name for name, _ in engine.named_tensors()]
    fresh = AlphaZeroNet(engine.network.config, engine.network.spec)
    state = fresh.state_dict()
    buffers = [name for name, _ in fresh.named_buffers() if name in state]
    assert names == [*(name for name, _ in fresh.named_parameters()), *buffers]
    assert sum(name.endswith("num_batches_tracked") for name in names) > 2
    engine.close()


@pytest.mark.parametrize("config", [SMALL_ATTENTION, NetworkConfig(blocks=1, filters=4)])
def test_without_a_compiler_compile_is_refused_in_one_line(monkeypatch, config):
    monkeypatch.setenv("CXX", "no-such-compiler")
    network = AlphaZeroNet(config, get_spec("chess"))
    with pytest.raises(ConfigError, match=r"^compile: .*'no-such-compiler'"):
        TrainingModule(network, LossConfig(), TrainingConfig(compile=True))
