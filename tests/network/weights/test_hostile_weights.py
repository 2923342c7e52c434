"""Weights files made to do harm: refused in one line and in bounded memory; damaged ones as well."""

import gzip
import json
import os
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero.base.errors import WeightsError
from alphazero.cli.main import main
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig
from tests.support.network.hostile_files import (
    Allocates,
    a_huge_view,
    memory_bounded,
    rewritten,
    with_shared_members,
)
from tests.support.network.lc0_files import layer, message, net_file, network_format, weights_fields

CPU = torch.device("cpu")
CONFIG = NetworkConfig(game="connect4", blocks=1, filters=8, value_channels=2, value_hidden=4)
CHESS = NetworkConfig(blocks=1, filters=8, se_ratio=4, value_channels=2, value_hidden=4)
VARIANCE = "input.norm.running_var"
BIAS = "value.output.bias"


def network(config: NetworkConfig = CONFIG) -> AlphaZeroNet:
    return AlphaZeroNet(config, get_spec(config.game), torch.Generator().manual_seed(9))


def refusal(path: Path) -> str:
    """The one line with which a file is refused, in bounded memory."""
    with memory_bounded(), pytest.raises(WeightsError) as caught:
        open_network(path, CPU)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < len(str(path)) + 400
    return text


@pytest.fixture
def good(tmp_path: Path) -> Path:
    save_weights(tmp_path / "good.pt", network(), {"step": 1})
    return tmp_path / "good.pt"


def changed(good: Path, name: str, tensor: object) -> Path:
    """A .pt with one other tensor."""
    content = torch.load(good, weights_only=True)
    content["state_dict"][name] = tensor
    torch.save(content, good.with_name("bad.pt"))
    return good.with_name("bad.pt")


TENSORS: dict[str, tuple[str, object]] = {
    "expected all of them, contiguous": (BIAS, a_huge_view()),
    "3 numbers of a storage of 6: expected all": (BIAS, torch.zeros(3, 2)[:, 0]),
    "3 numbers of a storage of 1000: expected all": (BIAS, torch.zeros(1000)[:3]),
    "value.output.bias: 1 of 3 numbers are not finite": (BIAS, torch.tensor([0.0, float("nan"), 0.0])),
    "value.output.bias: 2 of 3 numbers are not finite": (
        BIAS,
        torch.tensor([1, float("inf"), -float("inf")]),
    ),
    "input.norm.running_var: -1.0: expected variances above 0": (VARIANCE, torch.linspace(-1, 1, 8)),
    "input.norm.running_var: 0.0: expected variances above 0": (VARIANCE, torch.zeros(8)),
    "value.output.bias: torch.float64, expected torch.float32": (BIAS, torch.zeros(3, dtype=torch.float64)),
    "value.output.bias: torch.bool, expected torch.float32": (BIAS, torch.zeros(3, dtype=torch.bool)),
    "holds Python objects": (BIAS, torch.zeros(3).to_sparse()),
    "holds Python objects, not": (BIAS, Allocates()),
    "holds Python objects, not plain": (BIAS, torch.nn.Parameter(torch.zeros(3))),
}


