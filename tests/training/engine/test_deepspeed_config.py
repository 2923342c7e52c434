"""What ds_config.json may say, and who wins."""

import json

import pytest
import torch

from alphazero.config import load_config
from alphazero.errors import ConfigError
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint import checkpoint
from alphazero.training.engine.deepspeed_config import (
    DeepSpeedSettings,
    engine_config,
    merge,
    read_deepspeed_settings,
)
from alphazero.training.engine.deepspeed_keys import PASSED_ON, ZERO_KEYS
from tests.support.jobs.jobs import run_job
from tests.support.paths import REPOSITORY


@pytest.fixture
def write(tmp_path):
    def write_table(table):
        path = tmp_path / "ds.json"
        path.write_text(table if isinstance(table, str) else json.dumps(table))
        return path

    return write_table


def test_the_shipped_file_is_accepted_and_silent_about_what_flags_own():
    settings = read_deepspeed_settings(REPOSITORY / "ds_config.json")
    assert (settings.zero_stage, settings.precision, settings.clip_gradients) == (None, None, None)


def test_it_beats_the_defaults(write):
    settings = read_deepspeed_settings(
        write({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "gradient_clipping": 1.5})
    )
    config = merge(load_config("", {}), settings)
    assert (config.training.zero_stage, config.training.precision) == (2, "bf16")
    assert config.optimizer.clip_gradients == 1.5


def test_a_flag_beats_it(write):
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 2}}))
    assert merge(load_config("", {"zero_stage": "1"}), settings).training.zero_stage == 1


