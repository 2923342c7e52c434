"""What `accelerate launch` leaves in the environment of a rank: taken as the flag it stands for, or refused.

A flag of the command line beats it. Its defaults (`no`, `none`, `false`) say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from alphazero.base.errors import ConfigError
from alphazero.base.text import quoted

PREFIX = "ACCELERATE_"
CONFIG_FILE = "ACCELERATE_DEEPSPEED_CONFIG_FILE"  # as --deepspeed-config
_UNSET = ("", "no", "none", "false")
# Of a variable: the setting, and its values by accelerate's words.
_TAKEN: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "ACCELERATE_MIXED_PRECISION": ("precision", {"fp16": "fp16", "bf16": "bf16"}),
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": ("zero_stage", {str(stage): stage for stage in range(4)}),
    "ACCELERATE_USE_CPU": ("device", {"true": "cpu"}),
}
_REFUSED: Mapping[str, str] = {
    "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "offload_optimizer in a ds_config.json",
    "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "offload_param in a ds_config.json",
    "ACCELERATE_DYNAMO_BACKEND": "--compile",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "gradient_accumulation_steps in a ds_config.json",
    "ACCELERATE_GRADIENT_CLIPPING": "gradient_clipping in a ds_config.json",
    "ACCELERATE_USE_FSDP": "--zero-stage 1, 2 or 3",
    "ACCELERATE_USE_MEGATRON_LM": "--zero-stage 1, 2 or 3",
}


def accelerate_settings(environment: Mapping[str, str], flags: Mapping[str, object]) -> dict[str, object]:
    """Values by setting for what `flags` leave open. Raises ConfigError for a variable without a meaning."""
    settings: dict[str, object] = {}
    if not any(name.startswith(PREFIX) for name in environment):
        return settings
    for name, (setting, values) in _TAKEN.items():
        text = environment.get(name, "").lower()
        is_open = setting not in flags or (setting == "device" and flags[setting] == "auto")
        # Beside a file of DeepSpeed's settings accelerate takes the stage from there.
        if text in _UNSET or not is_open or (setting == "zero_stage" and environment.get(CONFIG_FILE)):
            continue
        if text not in values:
            raise ConfigError(f"{name}={quoted(text)}: expected one of {', '.join(values)}")
        settings[setting] = values[text]
    for name, expected in _REFUSED.items():
        text = environment.get(name, "").lower()
        says_nothing = text in _UNSET or (text == "1" and name.endswith("_STEPS"))
        if not says_nothing and not environment.get(CONFIG_FILE):
            raise ConfigError(f"{name}={quoted(text)}: is not read; expected {expected} (or unset {name})")
    return settings
