"""Files of DeepSpeed's users: accepted where they ask for what has a meaning here, else refused by key.

The tables have the key sets of the files in deepspeedai/DeepSpeedExamples, with values of our own.
"""

import json
import os
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError
from alphazero.settings import deepspeed_keys
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.load import decided, load_config

EXAMPLES = os.environ.get("ALPHAZERO_DEEPSPEED_EXAMPLES", "")
# Six more hold a placeholder where a value belongs.
TEMPLATES = ("TEMPLATE.JSON", "DS_CONFIG_TEMP.JSON")
# A JSON file with one of these keys is a DeepSpeed configuration.
KEYS_OF_A_FILE = {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "fp16", "bf16"}
ADAM = {"lr": 3e-4, "betas": [0.8, 0.9], "eps": 1e-7, "weight_decay": 1e-3}
GPT = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 8,
    "steps_per_print": 20,
    "optimizer": {"type": "Adam", "params": ADAM},
    "zero_optimization": {"stage": 0},
    "fp16": {"enabled": True},
    "gradient_clipping": 1.0,
    "prescale_gradients": True,
    "wall_clock_breakdown": False,
}
QUANTIZATION = {
    "shared_parameters": {"enabled": True, "schedule_offset": 0},
    "different_groups": {"wq1": {"params": {"start_bits": 8}, "modules": ["attention"]}},
}
OFF = {
    "layer_reduction": {"enabled": False, "keep_number_layer": 5},
    "weight_quantization": {**QUANTIZATION, "shared_parameters": {"enabled": False}},
}
AUTOTUNING = {"enabled": True, "overwrite": False, "arg_mappings": {"gradient_accumulation_steps ": "--g"}}
OFFLOAD = {"device": "cpu", "pin_memory": True, "buffer_size": "auto"}
NVME = {"device": "nvme", "nvme_path": "/nvme", "pin_memory": True, "buffer_size": "auto", "buffer_count": 5}
AUTO_ADAM = {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
}