@pytest.mark.parametrize("words", TENSORS)
def test_a_tensor_that_is_not_plain_and_finite_is_named(words: str, good: Path):
    assert words in refusal(changed(good, *TENSORS[words]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_safetensors_file_is_checked_alike(value: float, tmp_path: Path):
    net = network()
    net.input.norm.running_var[3] = value
    save_weights(tmp_path / "bad.safetensors", net, {})
    assert VARIANCE in refusal(tmp_path / "bad.safetensors")


def test_a_shape_of_very_many_dimensions_is_one_short_line(tmp_path: Path):
    net = network().state_dict() | {BIAS: torch.zeros(3).view(3, *[1] * 100_000)}
    header = {"magic": "alphazero-weights", "version": 1, "network": vars(CONFIG)}
    path = tmp_path / "bad.safetensors"
    path.write_bytes(safetensors.torch.save(net, {"alphazero": json.dumps(header)}))
    assert "bias: 100001 dimensions" in refusal(path)


def test_no_command_plays_with_numbers_that_are_none(good: Path, capsys: pytest.CaptureFixture[str]):
    bad = changed(good, BIAS, torch.full((3,), float("nan")))
    assert main(["match", "--weights", str(bad), "--against", "random", "--games", "2"]) == 2
    said = capsys.readouterr().err
    assert "bias: 3 of 3 numbers" in said
    assert "Traceback" not in said


def test_a_compressed_archive_is_refused(good: Path):
    bomb = changed(good, BIAS, torch.zeros(50_000_000))
    rewritten(bomb, good, compression=zipfile.ZIP_DEFLATED)
    assert good.stat().st_size < 1_000_000
    assert "compressed" in refusal(good)


def test_members_that_share_their_bytes_are_refused(good: Path):
    bad = good.with_name("bad.pt")
    with_shared_members(good, bad, 1000)
    assert "share their bytes" in refusal(bad)


def test_an_archive_of_very_many_members_is_refused(good: Path):
    bad = good.with_name("bad.pt")
    with_shared_members(good, bad, 50_000)
    assert "share their bytes" in refusal(bad)


def test_a_storage_shorter_than_announced_is_refused(good: Path):
    # torch would read what lies behind it in memory.
    bad = good.with_name("bad.pt")
    rewritten(good, bad, lambda name, data: data[:4] if name.endswith("data/0") else data)
    assert "288 of torch.float32" in refusal(bad)


def test_a_storage_without_its_member_is_refused(good: Path):
    bad = good.with_name("bad.pt")
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(bad, "w") as new:
        for member in old.infolist():
            if not member.filename.endswith("data/0"):
                new.writestr(member.filename, old.read(member))
    assert "data/0" in refusal(bad)


def test_a_pickle_of_a_million_lists_is_refused(good: Path):
    bad = good.with_name("bad.pt")
    lists = b"\x80\x02(" + b"]" * 1_000_000 + b"l."
    rewritten(good, bad, lambda name, data: lists if name.endswith("data.pkl") else data)
    assert "damaged" in refusal(bad)
    huge = b"\x80\x02(" + b"]" * 5_000_000 + b"l."
    rewritten(good, bad, lambda name, data: huge if name.endswith("data.pkl") else data)
    assert "a data.pkl" in refusal(bad)


CONFIGS: dict[str, dict[str, Any]] = {
    "network.blocks: 1000000000: expected a whole number from": {"blocks": 10**9},
    "network.filters: 10000000000: expected a whole number from": {"filters": 10**10},
    "network.value_hidden: 1000000000000: expected a whole number from": {"value_hidden": 10**12},
    "network.moves_left_channels: 5000: expected a whole number from": {"moves_left_channels": 5000},
    "network.se_ratio: -1: expected a whole number": {"se_ratio": -1},
    "network.blocks a tensor of shape [2]: expected int": {"blocks": torch.zeros(2)},
    "network.game 'xxx": {"game": "x" * 1_000_000},
    "no such setting": {"a\nb" * 1000: 1},
}


@pytest.mark.parametrize("words", CONFIGS)
def test_the_shape_of_the_network_keeps_to_the_limits_of_the_settings(words: str, good: Path):
    content = torch.load(good, weights_only=True)
    content["network"].update(CONFIGS[words])
    torch.save(content, good)
    assert words in refusal(good)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"step": torch.zeros(2)}},
        {"metadata": {"a": [1]}},
        {"version": torch.ones(2)},
        {"magic": torch.ones(2)},
        {"state_dict": {"line\nbreak": torch.zeros(1)}},
    ],
)
def test_values_of_any_type_are_one_line(change: dict[str, Any], good: Path):
    torch.save({**torch.load(good, weights_only=True), **change}, good)
    refusal(good)


def test_a_safetensors_header_is_bounded_and_may_not_nest_deeply(tmp_path: Path):
    path = tmp_path / "bad.safetensors"
    header = b'{"__metadata__":{"alphazero":"' + b"[" * 200_000 + b'"}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    refusal(path)
    header = b'{"__metadata__":{"a":"' + b"x" * 5_000_000 + b'"}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "a header of 5000" in refusal(path)


def test_what_the_library_says_of_a_header_is_cut(tmp_path: Path):
    path = tmp_path / "bad.safetensors"
    header = b'{"a":{"dtype":"F' + b"x" * 10_000 + b'","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert "unknown variant" in refusal(path)


