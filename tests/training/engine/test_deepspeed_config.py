"""The configuration that DeepSpeed is given, and real jobs with every option that is let through."""

import dataclasses
import importlib.util
import json
import subprocess

import pytest
import torch

from alphazero.base.errors import ConfigError
from alphazero.network.weights import checkpoint
from alphazero.settings.deepspeed_file import DeepSpeedSettings, read_deepspeed_settings
from alphazero.settings.load import load_config
from alphazero.training.engine.deepspeed_config import NEVER, deepspeed_stage, engine_config
from alphazero.training.engine.engine import check_options
from alphazero.training.ranks.batch import BatchPlan
from tests.support.jobs.jobs import command, environment, run_job
from tests.support.paths import REPOSITORY


@pytest.fixture
def write(tmp_path):
    def write_table(table):
        path = tmp_path / "ds.json"
        path.write_text(json.dumps(table))
        return path

    return write_table


def recipe_of(config, settings):
    return dataclasses.replace(config, deepspeed=settings)


def test_the_engine_gets_batch_arithmetic_that_adds_up():
    config = load_config("", {})
    settings = read_deepspeed_settings(REPOSITORY / "ds_config.json")
    table = engine_config(recipe_of(config, settings), BatchPlan(1024, 128, (1, 1, 1)))
    sizes = [table[key] for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")]
    assert sizes == [128, 1]
    assert table["train_batch_size"] == 128 * 3


def test_a_flag_that_beats_the_stage_leaves_the_options_of_the_other_behind(write):
    table = {"zero_optimization": {"stage": 3, "sub_group_size": 9, "reduce_bucket_size": 7}}
    settings = read_deepspeed_settings(write(table))
    config = load_config("", {"zero_stage": "1"}, settings)
    zero = engine_config(recipe_of(config, settings), BatchPlan(64, 16, (1, 1)))["zero_optimization"]
    own = {"overlap_comm": False, "compute_grad_norm": False}
    assert zero == {"stage": 1, "sub_group_size": 9, "reduce_bucket_size": 7, **own}


@pytest.mark.parametrize("given", ["many", {}])
def test_a_limit_that_is_not_a_number_is_named(write, given):
    settings = read_deepspeed_settings(
        write({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": given}})
    )
    with pytest.raises(
        ConfigError, match=r"ds\.json:1: .*stage3_max_live_parameters = .*: expected a number"
    ):
        deepspeed_stage(load_config("", {}, settings))


def test_offloading_is_passed_on_where_the_stage_knows_it(write):
    offload = {"device": "cpu", "pin_memory": True}
    table = {"zero_optimization": {"stage": 2, "offload_optimizer": offload, "offload_param": offload}}
    settings = read_deepspeed_settings(write(table))
    config = load_config("", {}, settings)
    zero = engine_config(recipe_of(config, settings), BatchPlan(64, 16, (1, 1)))["zero_optimization"]
    assert zero == {"stage": 2, "offload_optimizer": offload}
    assert "offload_param (" in settings.ignored_line(2)


def test_offloaded_gradients_of_stage_2_have_one_bucket(write):
    offload = {"device": "cpu"}
    table = {"zero_optimization": {"stage": 2, "offload_optimizer": offload, "reduce_bucket_size": 100}}
    settings = read_deepspeed_settings(write(table))
    config = load_config("", {}, settings)
    zero = engine_config(recipe_of(config, settings), BatchPlan(64, 16, (1, 1)), 5_000)["zero_optimization"]
    assert zero["reduce_bucket_size"] == 5_000


def test_deepspeed_prints_only_where_a_user_asks_for_its_figures(write):
    plan = BatchPlan(64, 16, (1,))
    config = load_config("", {"log_interval": "7"})
    quiet = engine_config(recipe_of(config, DeepSpeedSettings()), plan)
    asked = engine_config(
        recipe_of(config, read_deepspeed_settings(write({"wall_clock_breakdown": True}))), plan
    )
    assert (quiet["steps_per_print"], asked["steps_per_print"]) == (NEVER, 7)
    assert asked["wall_clock_breakdown"] is True


@pytest.mark.parametrize(("stage", "overlap"), [(0, False), (1, False), (2, True), (3, True)])
def test_communication_overlaps_only_where_deepspeed_allows_it(stage, overlap):
    config = load_config("", {"zero_stage": str(stage)})
    settings = DeepSpeedSettings(zero_options={"overlap_comm": True})
    table = engine_config(recipe_of(config, settings), BatchPlan(64, 16, (1, 1)))
    assert table["zero_optimization"]["overlap_comm"] == overlap


@pytest.mark.parametrize(
    ("options", "gets"),
    [({}, 1), ({"overlap_comm": False}, 1), ({"overlap_comm": True}, 3), ({"max_reuse_distance": 9}, 3)],
)
def test_at_stage_3_deepspeed_gets_stage_1_where_it_might_have_all_weights_whole(options, gets):
    settings = DeepSpeedSettings(zero_options={"stage3_prefetch_bucket_size": 7, **options})
    recipe = recipe_of(load_config("", {"zero_stage": "3"}), settings)
    table = engine_config(recipe, BatchPlan(64, 16, (1, 1)))
    assert (table["zero_optimization"]["stage"], deepspeed_stage(recipe)) == (gets, gets)
    assert table["gradient_clipping"] == (0.0 if gets == 1 else recipe.optimizer.clip_gradients)
    check_options(recipe, 1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"overlap": True}, "overlap"),
        ({"reduce_scatter": "x"}, "reduce_scatter"),
        ({"reduce_bucket_size": 0}, "reduce_bucket_size"),
        ({"allgather_bucket_size": -1}, "allgather_bucket_size"),
        ({"offload_optimizer": {"device": "cpu", "pin": 1}}, "offload_optimizer.pin"),
    ],
)
def test_what_deepspeed_refuses_is_one_line_that_names_it(write, options, named):
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 1, **options}}))
    recipe = recipe_of(load_config("", {}, settings), settings)
    with pytest.raises(ConfigError, match=rf"ds\.json.*{named}") as caught:
        check_options(recipe, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["zero_optimization.reduce_bucket_size=-1", 'zero_optimization={"x": -1}'])