def test_a_toml_file_that_contradicts_it_is_an_error(write, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text("[training]\nzero_stage = 1\n")
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 2}}))
    with pytest.raises(
        ConfigError, match=r"ds\.json: zero_stage = 2 contradicts zero_stage = 1 of mine\.toml"
    ):
        merge(load_config(str(toml), {}), settings)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"train_batch_size": 64}, "--batch-size owns it"),
        ({"optimizer": {"type": "Adam"}}, "--optimizer owns it"),
        ({"zero_optimisation": {}}, "no such key; expected zero_optimization$"),
        ({"zero": 1}, "no such key; expected one of zero_optimization, gradient_clipping, fp16"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage = 4: expected 0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": True}}, "expected 0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": 1.5}}, "expected 0, 1, 2 or 3"),
        ({"zero_optimization": 3}, "expected an object"),
        ({"zero_optimization": True}, "an old form; expected an object"),
        ({"zero_optimization": {"overlap": True}}, "zero_optimization.overlap = true: no such key"),
        ({"zero_optimization": {"overlap_com": True}}, "no such key; expected overlap_comm$"),
        ({"zero_optimization": {"reduce_bucket_size": 0}}, "a whole number of at least 1"),
        ({"zero_optimization": {"reduce_bucket_size": True}}, "whole number of at least 1"),
        ({"zero_optimization": {"reduce_bucket_size": 1.5}}, "whole number of at least 1"),
        ({"zero_optimization": {"reduce_bucket_size": "5e8"}}, "whole number of at least 1"),
        ({"zero_optimization": {"reduce_scatter": 1}}, "true or false"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, "offloading is not supported"),
        ({"zero_optimization": {"cpu_offload": True}}, "an old name; expected offload_optimizer"),
        ({"zero_optimization": {"prefetch_bucket_size": 9}}, "expected stage3_prefetch_bucket_size"),
        ({"zero_optimization": {"zero_quantized_gradients": True}}, "ZeRO\\+\\+"),
        ({"zero_optimization": {"zero_hpz_partition_size": 2}}, "expected 1 or absent"),
        ({"zero_optimization": {"round_robin_gradients": True}}, "optimizer state of another"),
        ({"zero_optimization": {"stage3_module_granularity_threshold": 9}}, "fails in this network"),
        ({"zero_optimization": {"mics_shard_size": 2}}, "removed from DeepSpeed 0.19.8"),
        ({"zero_optimization": {"compute_grad_norm": False}}, "clipping needs the norm"),
        (
            {"zero_optimization": {"stage": 1, "overlap_comm": True}},
            "overlap_comm = true: expected stage 2 or 3",
        ),
        (
            {"zero_optimization": {"stage": 2, "sub_group_size": 9}},
            "sub_group_size = 9: expected stage 3, which is 2",
        ),
        (
            {"zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": False}},
            "overlap_comm = true: expected contiguous_gradients true",
        ),
        (
            {"zero_optimization": {"stage": 2}, "gradient_predivide_factor": 2.0},
            "gradient_predivide_factor = 2.0: remove it, or zero_optimization.reduce_scatter false",
        ),
        (
            {"zero_optimization": {"stage": 3}, "prescale_gradients": True},
            "reduce_scatter false, at ZeRO stage 3",
        ),
        ({"prescale_gradients": True, "gradient_predivide_factor": 2.0}, "by nothing else"),
        ({"gradient_predivide_factor": 0}, "a number above 0"),
        ({"gradient_allreduce_op": "sum"}, 'expected "mean" or absent'),
        ({"wall_clock_breakdown": True}, "timers fail"),
        ({"elasticity": {"enabled": True}}, "removed from DeepSpeed 0.19.8"),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, "remove it"),
        ({"bfloat16": {"enabled": True}}, "an old name; expected bf16"),
        ({"communication_data_type": "int8"}, "expected one of fp32, bf16, fp16"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "bf16.enabled = true: fp16 is enabled too"),
        ({"fp16": {"enabled": True, "loss_scale": 128}}, "expected 0 or absent: a fixed loss scale"),
        ({"fp16": {"enabled": True, "loss_scale": False}}, "expected 0 or absent: a fixed loss scale"),
        (
            {"fp16": {"enabled": True, "hysteresis": 2}},
            "expected 1 or absent: the scale halves at every overflow",
        ),
        ({"fp16": {"enabled": True, "initial_scale_power": 25}}, "whole number from 0 to 24"),
        ({"fp16": {"initial_scale_power": 12}}, "fp16.enabled is absent, which is false"),
        ({"fp16": {"enabled": False, "loss_scale_window": 12}}, "remove it: fp16.enabled is false"),
        ({"torch_autocast": {"enabled": True, "dtype": "int8"}}, "bfloat16 or float16"),
        (
            '{"bf16": {"enabled": true},\n "fp16": {\n"enabled":\nfalse,\n "bf16": 1,\n "bf16": 2}}',
            r"ds\.json:6: fp16\.bf16: a second time, first on line 5",
        ),
        ('{"gradient_clipping":\n NaN}', r"ds\.json:2: NaN: expected a finite number"),
        ('{"comment NaN": 0, "gradient_clipping":\n -Infinity}', r"ds\.json:2: -Infinity: expected a finite"),
        ('{"gradient_clipping": 1e999}', "1e999: expected a finite number"),
        ({"gradient_clipping": 10**400}, "expected a number of at least 0"),
        ({"gradient_predivide_factor": 10**400}, "expected a number above 0"),
        ({"zero_optimization": {"stage": 1, "reduce_bucket_size": 10**400}}, "expected a whole number"),
        ('{"gradient_clipping": ' + "9" * 5000 + "}", "holds a number of thousands of digits"),
        ('{"' + "k" * 100_000 + '": 1}', "no such key"),
        ('{"gradient_clipping": 1' + " " * 300_000 + "}", "over 262,144 bytes"),
        ('{\n\n"gradient_clipping": -1}', r"ds\.json:3: gradient_clipping = -1: .*at least 0"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected an object"),
        ("{,}", r"ds\.json:1: .*expected JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(write, table, message):
    with pytest.raises(ConfigError, match=message):
        read_deepspeed_settings(write(table))


def test_auto_and_switched_off_blocks_say_nothing(write):
    settings = read_deepspeed_settings(write({"train_batch_size": "auto", "fp16": {"enabled": False}}))
    assert settings.precision is None
    off = {
        "flops_profiler": {"enabled": False, "profile_step": 1},
        "wall_clock_breakdown": False,
        "sparse_gradients": False,
        "zero_optimization": {"offload_optimizer": {"device": "none"}, "reduce_bucket_size": "auto"},
    }
    assert read_deepspeed_settings(write(off)).zero_options == {}


def test_the_same_key_in_two_objects_is_not_twice_the_same(write):
    profiler = '{"a": [{"b": 1}, {"b": 1}], "enabled": false}'
    text = '{"fp16": {"enabled": true}, "bf16": {"enabled": false}, "flops_profiler": ' + profiler + "}"
    assert read_deepspeed_settings(write(text)).precision == "fp16"


def test_a_size_may_be_written_as_deepspeed_documents_it(write):
    options = read_deepspeed_settings(
        write('{"zero_optimization": {"reduce_bucket_size": 5e8}}')
    ).zero_options
    assert options == {"reduce_bucket_size": 500_000_000}
    assert type(options["reduce_bucket_size"]) is int


def test_the_engine_gets_batch_arithmetic_that_adds_up():
    config = load_config("", {})
    table = engine_config(
        config, read_deepspeed_settings(REPOSITORY / "ds_config.json"), BatchPlan(1024, 128, (1, 1, 1))
    )
    sizes = [table[key] for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")]
    assert sizes == [128, 1]
    assert table["train_batch_size"] == 128 * 3


@pytest.mark.parametrize(
    ("block", "precision"),
    [
        ({"fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": True, "dtype": "float16"}}, "fp16"),
        ({"torch_autocast": {"enabled": False}, "bf16": {"enabled": False}}, None),
        ({}, None),
    ],
)
def test_precision_is_what_its_block_says(write, block, precision):
    assert read_deepspeed_settings(write(block)).precision == precision


def test_the_loss_scale_of_fp16_is_translated(write):
    block = {"enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500}
    config = merge(load_config("", {}), read_deepspeed_settings(write({"fp16": block})))
    training = config.training
    assert (training.precision, training.loss_scale, training.loss_scale_window) == ("fp16", 4096, 500)


def test_options_of_fp16_count_where_another_decides_whether_it_is_on(write):
    settings = read_deepspeed_settings(write({"fp16": {"enabled": "auto", "initial_scale_power": 10}}))
    assert (settings.precision, settings.loss_scale) == (None, 1024)


def test_a_precision_switched_off_contradicts_a_toml_file_that_asks_for_it(write, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text('[training]\nprecision = "bf16"\n')
    off = read_deepspeed_settings(write({"bf16": {"enabled": False}}))
    with pytest.raises(ConfigError, match=r"bf16.enabled = false contradicts precision = 'bf16' of mine"):
        merge(load_config(str(toml), {}), off)
    other = read_deepspeed_settings(write({"fp16": {"enabled": False}}))
    assert merge(load_config(str(toml), {}), other).training.precision == "bf16"
    assert merge(load_config(str(toml), {"precision": "bf16"}), off).training.precision == "bf16"


@pytest.mark.parametrize(
    ("key", "value", "stage", "wanted"),
    [("overlap_comm", True, "1", "2 or 3"), ("stage3_max_live_parameters", 10**6, "2", "3")],
)
def test_an_option_of_another_stage_is_a_contradiction(write, key, value, stage, wanted):
    settings = read_deepspeed_settings(write({"zero_optimization": {key: value}}))
    with pytest.raises(ConfigError, match=f"{key} = {value}: expected stage {wanted}, which is {stage}"):
        merge(load_config("", {"zero_stage": stage}), settings)


def test_a_flag_that_beats_the_stage_leaves_the_options_of_the_other_behind(write):
    table = {"zero_optimization": {"stage": 3, "sub_group_size": 9, "reduce_bucket_size": 7}}
    settings = read_deepspeed_settings(write(table))
    config = merge(load_config("", {"zero_stage": "1"}), settings)
    zero = engine_config(config, settings, BatchPlan(64, 16, (1, 1)))["zero_optimization"]
    assert zero == {"stage": 1, "reduce_bucket_size": 7, "overlap_comm": False}


def test_what_a_flag_makes_impossible_is_said_before_deepspeed_fails(write):
    settings = read_deepspeed_settings(write({"prescale_gradients": True}))
    with pytest.raises(ConfigError, match="at ZeRO stage 2"):
        merge(load_config("", {"zero_stage": "2"}), settings)


@pytest.mark.parametrize(("stage", "overlap"), [(0, False), (1, False), (2, True), (3, True)])
def test_communication_overlaps_only_where_deepspeed_allows_it(stage, overlap):
    config = load_config("", {"zero_stage": str(stage)})
    settings = DeepSpeedSettings(zero_options={"overlap_comm": True})
    table = engine_config(config, settings, BatchPlan(64, 16, (1, 1)))
    assert table["zero_optimization"] == {"stage": stage, "overlap_comm": overlap}


# Unlike DeepSpeed's defaults, and small enough to matter in a small network.
UNUSUAL = {
    "reduce_bucket_size": 20_000,
    "allgather_bucket_size": 20_000,
    "reduce_scatter": False,
    "enable_sanity_checks": True,
    "use_multi_rank_bucket_allreduce": False,
    "allgather_partitions": False,
    "parameter_alignment": True,
    "ignore_unused_parameters": False,
    "overlap_comm": True,
    "contiguous_gradients": True,  # false contradicts overlap_comm
    "sub_group_size": 10_000,
    "memory_efficient_linear": False,
    "stage3_prefetch_bucket_size": 1_000,
    "stage3_param_persistence_threshold": 0,
    "stage3_model_persistence_threshold": 1_000,
    "stage3_max_live_parameters": 1_000,
    "stage3_max_reuse_distance": 1_000,
    "stage3_use_all_reduce_for_fetch_params": True,
    "stage3_allgather_sequential": True,
}


@pytest.mark.slow
def test_with_every_option_that_is_let_through_a_checkpoint_is_that_of_a_plain_job(
    tmp_path, random_store, write
):
    """Real jobs of two ranks; the optimizer state tells whether each parameter still has its own."""
    assert UNUSUAL.keys() == ZERO_KEYS.keys() - {"stage"}
    run_job(tmp_path / "plain", random_store, 2, "--steps", "3")
    expected = checkpoint_of(tmp_path / "plain")
    top = {"communication_data_type": "fp32", "prescale_gradients": True, "memory_breakdown": False}
    assert {*top, "gradient_predivide_factor"} == PASSED_ON.keys()
    for stage in (1, 2, 3):
        zero = {key: value for key, value in UNUSUAL.items() if stage in ZERO_KEYS[key].stages}
        path = write({**top, "zero_optimization": {**zero, "stage": stage}})
        directory = tmp_path / f"stage{stage}"
        run_job(directory, random_store, 2, "--steps", "3", "--deepspeed_config", str(path))
        found = checkpoint_of(directory)
        for kind in ("weights", "optimizer"):
            ours, theirs = getattr(found, kind), getattr(expected, kind)
            assert ours.keys() == theirs.keys()
            for name in ours:
                torch.testing.assert_close(
                    ours[name], theirs[name], rtol=1e-3, atol=1e-5, msg=f"{stage} {name}"
                )


def checkpoint_of(directory):
    return checkpoint.load(directory / "runs" / "job" / "checkpoints" / "step-00000003")
