"""Pickles made to take time or memory: every reader of weights refuses them within seconds."""

import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from alphazero.base.errors import WeightsError
from alphazero.network.weights.pt_file import read_pt_content
from tests.support.network.hostile_pickles import (
    HOSTILE,
    as_pt,
    key_value,
    tensor,
)
from tests.support.paths import REPOSITORY

LIMIT_S = 60  # most of it goes to importing torch on a busy machine; a hostile key takes years
READ_ALL = """
import json, sys, time
from pathlib import Path
from alphazero.base.errors import WeightsError
from alphazero.network.weights.open_network import open_weights
from tests.support.network.hostile_files import memory_bounded
for path in sys.argv[1:]:
    begun = time.process_time()
    try:
        with memory_bounded(256 << 20):
            open_weights(path)
        found = "read"
    except WeightsError as error:
        found = str(error)
    print(json.dumps([Path(path).stem, found, time.process_time() - begun]), flush=True)
"""


def test_no_pickle_takes_more_time_or_memory_than_its_size_accounts_for(tmp_path: Path):
    paths = []
    for name, (pickled, _) in HOSTILE.items():
        as_pt(tmp_path / f"{name}.pt", pickled)
        paths.append(str(tmp_path / f"{name}.pt"))
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, *paths],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    found = {name: (said, cpu_s) for name, said, cpu_s in map(json.loads, done.stdout.splitlines())}
    for name, (_, words) in HOSTILE.items():
        said, cpu_s = found[name]
        assert words in said, (name, said)
        assert len(said) < 600
        assert "\n" not in said
        assert cpu_s < 10, (name, cpu_s)


def test_what_torch_saves_is_read(tmp_path: Path):
    state = OrderedDict(
        a=torch.rand(2, 3), b=torch.tensor(5), none=torch.zeros(0, 4), no=torch.tensor([True])
    )
    state["tied"] = state["a"]
    state._metadata = OrderedDict({"": {"version": 1}})  # type: ignore[attr-defined]
    content = {"state": state, 3: [1, 2.5, None, True, "x", -(10**12)], "nest": {"a": ((1, 2), [{}])}}
    torch.save(content, tmp_path / "x.pt")
    read = read_pt_content(tmp_path / "x.pt")
    assert isinstance(read, dict) and list(read) == list(content)
    tensors = read.pop("state")
    assert {key: value for key, value in content.items() if key != "state"} == read
    assert list(tensors) == list(state)
    assert all(torch.equal(tensors[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("size", "stride", "offset", "fits"),
    [
        ((2,), (1,), 0, True),
        ((2, 1), (1, 3), 0, True),
        ((2,), (1,), 1, False),
        ((2, 2), (1, 1), 0, False),
        ((1 << 62, 1 << 62), (1, 1), 0, False),
        ((1 << 40,), (0,), 1, False),
        ((1,), (1,), 2, False),
        ((-1,), (1,), 0, False),
        ((2,), (-1,), 1, False),
        ((1,), (1,), -1, False),
    ],
)
def test_a_tensor_keeps_to_its_storage(
    tmp_path: Path, size: tuple[int, ...], stride: tuple[int, ...], offset: int, fits: bool
):
    pickled = b"\x80\x02}" + key_value(b"X\x01\0\0\0a", tensor(size, stride, offset)) + b"."
    as_pt(tmp_path / "x.pt", pickled)
    if fits:
        assert isinstance(read_pt_content(tmp_path / "x.pt"), dict)
    else:
        with pytest.raises(WeightsError, match=r"damaged|contiguous"):
            read_pt_content(tmp_path / "x.pt")
