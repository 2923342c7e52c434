"""What ranks tell each other: three real ranks over gloo, none of which may pickle."""

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import alphazero
from alphazero.base.errors import ERRORS_BY_KIND
from alphazero.training.ranks.exchange import Exchange, checksum, fault_of, fault_record
from tests.support.jobs import exchanging
from tests.support.jobs.exchanging import PLAIN, WORLD_SIZE, checkpoint_tensors, digests, some_tensors
from tests.support.jobs.jobs import environment

Results = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results() -> Results:
    """What every rank got in every scenario."""
    argv = [sys.executable, exchanging.__file__]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: Results = json.loads(done.stdout)
    return answer


def all_got(results: Results, name: str) -> Any:
    """What all ranks got alike."""
    first, *others = results[name]
    assert others == [first] * (WORLD_SIZE - 1)
    return first.get("got", first)


def test_a_device_without_memory_leaves_a_checksum_to_the_cpu(monkeypatch):
    tensor, tries, real = torch.arange(1000.0), [], torch.arange
    expected = checksum(tensor)

    def refused_once(*arguments, **named):
        tries.append(arguments)
        if len(tries) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")
        return real(*arguments, **named)

    monkeypatch.setattr(torch, "arange", refused_once)
    assert torch.equal(checksum(tensor), expected) and len(tries) == 2


def test_records_arrive_as_json_has_them(results):
    own = [{**PLAIN, "rank": rank} for rank in range(WORLD_SIZE)]
    assert all_got(results, "records") == [own, own[0], own[2]]


def test_bytes_of_any_length_arrive(results):
    assert all_got(results, "contents") == [[[], [1], [2, 2]], [[], [], []], 5_000_000, "arrow"]


def test_tensors_of_every_type_arrive_to_the_bit(results):
    assert all_got(results, "tensors") == digests(some_tensors())


def test_rank_0_acts_for_all(results):
    assert [result["got"] for result in results["main_acts"]] == [
        ["found", [0]],
        ["found", []],
        ["found", []],
    ]


def test_what_each_rank_does_gives_it_its_own_result(results):
    assert [result["got"] for result in results["nobody_fails"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "error", "text", "ranks"),
    [
        ("main_fails", "ConfigError", "no such run", []),
        ("last_fails", "CheckpointError", "disk full (on rank 2)", [2]),
        ("two_fail", "ConfigError", "first", []),
        ("fault_with_ranks", "DivergedRanksError", "unlike (on rank 1)", [2]),
    ],
)
def test_a_fault_of_one_rank_is_raised_on_all_with_its_kind(results, name, error, text, ranks):
    assert all_got(results, name) == {
        "error": error,
        "text": text,
        "ranks": ranks,
        "found_by_all_ranks": True,
    }


def test_unequal_weights_name_tensor_and_rank(results):
    found = all_got(results, "unequal")
    assert (found["error"], found["ranks"]) == ("DivergedRanksError", [1])
    assert found["text"].startswith("start: weight differs between ranks (rank 1)")
    assert found["found_by_all_ranks"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("negative_length", r"rank 1 .* -1 bytes"),
        ("absurd_length", r"rank 1 .* 4611686018427387904 bytes"),
        ("damaged_record", r"damaged: .*expected JSON"),
    ],
)
def test_a_message_that_cannot_be_ends_every_rank_with_a_line(results, name, message):
    for found in results[name]:
        assert found["error"] == "TrainingError"
        assert re.search(message, found["text"])


def test_a_checkpoint_that_one_host_has_reaches_all_whole(results):
    few = {"a": torch.arange(3.0)}
    parts = (checkpoint_tensors(), few, few, {"b": torch.ones(2)})
    assert all_got(results, "checkpoint_of_one_host") == [[digests(part) for part in parts], "lanes"]


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_every_error_crosses_as_json_with_kind_text_and_ranks(kind):
    error = ERRORS_BY_KIND[kind]("file:3: 'x': expected 1", ranks=[1, 4])
    arrived = fault_of(json.loads(json.dumps(fault_record(error))))
    assert type(arrived) is type(error)
    assert (str(arrived), arrived.ranks, arrived.found_by_all_ranks) == (str(error), (1, 4), True)


def test_no_module_sends_python_objects():
    """The *_object functions of torch.distributed pickle; nothing of ours names one."""
    package = Path(alphazero.__file__).parent
    pickling = re.compile(r"\b\w+_object(_list)?\(|\bimport pickle\b|\bpickle\.(loads?|dumps?)\b")
    named = {
        f"{path.relative_to(package)}: {found.group()}"
        for path in package.rglob("*.py")
        for found in pickling.finditer(path.read_text().replace("ctypes.py_object(", ""))
    }
    # Its reader of .pt files has the steps of torch.save alone, which execute nothing.
    assert named == {"network/weights/pt_file.py: import pickle"}


def test_a_rank_waits_in_a_message_for_as_long_as_another_may_be_busy(monkeypatch):
    asked: dict[str, Any] = {}
    monkeypatch.setattr(torch.distributed, "new_group", lambda **options: asked.update(options))
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    Exchange()
    assert asked == {"backend": "gloo", "timeout": timedelta(hours=2)}