def test_a_pickle_that_is_cut_short_or_has_other_steps_is_refused(good: Path):
    with zipfile.ZipFile(good) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        content = archive.read(name)
    path = good.with_name("changed.pt")
    steps = [content[:place] for place in range(0, len(content) - 1, 97)]
    # Of an empty stack, of text in place of a state, a length without its text, 600 digits.
    steps += [
        b"\x80\x02R.",
        b"\x80\x02u.",
        b"\x80\x02}X\x04",
        b"\x80\x02X\x01\0\0\0ab.",
        b"b.",
        b"\x80\x02}}b.",
    ]
    steps += [b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".", b"\x80\x02\x8b\0\x10\0\0" + b"\x7f" * 4096 + b"Q."]
    for step in steps:
        rewritten(good, path, lambda member, data, step=step: step if member == name else data)
        refusal(path)


def test_an_archive_with_a_password_is_refused(good: Path):
    content = bytearray(good.read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 8] |= 1  # the first entry of the directory: data.pkl
    good.write_bytes(content)
    assert "encrypted" in refusal(good)


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.pt")
    assert "no regular file" in refusal(tmp_path / "pipe.pt")


def test_a_gzip_bomb_ends_early(tmp_path: Path):
    path = tmp_path / "bomb.pb.gz"
    path.write_bytes(gzip.compress(b"\x0d\xc0\x01\x00\x00" + bytes(1 << 28)))
    assert "unpacked" in refusal(path)


def test_lc0_layers_with_an_infinite_end_and_variances_of_zero_are_refused(tmp_path: Path):
    fields = weights_fields(network(CHESS))
    path = tmp_path / "bad.pb"
    for value in (float("nan"), float("inf")):
        whole = message((1, 0.0), (2, value), (3, bytes(6)))
        path.write_bytes(net_file([(key, whole if key == 10 else old) for key, old in fields]))
        assert "ip2_val_b" in refusal(path) or "value.output" in refusal(path)
    block = message(
        (1, layer(torch.rand(8, 112, 3, 3))), (3, layer(torch.rand(8))), (4, layer(torch.zeros(8)))
    )
    path.write_bytes(net_file([(key, block if key == 1 else old) for key, old in fields]))
    assert "expected variances above 0" in refusal(path)


def test_lc0_networks_keep_to_the_limits_of_the_settings(tmp_path: Path):
    fields = weights_fields(network(CHESS))
    wide = message((1, message((3, bytes(2 * 9 * 112 * 4097)))))
    path = tmp_path / "bad.pb"
    path.write_bytes(net_file([(key, wide if key == 1 else old) for key, old in fields]))
    assert "squeeze units: 4097" in refusal(path)


def small_files() -> dict[str, bytes]:
    """A small good file of each format."""
    net = network()
    content = {"magic": "alphazero-weights", "version": 1, "network": vars(CONFIG), "metadata": {}}
    header = {"alphazero": json.dumps(content)}
    return {
        "lc0": net_file(weights_fields(network(CHESS))),
        "lc0 attention": net_file(
            weights_fields(network(replace(CHESS, policy_head="attention"))),
            format_bytes=network_format(policy=3),
        ),
        "lc0 gzip": gzip.compress(net_file(weights_fields(network(CHESS))), compresslevel=1),
        "safetensors": safetensors.torch.save(net.state_dict(), header),
    }


FILES = small_files()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([*FILES, "pt"]),
    hits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255), st.booleans()), min_size=1, max_size=8),
    cut=st.one_of(st.none(), st.floats(0, 1)),
)
def test_a_damaged_file_loads_or_is_a_weights_error(
    kind: str,
    hits: list[tuple[float, int, bool]],
    cut: float | None,
    tmp_path_factory: pytest.TempPathFactory,
):
    path = tmp_path_factory.getbasetemp() / "damaged-weights"
    if kind == "pt":
        save_weights(path.with_suffix(".pt"), network(), {"step": 1})
        data = bytearray(path.with_suffix(".pt").read_bytes())
    else:
        data = bytearray(FILES[kind])
    ends = 4000  # headers, pickles and directories lie at the ends
    for place, byte, at_an_end in hits:
        span = min(ends, len(data)) if at_an_end else len(data)
        index = int(place * (span - 1))
        data[index if byte % 2 else -1 - index] = byte
    if cut is not None:
        del data[int(cut * len(data)) :]
    path.write_bytes(data)
    with memory_bounded():
        try:
            open_network(path, CPU)
        except WeightsError as error:
            assert "\n" not in str(error)
