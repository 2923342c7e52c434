"""Batch = micro-batch x accumulation x ranks: the numbers of DeepSpeed's users, by whoever gave them."""

import json

import pytest

from alphazero.base.errors import ConfigError
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.load import load_config
from alphazero.training.ranks.batch import BatchSizes, batch_over, fix_batch, implied_ranks

B, M, A = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


@pytest.fixture
def given(tmp_path):
    def make(table, **flags):
        path = tmp_path / "ds.json"
        path.write_text(json.dumps(table))
        settings = read_deepspeed_settings(path)
        return load_config("chess_cpu", flags, settings)

    return make


def fixed(given, table, num_ranks, saved=None, **flags):
    sizes, lines = fix_batch(given(table, **flags), num_ranks, saved)
    return sizes.batch_size, sizes.micro_batch_size, lines


@pytest.mark.parametrize(
    ("table", "ranks", "batch", "micro"),
    [
        ({}, 2, 256, 0),  # the preset's
        ({B: 64}, 2, 64, 0),
        ({B: 64, M: 8}, 2, 64, 8),
        ({B: 64, A: 4}, 2, 64, 8),
        ({M: 8, A: 4}, 2, 64, 8),
        ({M: 8}, 2, 16, 8),  # DeepSpeed takes one pass
        ({A: 4}, 2, 256, 32),
        ({B: 64, M: 8, A: 4}, 2, 64, 8),
        ({B: 32, M: 32}, 2, 32, 32),  # one rank idles; the step is the same
    ],
)
def test_what_follows_is_what_deepspeed_reckons(given, table, ranks, batch, micro):
    assert fixed(given, table, ranks) == (batch, micro, ())


@pytest.mark.parametrize(("ranks", "batch"), [(1, 1024), (2, 1024), (4, 2048), (8, 4096), (64, 4096)])
def test_few_ranks_train_on_given_games_with_smaller_batches_than_a_preset_names(ranks, batch):
    def of(**flags):
        return fix_batch(load_config("chess_20x256", flags), ranks)[0].batch_size

    assert of() == batch
    assert of(mode="selfplay") == of(batch_size=4096) == 4096
    assert batch_over(load_config("chess_20x256", {}), ranks) == batch


@pytest.mark.parametrize(
    ("table", "ranks", "message"),
    [
        (
            {B: 64, M: 8, A: 4},
            4,
            r"ds\.json:1: train_batch_size = 64: expected train_micro_batch_size_per_gpu x "
            r"gradient_accumulation_steps x ranks = 8 x 4 x 4 = 128, or 2 ranks \(--gpus 2\)$",
        ),
        ({B: 60, M: 8, A: 4}, 4, r"8 x 4 x 4 = 128$"),
        ({B: 64, M: 7}, 2, r"ds\.json:1: train_micro_batch_size_per_gpu = 7: expected a divisor of"),
        (
            {B: 64, A: 5},
            2,
            r"gradient_accumulation_steps = 5: expected train_batch_size = 64 to be a multiple of 10",
        ),
        ({B: 1}, 2, r"ds\.json:1: train_batch_size = 1: expected at least 2, one position for each rank$"),
        ({B: 4, A: 5}, 2, r"gradient_accumulation_steps = 5: expected train_batch_size = 4 to be a multiple"),
    ],
)
def test_numbers_that_contradict_each_other_are_an_error_in_their_users_terms(given, table, ranks, message):
    with pytest.raises(ConfigError, match=message):
        fixed(given, table, ranks)


def test_a_flag_beats_the_file_whose_accumulation_gives_way_first(given):
    batch, micro, (line,) = fixed(given, {B: 64, M: 8, A: 4}, 2, batch_size="128")
    assert (batch, micro) == (128, 8)
    assert line.startswith("gradient_accumulation_steps = 4 ") and "--batch-size 128" in line
    assert fixed(given, {M: 8}, 2, batch_size="64") == (64, 8, ())
    assert fixed(given, {A: 4}, 2, micro_batch_size="16")[:2] == (128, 16)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({M: 8, A: 4}, "over 4 ranks that is 2 per rank"),
        ({B: 64, M: 8, A: 4}, "over 4 ranks that is 2 per rank"),
        ({B: 64, A: 4}, "over 4 ranks that is 2 per rank"),
        ({M: 8}, "gradient_accumulation_steps = 1 gives way"),
        ({B: 64, M: 8}, ""),
    ],
)
def test_a_run_that_goes_on_over_other_ranks_keeps_batch_and_micro_batch(given, table, told):
    batch, micro, lines = fixed(given, table, 4, BatchSizes(64, 8))
    assert (batch, micro) == (64, 8)
    assert [told in line for line in lines] == ([True] if told else [])


def test_a_run_that_goes_on_says_nothing_where_nothing_changed(given):
    assert fixed(given, {M: 8, A: 4}, 2, BatchSizes(64, 8)) == (64, 8, ())
    assert fixed(given, {}, 2, BatchSizes(64, 8)) == (256, 0, ())  # refused, or chosen, elsewhere


def test_a_micro_batch_by_flag_beats_that_of_the_checkpoint(given):
    assert fixed(given, {}, 2, BatchSizes(256, 8), micro_batch_size="4") == (256, 4, ())


def test_three_numbers_leave_one_number_of_ranks(given):
    assert implied_ranks(given({B: 64, M: 8, A: 4})) == 2
    assert implied_ranks(given({B: 65, M: 8, A: 4})) == 0
    assert implied_ranks(given({B: 64, M: 8})) == 0
    assert implied_ranks(given({})) == 0


def test_a_batch_that_follows_grows_with_the_ranks(given):
    assert batch_over(given({M: 8, A: 4}), 3) == 96
    assert batch_over(given({B: 64}), 3) == 64
