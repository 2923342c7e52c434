"""A network that memory cannot hold while it trains is refused before it is made."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from alphazero.base.errors import ConfigError
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import load_config
from alphazero.training.engine.deepspeed_config import LIMITS_OF_WEIGHTS
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime, read_runtime
from alphazero.training.start.starting_network import require_memory
from tests.support.jobs import refusing
from tests.support.jobs.jobs import environment

GIB = 1 << 30
LONE = cast(Exchange, SimpleNamespace(on_each=lambda action: action()))


def runtime_of(ranks: int) -> Runtime:
    return dataclasses.replace(read_runtime({}, "cpu"), world_size=ranks, host="node7")


def refusal(ranks: int, available: int, **flags: Any) -> str:
    """Of chess_1b, for which 1,125,246,499 numbers are 4,500,985,996 bytes in fp32."""
    config = load_config("chess_1b", flags)
    with pytest.raises(ConfigError) as refused:
        require_memory(config, runtime_of(ranks), LONE, lambda _: available)
    return str(refused.value)


def test_the_line_has_what_is_needed_what_there_is_and_what_helps() -> None:
    numbers = 1_125_246_499
    line = refusal(8, 6 * GIB, precision="bf16")
    needed = 4 * numbers + 4 * -(-4 * numbers // 8)
    assert line.startswith(f"node7 cpu: {numbers:,} parameters")
    assert f"take {needed:,} bytes" in line and "stage 2 on 8 ranks" in line
    assert f"{6 * GIB:,} are available" in line
    assert re.search(r"expected --zero-stage 3 \([0-9,]+ bytes\), or a smaller network$", line)
    assert "\n" not in line


def test_more_ranks_are_named_where_no_stage_helps() -> None:
    assert "a higher --zero-stage" in refusal(2, GIB, precision="bf16")
    assert "hosts, or a smaller" in refusal(2, GIB, zero_stage=3, precision="bf16")


def test_a_stage_that_shares_out_what_one_rank_cannot_hold_is_enough() -> None:
    """At ZeRO 3 eight ranks keep an eighth, but each begins with the whole network."""
    config = load_config("chess_1b", {"zero_stage": 3, "precision": "bf16"})
    require_memory(config, runtime_of(8), LONE, lambda _: 5 * GIB)
    assert "take 4,500,985,996 bytes" in refusal(64, 4 * GIB, zero_stage=3, precision="bf16")
    offloads = DeepSpeedSettings(zero_options={"offload_optimizer": {"device": "cpu"}})
    require_memory(load_config("chess_1b", {}, offloads), runtime_of(1), LONE, lambda _: 0)


def test_limits_that_share_the_weights_out_are_named_where_they_help() -> None:
    """Where ds_config.json lets DeepSpeed have all weights whole, each rank keeps them, as gradients."""
    numbers = 1_125_246_499
    whole = {"reduce_bucket_size": numbers, **dict.fromkeys(LIMITS_OF_WEIGHTS, numbers)}
    for stage in (2, 3):
        config = load_config("chess_1b", {"zero_stage": stage}, DeepSpeedSettings(zero_options=whole))
        with pytest.raises(ConfigError) as refused:
            require_memory(config, runtime_of(8), LONE, lambda _: 6 * GIB)
        assert f"take {2 * 4 * numbers + 4 * -(-3 * numbers // 8):,} bytes" in str(refused.value)
        flags = re.search(r"expected (.*) \([0-9,]+ bytes\), or a smaller network$", str(refused.value))[1]
        assert flags.startswith(
            "--zero-stage 3 --deepspeed-set zero_optimization.stage3_max_live_parameters="
        )
    named = dict(re.findall(r"zero_optimization\.(\w+)=(\d+)", flags))
    shared = DeepSpeedSettings(zero_options={**whole, **named})
    require_memory(load_config("chess_1b", {"zero_stage": 3}, shared), runtime_of(8), LONE, lambda _: 6 * GIB)


def test_all_ranks_are_refused_alike() -> None:
    argv = [sys.executable, refusing.__file__]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=240, check=True)
    first, second = json.loads(done.stdout)
    assert first == second
    assert first[0] == "config"
    assert first[1].endswith("(on rank 1)")


def test_a_start_ends_with_status_2_and_one_line_and_nothing_was_made(tmp_path: Any) -> None:
    """Under a limit of address space in which torch runs and the network would not fit."""
    program = (
        "import sys\n"
        "import psutil\n"
        "from alphazero.cli.main import main\n"
        "memory = psutil.virtual_memory()._replace(available=3 << 30)\n"
        "psutil.virtual_memory = lambda: memory\n"
        "status = main(sys.argv[1:])\n"
        "peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1]\n"
        "print(peak)\n"
        "sys.exit(status)\n"
    )
    flags = ["--config", "chess_1b", "--device", "cpu", "--runs-dir", str(tmp_path), "--no-tensorboard"]
    argv = [sys.executable, "-c", program, "train", *flags, "--precision", "fp32"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    (line,) = [
        text for text in (done.stdout + done.stderr).splitlines() if "parameters with gradients" in text
    ]
    assert "2,576,980,377 are available" in line  # four fifths
    peak = int(done.stdout.splitlines()[-1])
    assert peak < 2 << 20, json.dumps({"KiB": peak})  # the network alone has 4.2 GiB
    assert list(tmp_path.iterdir()) == []