ACCEPTED = {
    "gpt2": GPT,
    "bert, compression off": {**GPT, "compression_training": OFF},
    "glue": {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 1,
        "steps_per_print": 5,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-5, "weight_decay": 0.0, "bias_correction": True}},
        "gradient_clipping": 1.0,
        "fp16": {"enabled": False},
    },
    "squad": {
        **GPT,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-5, "weight_decay": 0.0, "bias_correction": False}},
    },
    "gan": {
        "train_batch_size": 32,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.5, 0.9], "eps": 1e-8}},
        "steps_per_print": 5,
    },
    "imagenet": {
        "train_batch_size": 128,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 25,
        "optimizer": {"type": "Adam", "params": ADAM},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "fp16": {"enabled": True, "auto_cast": True},
        "gradient_clipping": 0,
        "prescale_gradients": False,
        "cuda_visible_devices": 0,
        "wall_clock_breakdown": False,
    },
    "autotuning": {"train_micro_batch_size_per_gpu": "auto", "autotuning": AUTOTUNING},
    "autotuning fp16": {
        "train_micro_batch_size_per_gpu": "auto",
        "fp16": {"enabled": True, "initial_scale_power": 10},
        "autotuning": AUTOTUNING,
    },
    "zero 3": {
        "train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stage": 3},
        "fp16": {"enabled": True},
    },
    "compile": {
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 0},
        "gradient_accumulation_steps": 1,
        "gradient_clipping": "auto",
        "steps_per_print": 100,
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "wall_clock_breakdown": False,
    },
    "bf16 in full": {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 50,
        "optimizer": {"type": "AdamW", "params": ADAM},
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_bucket_size": 1e7,
            "stage3_param_persistence_threshold": 0,
        },
        "torch_autocast": {"enabled": True, "dtype": "torch.bfloat16"},
    },
    "weights in the host's memory": {
        "zero_optimization": {
            "stage": 3,
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_max_live_parameters": "auto",
            "offload_param": OFFLOAD,
        },
        "train_batch_size": 1,
    },
}
ONE_BIT = {"lr": 4e-4, "freeze_step": 400, "bias_correction": False, "comm_backend_name": "nccl"}
REFUSED = {
    "compression": (
        {**GPT, "compression_training": {"weight_quantization": QUANTIZATION}},
        "compression_training",
    ),
    "layers": (
        {**GPT, "compression_training": {"layer_reduction": {"enabled": True}}},
        "compression_training",
    ),
    "1-bit Adam": ({**GPT, "optimizer": {"type": "OneBitAdam", "params": ONE_BIT}}, "optimizer.type"),
    "0/1 Adam": ({**GPT, "optimizer": {"type": "ZeroOneAdam", "params": ONE_BIT}}, "optimizer.type"),
    "1-bit LAMB": ({**GPT, "optimizer": {"type": "OneBitLamb", "params": ONE_BIT}}, "optimizer.type"),
    "LAMB": ({**GPT, "optimizer": {"type": "Lamb", "params": {"max_coeff": 0.3}}}, "optimizer.type"),
    "random-LTD": (
        {**GPT, "data_efficiency": {"enabled": True, "data_routing": {"enabled": True}}},
        "data_efficiency",
    ),
    "NVMe": (
        {
            "zero_optimization": {"stage": 3, "offload_param": NVME},
            "aio": {"block_size": 8},
            "train_batch_size": 1,
        },
        "zero_optimization.offload_param.device",
    ),
    "ZenFlow": (
        {
            "train_batch_size": 8,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 2, "offload_optimizer": OFFLOAD, "zenflow": {"topk_ratio": 0.1}},
        },
        "zero_optimization.zenflow",
    ),
    "layer drop": (
        {**GPT, "progressive_layer_drop": {"enabled": True, "theta": 0.5}},
        "progressive_layer_drop",
    ),
    "MoQ": ({**GPT, "quantize_training": {"enabled": True, "quantize_groups": 8}}, "quantize_training"),
    "tensor parallel": (
        {"optimizer": AUTO_ADAM, "tensor_parallel": {"autotp_size": 4}, "train_batch_size": "auto"},
        "tensor_parallel",
    ),
    "sequence parallel": (
        {"compile": {"deepcompile": True}, "train_batch_size": 1, "sequence_parallel_size": 2},
        "sequence_parallel_size",
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_file_that_asks_for_what_has_a_meaning_here_is_accepted(write, name):
    settings = read_deepspeed_settings(write(ACCEPTED[name]))
    config = load_config("chess_cpu", {}, settings)
    lines = decided(config)
    assert all(line.startswith(settings.source) for line in lines) and len(lines) <= 3


@pytest.mark.parametrize("name", REFUSED)
def test_another_is_refused_by_the_key_that_cannot_be_honoured(write, name):
    table, key = REFUSED[name]
    with pytest.raises(ConfigError, match=rf"ds\.json:1: {key} = "):
        read_deepspeed_settings(write(table))


@pytest.mark.skipif(not EXAMPLES, reason="ALPHAZERO_DEEPSPEED_EXAMPLES names no tree of files")
def test_of_the_75_files_of_deepspeeds_examples_31_are_accepted():
    refused = []
    paths = [path for path in Path(EXAMPLES).rglob("*.json") if not str(path).upper().endswith(TEMPLATES)]
    paths = [path for path in paths if KEYS_OF_A_FILE & keys_of(path)]
    for path in paths:
        try:
            load_config("chess_cpu", {}, read_deepspeed_settings(path))
        except ConfigError as error:
            refused.append(str(error).partition(": ")[2].partition(" = ")[0])
    assert (len(paths), len(refused)) == (75, 44)
    assert {*refused} <= deepspeed_keys.REFUSED.keys() | {
        "optimizer.type",
        "zero_optimization.offload_param.device",
    }


def keys_of(path):
    try:
        table = json.loads(path.read_text())
    except ValueError:
        return set()
    return table.keys() if isinstance(table, dict) else set()
