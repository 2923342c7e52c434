"""What ds_config.json may say: honoured, passed on, ignored with a word, or refused by name."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from tests.support.paths import REPOSITORY


def value_of(settings, name):
    return {one.name: one.value for one in settings.values}.get(name)


ADAM = {"type": "Adam", "params": {"lr": 0.001}}
CYCLE = {"cycle_min_lr": 0.001, "cycle_max_lr": 0.01}


def said(settings):
    """All values but the precision of a file that has no word about it."""
    values = {one.name: one for one in settings.values}
    return {name: one.value for name, one in values.items() if not (name == "precision" and one.is_default)}


def test_the_shipped_file_is_accepted_and_silent_about_what_flags_own():
    settings = read_deepspeed_settings(REPOSITORY / "ds_config.json")
    assert settings.values == () and settings.ignored_line(0) == ""


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"train_batch_size": 0}, "train_batch_size = 0: expected a whole number of at least 1|from 1 to"),
        ({"train_batch_size": "64"}, 'train_batch_size = "64": expected a whole number'),
        ({"zero_optimisation": {}}, "zero_optimisation = {}: .*zero_optimization"),
        ({"zero_optimizatio\n": {}}, r"zero_optimizatio\\n = .*zero_optimization"),
        ({"fp16.enabled": True}, "fp16.enabled = true: no such key"),
        (
            '{"compression_training": ' + '{"a": ' * 900 + '{"enabled": true}' + "}" * 901,
            "trains another network|nested too deeply",
        ),
        ({"zero": 1}, "zero = 1: .*train_batch_size"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage = 4: .*from 0 to 3"),
        ({"zero_optimization": {"stage": True}}, "stage = true: .*from 0 to 3"),
        ({"zero_optimization": {"stage": 1.5}}, "stage = 1.5: .*from 0 to 3"),
        ({"zero_optimization": 3}, 'expected an object, as {"stage": 1}'),
        ({"optimizer": "Adam"}, 'optimizer = "Adam": expected an object, as {"type": "Adam"}'),
        ({"fp16": True}, 'fp16 = true: expected an object, as {"enabled": true}'),
        ({"zero_optimization": {"offload_param": "cpu"}}, 'expected an object, as {"device": "cpu"}'),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps = 0: .*from 1 to"),
        ({"train_micro_batch_size_per_gpu": 0}, "micro_batch_size_per_gpu = 0: .*from 1 to .* or auto"),
        ({"wall_clock_breakdown": "yes"}, 'wall_clock_breakdown = "yes": expected one of true, false'),
        ({"zero_optimization": {"overlap_comm": "yes"}}, 'overlap_comm = "yes": expected one of true, false'),
        ({"flops_profiler": {"module_depth": "x"}}, 'flops_profiler.module_depth = "x": expected a whole'),
        ({"zero_optimization": True}, "zero_optimization = true: expected an object"),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "nvme"}}},
            "offload_optimizer.device = .*one of cpu, none",
        ),
        ({"zero_optimization": {"offload_param": {"device": "nvme"}}}, 'offload_param.device = "nvme"'),
        ({"zero_optimization": {"cpu_offload": True}}, "cpu_offload = true: .*offload_optimizer"),
        ({"zero_optimization": {"zero_quantized_gradients": True}}, "ZeRO\\+\\+"),
        ({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}}, "zenflow = .*gradients of earlier steps"),
        (
            {"zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": False}},
            "overlap_comm = true: .*contiguous_gradients",
        ),
        ({"gradient_allreduce_op": "sum"}, "depend on the number of ranks"),
        ({"elasticity": {"enabled": True}}, "it would choose the batch"),
        ({"communication_data_type": "int8"}, "expected one of fp32, bf16, fp16"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "bf16.enabled = true: fp16 is enabled too"),
        ({"fp16": {"enabled": True, "loss_scale": 2.0**25}}, "fp16.loss_scale = .*from 0 to 16,777,216"),
        ({"fp16": {"enabled": True, "loss_scale": False}}, "fp16.loss_scale = .*from 0 to 16,777,216"),
        ({"fp16": {"enabled": True, "hysteresis": 0}}, "hysteresis = 0: expected a whole number"),
        (
            {"fp16": {"enabled": True, "initial_scale_power": 33}},
            "initial_scale_power = 33: expected one of 0, 1,",
        ),
        ({"torch_autocast": {"enabled": True, "dtype": "int8"}}, "dtype = .*bfloat16"),
        ({"optimizer": {}}, "optimizer = {}: has no type"),
        ({"optimizer": {"type": "Lamb"}}, 'optimizer.type = "Lamb": expected one of Adam, AdamW, Muon, SGD'),
        ({"optimizer": {"type": "OneBitAdam"}}, "expected one of Adam, AdamW, Muon, SGD"),
        ({"optimizer": {"type": "Adam", "params": {"amsgrad": True}}}, "remove it: DeepSpeed's own Adam"),
        ({"optimizer": {"type": "SGD", "params": {"dampening": 0.1}}}, "remove it: momentum is not dampened"),
        (
            {"optimizer": {"type": "Adam", "params": {"momentum": 0.9}}},
            "no such key of Adam; expected one of .*lr",
        ),
        ({"optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.99]}}}, "no such key of SGD"),
        ({"optimizer": {"type": "Adam", "params": {"weight_deacy": 0}}}, "weight_deacy = 0: .*weight_decay"),
        (
            {"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}},
            "betas = .*list of two",
        ),
        (
            {"optimizer": {"type": "Adam", "params": {"lr": [1]}}},
            "optimizer.params.lr = .*expected a number from",
        ),
        ({"scheduler": {"type": "LRRangeTest"}}, "expected one of WarmupLR, WarmupDecayLR, WarmupCosineLR"),
        ({"scheduler": {"type": "WarmupDecayLR", "params": {}}}, "params = {}: has no total_num_steps"),
        ({"scheduler": {"type": "WarmupDecayLR"}}, 'DecayLR"}: has no params.total_num_steps'),
        ({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 9}}}, "no such key of WarmupLR"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}}}, "warmup_num_steps = -1:"),
        ({"scheduler": {"type": "OneCycle", "params": CYCLE}}, "scheduler.params = .*cycle_momentum"),
        (
            {"scheduler": {"type": "OneCycle", "params": {**CYCLE, "cycle_first_stair_count": 3}}},
            "cycle_first_stair_count = 3: remove it",
        ),
        ({"compression_training": {"a": {"shared_parameters": {"enabled": True}}}}, "trains another network"),
        ({"data_efficiency": {"enabled": True}}, "data_efficiency = .*: remove it: the order of the data"),
        ({"progressive_layer_drop": {"enabled": True}}, "trains another network"),
        ({"tensor_parallel": {"autotp_size": 4}}, "tensor_parallel = .*: remove it"),
        ({"sequence_parallel_size": 2}, "sequence_parallel_size = 2: remove it"),
        (
            '{"bf16": {"enabled": true},\n "fp16": {\n"enabled":\nfalse,\n "bf16": 1,\n "bf16": 2}}',
            r"ds\.json:6: fp16\.bf16: first on line 5",
        ),
        ('{"gradient_clipping":\n NaN}', r"ds\.json:2: "),
        ('{"gradient_clipping":\n NaN\n}', r'ds\.json:2: gradient_clipping = "NaN": expected a number of'),
        ('{"gradient_clipping": 1e999}', r"ds\.json:1: gradient_clipping = 1e999: too large"),
        ({"gradient_clipping": 10**400}, "expected a number of at least 0"),
        ('{"gradient_clipping": ' + "9" * 5000 + "}", "too large; expected a number below"),
        ('{"' + "k" * 50_000 + '": 1}', "no such key"),
        ('{"gradient_clipping": 1' + " " * 70_000 + "}", "over 65,536 bytes"),
        ('{\n\n"gradient_clipping": -1}', r"ds\.json:3: gradient_clipping = -1: .*at least 0"),
        ("[" * 60_000, "nested too deeply"),
        ("[]", "expected an object"),
        ("{,}", r"ds\.json:1: .*expected JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(write, table, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_deepspeed_settings(write(table))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            {"activation_checkpointing": {"cpu_checkpointing": True}},
            "activation_checkpointing",
        ),
        (
            {"zero_optimization": {"round_robin_gradients": True}},
            "zero_optimization.round_robin_gradients",
        ),
        ({"zero_optimization": {"mics_shard_size": 2}}, "mics_shard_size"),
        ({"zero_optimization": {"stage": 0, "overlap_comm": True}}, "overlap_comm (it is for stage 2"),
        ({"fp16": {"initial_scale_power": 12}}, "fp16.initial_scale_power (fp16.enabled is absent, which is"),
        ({"autotuning": {"enabled": True}}, "autotuning"),
        ({"tensorboard": {"enabled": True, "job_name": "x"}}, "tensorboard.job_name"),
        ({"csv_monitor": {"enabled": True}}, "csv_monitor"),
        ({"bf16": {"enabled": True, "bf16_optimizer_states": True}}, "bf16.bf16_optimizer_states"),
    ],
)
def test_what_is_harmless_is_one_line(write, table, told):
    line = read_deepspeed_settings(write(table)).ignored_line(0)
    assert "ds.json: ignored" in line and told in line and "\n" not in line


def test_auto_and_switched_off_blocks_say_nothing(write):
    table = {
        "train_batch_size": "auto",
        "fp16": {"enabled": False, "loss_scale": 0, "hysteresis": 2},
        "flops_profiler": {"enabled": False, "profile_step": 1},
        "sparse_gradients": False,
        "compression_training": {
            "a": {"shared_parameters": {"enabled": False}, "different_groups": {"b": 1}}
        },
        "sequence_parallel_size": 1,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"offload_optimizer": {"device": "none"}, "reduce_bucket_size": "auto"},
    }
    settings = read_deepspeed_settings(write(table))
    assert (said(settings), settings.zero_options, settings.passed_on) == ({}, {}, {})
    assert settings.ignored_line(0) == ""
    assert settings.precisions_off == {"fp16"}


def test_a_block_that_says_auto_says_nothing(write):
    settings = read_deepspeed_settings(write({"optimizer": "auto", "zero_optimization": "auto"}))
    assert said(settings) == {}


def test_null_is_a_key_that_is_absent(write):
    text = """{  // as Hugging Face's users write it
      "train_batch_size": null, 'gradient_clipping': null, # the default
      optimizer: {type: "AdamW", params: {"lr": null, betas: null, weight_decay: 0.5,},},
      scheduler: null, elasticity: null,
      "zero_optimization": {"stage": 2, "offload_optimizer": null, "cpu_offload": false,
                            "sub_group_size": null}
    }"""
    settings = read_deepspeed_settings(write(text))
    assert said(settings) == {
        "optimizer": "adamw",
        "weight_decay": 0.5,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-8,
        "adam_bias_correction": True,
        "zero_stage": 2,
    }
    assert (settings.zero_options, settings.passed_on, settings.ignored) == ({}, {}, ())


def test_the_same_key_in_two_objects_is_not_twice_the_same(write):
    profiler = '{"a": [{"b": 1}, {"b": 1}], "enabled": false}'
    text = '{"fp16": {"enabled": true}, "bf16": {"enabled": false}, "csv_monitor": ' + profiler + "}"
    assert value_of(read_deepspeed_settings(write(text)), "precision") == "fp16"


def test_a_size_may_be_written_as_deepspeed_documents_it(write):
    options = read_deepspeed_settings(
        write('{"zero_optimization": {"reduce_bucket_size": 5e8, "prefetch_bucket_size": 1e6}}')
    ).zero_options
    assert options == {"reduce_bucket_size": 500_000_000, "prefetch_bucket_size": 1_000_000}
    assert all(type(value) is int for value in options.values())


@pytest.mark.parametrize(
    ("block", "precision"),
    [
        ({"fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": True, "dtype": "float16"}}, "fp16"),
        ({"torch_autocast": {"enabled": True, "dtype": "torch.bfloat16"}, "bf16": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": False}, "bf16": {"enabled": False}}, "fp32"),
        ({"fp16": {"loss_scale": 0}}, "fp32"),  # as in DeepSpeed, whatever would be faster
        ({}, "fp32"),
        ({"bf16": {"enabled": "auto"}}, None),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": False}}, None),
        ({"torch_autocast": "auto"}, None),
    ],
)
def test_precision_is_what_its_block_says(write, block, precision):
    assert value_of(read_deepspeed_settings(write(block)), "precision") == precision


def test_the_loss_scale_of_fp16_is_translated(write):
    block = {"enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500}
    assert said(read_deepspeed_settings(write({"fp16": block}))) == {
        "precision": "fp16",
        "fixed_loss_scale": 0.0,
        "loss_scale": 4096.0,
        "loss_scale_window": 500,
        "loss_scale_hysteresis": 2,  # DeepSpeed's own where the block is silent
    }


def test_options_of_fp16_count_where_another_decides_whether_it_is_on(write):
    settings = read_deepspeed_settings(write({"fp16": {"enabled": "auto", "initial_scale_power": 10}}))
    assert value_of(settings, "precision") is None
    assert value_of(settings, "loss_scale") == 1024
    highest = read_deepspeed_settings(write({"fp16": {"enabled": True, "initial_scale_power": 32}}))
    assert value_of(highest, "loss_scale") == 2**24


def test_an_optimizer_is_translated_with_deepspeeds_defaults_but_for_the_rate(write):
    adam = {"type": "Adam", "params": {"betas": [0.8, 0.99], "eps": "auto"}}
    assert said(read_deepspeed_settings(write({"optimizer": adam}))) == {
        "optimizer": "adamw",
        "weight_decay": 0.0,
        "adam_beta1": 0.8,
        "adam_beta2": 0.99,
        "adam_bias_correction": True,
    }
    plain = {"type": "sgd"}
    assert said(read_deepspeed_settings(write({"optimizer": plain}))) == {
        "optimizer": "sgd",
        "weight_decay": 0.0,
        "momentum": 0.0,
        "nesterov": False,
    }
    coupled = {"type": "Adam", "params": {"adam_w_mode": False, "lr": 0.1, "weight_decay": 0.5}}
    found = said(read_deepspeed_settings(write({"optimizer": coupled})))
    assert (found["optimizer"], found["weight_decay"]) == ("adam", 0.5)


def test_a_scheduler_is_translated_and_its_peak_beats_the_optimizers_rate(write):
    scheduler = {"type": "WarmupDecayLR", "params": {"total_num_steps": 5e3, "warmup_max_lr": 0.02}}
    found = said(read_deepspeed_settings(write({"optimizer": ADAM, "scheduler": scheduler})))
    assert {name: found[name] for name in ("lr_schedule", "learning_rate", "lr_total_steps")} == {
        "lr_schedule": "warmup_decay_lr",
        "learning_rate": 0.02,
        "lr_total_steps": 5000,
    }
    assert (found["warmup_steps"], found["warmup_type"]) == (1000, "log")
    auto = {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_max_lr": "auto"}}
    found = said(read_deepspeed_settings(write({"optimizer": ADAM, "scheduler": auto})))
    assert found["learning_rate"] == 0.001 and "lr_total_steps" not in found


def test_a_cycle_is_taken_where_the_momentum_stays(write):
    steady = {"type": "OneCycle", "params": {**CYCLE, "cycle_momentum": False}}
    assert said(read_deepspeed_settings(write({"scheduler": steady})))["learning_rate"] == 0.01
    with_sgd = {"optimizer": {"type": "SGD"}, "scheduler": steady}
    assert said(read_deepspeed_settings(write(with_sgd)))["lr_schedule"] == "one_cycle"


def test_figures_and_batch_are_translated(write):
    table = {
        "steps_per_print": 7,
        "tensorboard": {"enabled": False},
        "wandb": {"enabled": True, "project": "p", "team": "t", "group": "g"},
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": 4,
    }
    assert said(read_deepspeed_settings(write(table))) == {
        "log_interval": 7,
        "tensorboard": False,
        "wandb": True,
        "wandb_project": "p",
        "wandb_team": "t",
        "wandb_group": "g",
        "batch_size": 64,
        "micro_batch_size": 16,
        "gradient_accumulation_steps": 4,
    }


def test_a_profile_is_passed_on_where_it_is_asked_for(write):
    profile = {"enabled": True, "profile_step": 3, "output_file": "profile.txt"}
    assert read_deepspeed_settings(write({"flops_profiler": profile})).passed_on == {
        "flops_profiler": profile
    }