def test_what_deepspeed_refuses_names_the_flag_that_gave_it(write, given):
    settings = read_deepspeed_settings(write({"zero_optimization": {"x": True}}), [given])
    recipe = recipe_of(load_config("", {}, settings), settings)
    with pytest.raises(
        ConfigError, match=r"^--deepspeed-set: zero_optimization\.\w+ = -1: DeepSpeed refuses"
    ):
        check_options(recipe, 1)


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
    "stage3_gather_16bit_weights_on_model_save": True,
    "elastic_checkpoint": True,
    "load_from_fp32_weights": False,
    "log_trace_cache_warnings": True,
    "save_muon_momentum_buffer_in_memory": True,
    "offload_optimizer": {"device": "cpu", "pin_memory": False},
    "offload_param": {"device": "cpu", "pin_memory": False},
}


@pytest.mark.slow
def test_with_every_option_that_is_let_through_a_checkpoint_is_that_of_a_plain_job(
    tmp_path, random_store, write
):
    """Real jobs of two ranks; the optimizer state tells whether each parameter still has its own."""
    run_job(tmp_path / "plain", random_store, 2, "--steps", "3")
    expected = checkpoint_of(tmp_path / "plain")
    top = {"communication_data_type": "fp32", "prescale_gradients": True, "memory_breakdown": False}
    for stage in (1, 2, 3):
        path = write({**top, "zero_optimization": {**UNUSUAL, "stage": stage}})
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


