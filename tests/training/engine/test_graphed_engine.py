"""An engine whose passes are recorded trains as one whose are not: weights, moments and statistics."""

import pytest
import torch

from tests.support.training.calling_again import CallingAgain

# One pass per step, and three whose gradients add up.
PASSES = (1, 3, 3, 1)


def trained(lone_engine, recorder: CallingAgain | None, said: list[str], **flags: object):
    """Everything that a checkpoint would hold after some steps."""
    engine = lone_engine.make(**flags)
    if recorder is not None:
        engine._module.use_graphs(recorder, said.append)
    for step, count in enumerate(PASSES):
        lone_engine.step(engine, step, count)
    tensors = {**dict(engine.named_tensors()), **engine.optimizer_state()}
    found = {name: tensor.clone() for name, tensor in tensors.items()}
    engine.close()
    return found


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"zero_stage": 1, "ema_decay": "0.9"},
        {"precision": "fp16", "loss_scale": 1024.0},
        {"clip_gradients": 0.1, "ema_decay": "0.9"},
    ],
)
def test_recorded_passes_train_to_the_same_bits(lone_engine, flags):
    said: list[str] = []
    recorder = CallingAgain()
    plain = trained(lone_engine, None, said, **flags)
    recorded = trained(lone_engine, recorder, said, **flags)
    assert plain.keys() == recorded.keys()
    assert all(torch.equal(plain[name], recorded[name]) for name in plain)
    assert said == []
    assert recorder.replays == 2 * sum(PASSES)
