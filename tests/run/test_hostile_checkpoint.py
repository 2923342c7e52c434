"""Checkpoints with numbers that are none, damaged or hostile files: one line that names file and tensor."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero.base.errors import CheckpointError
from alphazero.network.weights.checkpoint import load, save
from alphazero.run import checkpoint_files
from tests.support.jobs.saving import checkpoint_of
from tests.support.network.hostile_files import memory_bounded

NAMES = ["weights.safetensors", "optimizer.safetensors", "state.json"]


def refusal(path: Path) -> str:
    """The one line with which a checkpoint is refused, in bounded memory."""
    with memory_bounded(), pytest.raises(CheckpointError) as caught:
        load(path)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < len(str(path)) + 400
    return text


@pytest.mark.parametrize("part", ["weights", "optimizer", "ema", "champion"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_named_with_its_file(part: str, value: float, tmp_path: Path):
    good = checkpoint_of(3)
    tensors = {"good": torch.zeros(2), "bad": torch.tensor([0.0, value])}
    path = save(tmp_path, replace(good, **{part: tensors}))
    assert f"{part}.safetensors: bad: 1 of 2" in refusal(path)


def test_a_tensor_of_another_type_is_named(tmp_path: Path):
    path = save(tmp_path, replace(checkpoint_of(3), weights={"half": torch.zeros(2).half()}))
    assert "half: torch.float16" in refusal(path)


def test_a_header_of_any_size_is_refused(tmp_path: Path):
    path = save(tmp_path, checkpoint_of(3))
    (path / NAMES[0]).write_bytes(struct.pack("<Q", 90_000_000) + b"{" * 90_000_000)
    checkpoint_files.write_manifest(path, NAMES)
    assert "header of 90000000 bytes" in refusal(path)


STATES: dict[str, tuple[str, Any]] = {
    "step 'a': expected int": ("step", "a"),
    "step True: expected int": ("step", True),
    "config [1]: expected dict": ("config", [1]),
    "elapsed_s 'x": ("elapsed_s", "x" * 1_000_000),
    "figures None: expected dict": ("figures", None),
    "figures a 'b': expected float": ("figures", {"a": "b"}),
    "figures a 1000000": ("figures", {"a": 10**400}),
    "elapsed_s 1000000": ("elapsed_s", 10**400),
    "{'step': 3, ": ("x" * 100_000, 1),
}


@pytest.mark.parametrize("words", STATES)
def test_a_state_of_another_type_is_named(words: str, tmp_path: Path):
    path = save(tmp_path, checkpoint_of(3))
    name, value = STATES[words]
    state = checkpoint_files.read_json(path / "state.json")
    checkpoint_files.write_json(path / "state.json", {**state, name: value})
    checkpoint_files.write_manifest(path, NAMES)
    assert f"state.json: {words}" in refusal(path)


@pytest.mark.parametrize(
    "change",
    [
        {"magic": "x" * 100_000},
        {"version": "x" * 100_000},
        {"files": "x" * 100_000},
        {"files": {"y" * 10**5: 1}},
    ],
    ids=lambda change: str(change)[:20],
)
def test_long_values_of_a_manifest_are_shown_in_part(change: dict[str, Any], tmp_path: Path):
    path = save(tmp_path, checkpoint_of(3))
    manifest = checkpoint_files.read_json(path / "manifest.json")
    if isinstance(change.get("files"), dict):
        change = {"files": {**manifest["files"], **change["files"]}}
    checkpoint_files.write_json(path / "manifest.json", {**manifest, **change})
    assert "manifest.json: " in refusal(path)


@pytest.mark.parametrize("content", [b"[" * 200_000, b"1" * 6000, b"[" * (17 << 20), b"\xff\xfe"])
def test_json_that_nests_deeply_or_is_huge_is_one_line(content: bytes, tmp_path: Path):
    path = save(tmp_path, checkpoint_of(3))
    (path / "state.json").write_bytes(content)
    checkpoint_files.write_manifest(path, NAMES)
    assert "state.json: " in refusal(path)
    (path / "manifest.json").write_bytes(content)
    assert "manifest.json: " in refusal(path)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([*NAMES, "manifest.json"]),
    hits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.one_of(st.none(), st.floats(0, 1)),
)
def test_a_damaged_checkpoint_loads_or_is_a_checkpoint_error(
    name: str,
    hits: list[tuple[float, int]],
    cut: float | None,
    tmp_path_factory: pytest.TempPathFactory,
):
    path = save(tmp_path_factory.mktemp("damaged"), checkpoint_of(3))
    data = bytearray((path / name).read_bytes())
    for place, byte in hits:
        data[int(place * (len(data) - 1))] = byte
    if cut is not None:
        del data[int(cut * len(data)) :]
    (path / name).write_bytes(data)
    if name != "manifest.json":
        checkpoint_files.write_manifest(path, NAMES)
    with memory_bounded():
        try:
            load(path)
        except CheckpointError as error:
            assert "\n" not in str(error)