OF_A_JOB = ("--config", "chess_cpu", "--blocks", "2", "--filters", "16", "--se-ratio", "4", "--steps", "20")
OF_A_JOB += ("--validation-interval", "0", "--no-tensorboard", "--run-name", "job")
ADAM = {"lr": 0.01, "weight_decay": 0.05}
WARMUP = {"warmup_max_lr": 0.02, "warmup_num_steps": 5, "total_num_steps": "auto"}
COSINE = {"warmup_num_steps": 4, "cos_min_ratio": 0.01, "total_num_steps": "auto"}
# What ours are by default.
MUON = {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
PAIRS = {
    "adam": (
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 16,
            "gradient_accumulation_steps": 2,
            "optimizer": {"type": "Adam", "params": {**ADAM, "adam_w_mode": False}},
            "scheduler": {"type": "WarmupDecayLR", "params": WARMUP},
            "zero_optimization": {"stage": 1},
        },
        "--batch-size 64 --micro-batch-size 16 --optimizer adam --lr 0.02 "
        "--weight-decay 0.05 --lr-schedule warmup_decay_lr --warmup-steps 5 --zero-stage 1 --precision fp32",
    ),
    "muon": (
        {
            "train_micro_batch_size_per_gpu": 16,
            "gradient_accumulation_steps": 2,
            "optimizer": {"type": "Muon", "params": {"lr": 0.02, "adam_lr": 0.003, **MUON}},
            "zero_optimization": {"stage": 2},
        },
        "--batch-size 64 --micro-batch-size 16 --optimizer muon --lr 0.003 "
        "--weight-decay 0.01 --zero-stage 2 --precision fp32",
    ),
    "sgd": (
        {
            "train_micro_batch_size_per_gpu": 16,
            "gradient_accumulation_steps": 2,
            "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "nesterov": True}},
            "scheduler": {"type": "WarmupCosineLR", "params": COSINE},
            "bf16": {"enabled": True},
            "prescale_gradients": True,
            "communication_data_type": "fp32",
        },
        "--batch-size 64 --micro-batch-size 16 --optimizer sgd --lr 0.05 "
        "--weight-decay 0 --lr-schedule warmup_cosine_lr --warmup-steps 4 --precision bf16",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_weights_after_20_steps_are_those_of_the_same_settings_by_flags(tmp_path, random_store, write, name):
    table, flags = PAIRS[name]
    data = ("--data", str(random_store))
    by_file = run_plain(tmp_path / "file", *data, "--deepspeed", "--deepspeed_config", str(write(table)))
    run_plain(tmp_path / "flags", *data, *flags.split())
    assert "optimizer" in by_file and "4 micro-batches of 16" in by_file
    found, expected = (checkpoint_of(tmp_path / kind, 20) for kind in ("file", "flags"))
    for kind in ("weights", "optimizer"):
        ours, theirs = getattr(found, kind), getattr(expected, kind)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.slow
def test_over_other_ranks_batch_and_micro_batch_stand_and_accumulation_gives_way(
    tmp_path, random_store, write
):
    table = {"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 2}
    given = ("--data", str(random_store), "--deepspeed_config", str(write(table)), "--steps")
    first = run_plain(tmp_path / "job", *given, "2", ranks=1)
    assert "= 2 micro-batches of 16" in first
    second = run_plain(tmp_path / "job", *given, "4", ranks=2)
    assert "steps = 2 gives way" in second
    assert "= 2 micro-batches of 16" in second and "changed: batch" not in second


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("alphazero.training.engine.training_module") is None,
    reason="DeepSpeed's timers need a module that returns a plain loss",
)
def test_deepspeeds_own_times_and_profile_are_printed_and_change_nothing(tmp_path, random_store, write):
    profile = {"enabled": True, "profile_step": 2, "output_file": str(tmp_path / "profile.txt")}
    table = {"wall_clock_breakdown": True, "flops_profiler": profile, "steps_per_print": 5}
    given = ("--data", str(random_store), "--batch-size", "32", "--precision", "fp32")
    said = run_plain(tmp_path / "timed", *given, "--deepspeed_config", str(write(table)), ranks=1)
    run_plain(tmp_path / "plain", *given, ranks=1)
    assert "fwd_microstep" in said and "params per GPU" in (tmp_path / "profile.txt").read_text()
    timed, plain = (checkpoint_of(tmp_path / name, 20).weights for name in ("timed", "plain"))
    assert all(torch.equal(timed[name], plain[name]) for name in plain)


def run_plain(directory, *arguments, ranks=2):
    """A job whose settings are these alone; what it printed."""
    directory.mkdir(exist_ok=True)
    argv = command(ranks, [*OF_A_JOB, *arguments])
    done = subprocess.run(
        argv, cwd=directory, env=environment(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr + done.stdout


def checkpoint_of(directory, step=3):
    return checkpoint.load(directory / "runs" / "job" / "checkpoints" / f"step-{step:08}")
