"""A closed engine holds no memory: recordings, gradients, optimizer state and weights are gone."""

import weakref

import pytest
import torch

from alphazero.settings.deepspeed_file import DeepSpeedSettings
from tests.support.training.calling_again import CallingAgain
from tests.support.training.lone_engine import LoneEngine


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_nothing_of_a_closed_engine_stays_though_its_network_is_still_held(lone_engine: LoneEngine, stage):
    settings = DeepSpeedSettings(
        zero_options={"reduce_bucket_size": 10_000, "allgather_bucket_size": 100_000}
    )
    engine = lone_engine.make(settings, zero_stage=stage, ema_decay=0.9, optimizer="adamw")
    if stage < 2:
        engine._module.use_graphs(CallingAgain(), lambda text: None)
    network = engine.network
    lone_engine.step(engine)
    held = watched(engine)
    assert (engine._flat is None) == (stage > 1)
    assert len(held) > 3
    engine.close()
    assert [name for name, reference in held.items() if not is_gone(reference())] == []
    assert sum(parameter.numel() for parameter in network.parameters()) == 0


def is_gone(thing: object) -> bool:
    return thing is None or (torch.is_tensor(thing) and thing.untyped_storage().nbytes() == 0)


def watched(engine) -> dict[str, weakref.ref]:
    """Tensors that an engine holds after a step, by what they are."""
    found = {f"state {number}": state for number, state in enumerate(states_of(engine))}
    found |= {f"average {name}": tensor for name, tensor in engine._average._average.items()}
    if engine._flat:
        found["gradients"] = engine._flat.gradients
    if engine._module._graphed:
        found["recording"] = engine._module._graphed._recording
    return {name: weakref.ref(tensor) for name, tensor in found.items()}


def states_of(engine) -> list[torch.Tensor]:
    entries = engine._torch_optimizer.state.values()
    return [tensor for entry in entries for tensor in entry.values() if torch.is_tensor(tensor)]
