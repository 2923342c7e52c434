"""A network that grows: new blocks change nothing at first, and a run goes on exactly across the growth."""

import pytest
import torch
from safetensors.torch import load_file

from alphazero.config import load_config
from alphazero.errors import ConfigError
from alphazero.network.planes import to_device
from alphazero.training.batch.memory_probe import random_batch
from alphazero.training.growth import Growth
from tests.support.jobs.jobs import step_lines
from tests.support.training.lone_engine import POSITIONS, SPEC

CPU = torch.device("cpu")


def growth(*stages: str, **flags: object) -> Growth:
    return Growth.of(load_config("", {"blocks": 8, "grow": stages, **flags}))


def test_blocks_take_part_from_their_step_on():
    grown = growth("3@0", "5@20", "8@60")
    assert [grown.blocks_at(step) for step in (0, 19, 20, 59, 60, 10**9)] == [3, 3, 5, 5, 8, 8]
    assert growth().blocks_at(0) == 8


@pytest.mark.parametrize(
    ("stages", "flags", "message"),
    [
        (["5"], {}, "grow.*'5'.*expected BLOCKS@STEP, as 5@0"),
        (["5@-1"], {}, "expected BLOCKS@STEP"),
        (["0@0", "8@5"], {}, "expected BLOCKS@STEP"),
        (["5@10", "8@20"], {}, r"--grow 5@10 8@20: nothing is said of step 0; expected 5@0 first"),
        (["5@0", "8@20", "8@30"], {}, "expected more blocks from each step to the next"),
        (["5@0", "6@20", "8@20"], {}, "expected more blocks from each step to the next"),
        (["8@0", "5@20"], {}, "expected more blocks from each step to the next"),
        (["5@0", "7@20"], {}, "ends with 7 blocks; expected --blocks, which is 8"),
        (["5@0", "8@20"], {"init_weights": "a.pt"}, "--init-weights has blocks that are trained"),
    ],
)
def test_a_growth_that_cannot_be_is_refused_in_one_line(stages, flags, message):
    with pytest.raises(ConfigError, match=message) as caught:
        growth(*stages, **flags)
    assert "\n" not in str(caught.value)


def answers(engine) -> torch.Tensor:
    """What the network says in inference."""
    batch = to_device(random_batch(SPEC, POSITIONS), CPU)
    with engine.evaluating() as network, torch.no_grad():
        output = engine._module._pass(batch.packed_BN)
        assert not network.training
    return torch.cat([output.policy_BA, output.wdl_B3], dim=1).clone()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_new_blocks_change_nothing_at_first_and_learn_from_then_on(lone_engine, stage):
    engine = lone_engine.make(zero_stage=stage, blocks=4)
    engine.network.active_blocks = 2
    for step in range(3):
        lone_engine.step(engine, step)
    before = {name: tensor.clone() for name, tensor in engine.named_tensors()}
    for block in (2, 3):
        assert not before[f"blocks.{block}.second.norm.weight"].any()
        assert torch.equal(before[f"blocks.{block}.second.norm.running_var"], torch.ones(16))
    assert before["blocks.1.second.norm.weight"].any()
    said = answers(engine)
    engine.grow(4)
    assert torch.equal(answers(engine), said)
    moments = engine.optimizer_state()
    for name in ("first.conv.weight", "second.norm.weight"):
        last = moments[f"blocks.1.{name}/exp_avg_sq"]
        assert last.any()
        for block in (2, 3):
            assert torch.equal(moments[f"blocks.{block}.{name}/exp_avg_sq"], last)
            assert not moments[f"blocks.{block}.{name}/exp_avg"].any()
    engine._state.load_optimizer_state({**moments, "step": torch.tensor(5000.0)})
    lone_engine.step(engine, 3)
    after = dict(engine.named_tensors())
    for block in (2, 3):
        gamma = after[f"blocks.{block}.second.norm.weight"]
        # Late in a run, from moments of zero, every number would move by 0.1 / sqrt(0.001) times the rate.
        assert gamma.any() and gamma.abs().mean() < 2e-3
        assert not torch.equal(after[f"blocks.{block}.second.norm.running_var"], torch.ones(16))
    engine.close()


def test_a_step_of_the_blocks_that_take_part_is_one_of_a_network_without_the_others(lone_engine):
    tall, short = lone_engine.make(blocks=4), lone_engine.make(blocks=2)
    tall.network.active_blocks = 2
    tall.network.load_state_dict(dict(short.named_tensors()), strict=False)
    for step in range(3):
        torch.manual_seed(step)
        lone_engine.step(tall, step)
        torch.manual_seed(step)
        lone_engine.step(short, step)
    found = dict(tall.named_tensors())
    for name, tensor in short.named_tensors():
        assert torch.equal(found[name], tensor), name
    tall.close()
    short.close()


# What TINY has otherwise; the growth itself is kept at a resume.
SAME = ("--optimizer", "adamw", "--blocks", "4")
GROWING = (*SAME, "--steps", "12", "--checkpoint-interval", "3", "--grow", "1@0", "2@6", "4@8")


@pytest.mark.parametrize("resume_at", ["6", "9"])
def test_a_run_goes_on_exactly_from_just_before_it_grows_and_after(zygote, tmp_path, random_store, resume_at):
    zygote.run_job(
        tmp_path / "one", random_store, 2, *GROWING, "--ema-decay", "0.9", "--keep-checkpoints", "9"
    )
    whole = last_tensors(tmp_path / "one")
    lines = step_lines(tmp_path / "one")
    said = zygote.run_job(tmp_path / "one", random_store, 2, *SAME, "--steps", "12", "--resume", resume_at)
    assert f"resumed from step {resume_at}" in said
    assert last_tensors(tmp_path / "one") == whole
    assert step_lines(tmp_path / "one") == lines


def last_tensors(directory) -> dict[tuple[str, str], bytes]:
    path = directory / "runs" / "job" / "checkpoints" / "step-00000012"
    return {
        (file.name, name): tensor.numpy().tobytes()
        for file in path.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def test_a_run_does_not_go_on_with_another_growth(zygote, tmp_path, random_store):
    zygote.run_job(tmp_path, random_store, 1, *GROWING)
    other = ("--steps", "20", "--grow", "1@0", "4@8")
    said = zygote.run_job(tmp_path, random_store, 1, *SAME, *other, status=2)
    assert "--grow was '1@0 2@6 4@8' at step 12, is '1@0 4@8'" in said
