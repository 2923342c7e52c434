"""lc0 networks: the numbers lc0 gives, every part read, what cannot be represented refused by name."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from alphazero.base.errors import WeightsError
from alphazero.games.registry import get_spec, history_fill, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.lc0_weights import RULE50_PLANE, parse_lc0, read_lc0
from alphazero.network.weights.open_network import open_network
from alphazero.settings.sections import NetworkConfig
from tests.support.network.lc0_files import (
    layer,
    message,
    net_file,
    network_format,
    random_planes,
    weights_fields,
)

CPU = torch.device("cpu")
SMALL = NetworkConfig(blocks=2, filters=16, se_ratio=4, value_channels=4, value_hidden=8)
ATTENTION = replace(SMALL, policy_head="attention")


def random_network(config: NetworkConfig) -> AlphaZeroNet:
    """A network none of whose tensors has its initial value."""
    generator = torch.Generator().manual_seed(7)
    network = AlphaZeroNet(config, get_spec("chess"), generator)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                tensor.add_(torch.rand(tensor.shape, generator=generator) * (0.5 if "norm" in name else 0.1))
    return network.eval()


@pytest.mark.parametrize("name", ["maia-1100", "maia-1500"])
def test_maia_says_what_lc0_says_of_its_sixty_reference_positions(shared_data: Path, name: str):
    network, _ = open_network(shared_data / "lc0" / f"{name}.pb.gz", CPU)
    evaluator = NetworkEvaluator(network, CPU, "fp32", batch_size=60)
    references = json.loads((shared_data / "lc0" / f"{name}.reference.json").read_text())
    assert len(references) == 60
    packed, indices = [], []
    for reference in references:
        line = make_line("chess", reference["start_fen"])
        for move in reference["moves"]:
            line.push_text(move)
        assert str(line).split()[0] == reference["fen"].split()[0]
        packed.append(line.packed(history_fill("no")))
        indices.append(line.legal_indices())
    offset = np.cumsum([0, *map(len, indices)], dtype=np.int32)
    result = evaluator(np.stack(packed), np.concatenate(indices), offset)
    for position, reference in enumerate(references):
        logits = result.legal_logits[offset[position] : offset[position + 1]].astype(np.float64)
        percent = 100 * np.exp(logits) / np.exp(logits).sum()
        ours = dict(zip(indices[position].tolist(), percent, strict=True))
        assert set(ours) == set(reference["policy_index"].values())
        for move, index in reference["policy_index"].items():
            assert ours[index] == pytest.approx(reference["policy_percent"][move], abs=0.1)
        win, _, loss = result.wdl[position]
        assert win - loss == pytest.approx(reference["value"], abs=0.0002)


@pytest.mark.parametrize("bias_style", [False, True])
@pytest.mark.parametrize("se_ratio", [0, 4])
@pytest.mark.parametrize("moves_left", [False, True])
@pytest.mark.parametrize("policy_head", ["convolution", "attention"])
def test_a_network_written_in_lc0s_format_comes_back(
    bias_style: bool, se_ratio: int, moves_left: bool, policy_head: str
):
    config = NetworkConfig(
        blocks=2,
        filters=16,
        se_ratio=se_ratio,
        policy_head=policy_head,
        value_channels=4,
        value_hidden=8,
        moves_left=moves_left,
        moves_left_channels=3 if moves_left else 8,
        moves_left_hidden=5 if moves_left else 128,
    )
    network = random_network(config)
    if bias_style:
        for name, tensor in network.state_dict().items():
            if name.endswith("norm.weight") or name.endswith("norm.bias"):
                tensor.fill_(1.0 if name.endswith("weight") else 0.0)
    layout = network_format(
        network=4 if se_ratio else 3,
        policy=3 if policy_head == "attention" else 2,
        moves_left=int(moves_left),
    )
    read = parse_lc0(net_file(weights_fields(network, bias_style=bias_style), format_bytes=layout))
    assert read.config == config
    assert read.metadata["training_steps"] == 1234
    # The file wants the raw count on plane 109, our planes hold count / 99.
    restored = AlphaZeroNet(config, get_spec("chess")).eval()
    read.state_dict["input.conv.weight"][:, RULE50_PLANE] /= 99
    restored.load_state_dict(read.state_dict)
    with torch.no_grad():
        wanted, got = network(random_planes()), restored(random_planes())
    for want, have in zip(wanted, got, strict=True):
        if want is not None:
            # 16 bits a weight over some 30 layers' worth of terms.
            torch.testing.assert_close(have, want, rtol=2e-3, atol=2e-3 * float(want.abs().max()))


def test_column_109_of_the_input_is_multiplied_by_99():
    network = random_network(SMALL)
    read = parse_lc0(net_file(weights_fields(network)))
    torch.testing.assert_close(
        read.state_dict["input.conv.weight"][:, RULE50_PLANE],
        99 * network.input.conv.weight[:, RULE50_PLANE].detach(),
        rtol=1e-3,
        atol=1e-2,
    )


@pytest.mark.parametrize(("encoding", "dtype"), [(2, "<f2"), (4, "<f4"), (3, "bfloat16")])
def test_layers_in_the_newer_encodings_are_read(encoding: int, dtype: str):
    network = random_network(SMALL)
    values = network.value.output.bias.detach()
    if dtype == "bfloat16":
        params = values.to(torch.bfloat16).view(torch.int16).numpy().astype("<i2").tobytes()
    else:
        params = values.numpy().astype(dtype).tobytes()
    fields = [
        (number, message((3, params), (4, encoding)) if number == 10 else value)
        for number, value in weights_fields(network)
    ]
    read = parse_lc0(net_file(fields)).state_dict["value.output.bias"]
    torch.testing.assert_close(read, values, rtol=1e-2, atol=1e-3)


FORMATS = {
    "network format policy 1": network_format(policy=1),
    "network format policy 0": network_format(policy=0),
    "network format policy 4": network_format(policy=4),
    "network format value 1": network_format(value=1),
    "network format network 2": network_format(network=2),
    "convolutional policy head on an attention body": network_format(network=6),
    "attention body of 0 encoders behind 2 residual blocks": network_format(network=134, policy=3),
    "network format network 5": network_format(network=5),
    "network format input 2": network_format(input=2),
    "network format input 132": network_format(input=132),
    "Mish activations": network_format(activation=1),
    "network format output 1": network_format(output=1),
    "network format moves_left 2": network_format(moves_left=2),
    "network format network 77": network_format(network=77),
}


@pytest.mark.parametrize("words", FORMATS)
def test_networks_of_another_kind_are_refused_by_the_format_s_field(words: str):
    data = net_file(weights_fields(random_network(SMALL)), format_bytes=FORMATS[words])
    with pytest.raises(WeightsError, match=words):
        parse_lc0(data)


def test_the_oldest_files_without_a_format_are_refused():
    data = net_file(weights_fields(random_network(SMALL)), format_bytes=b"")
    with pytest.raises(WeightsError, match="network format network 0"):
        parse_lc0(data)


def changed(fields: list[tuple[int, bytes]], number: int, value: bytes | None) -> list[tuple[int, bytes]]:
    """The fields with one replaced or (None) left out."""
    return [
        (key, value if key == number else old) for key, old in fields if key != number or value is not None
    ]


def bad_files() -> dict[str, bytes]:
    """Each a file with one fault, by words its error must have."""
    fields = weights_fields(random_network(SMALL))
    blocks = [value for number, value in fields if number == 2]
    without_blocks = changed(fields, 2, None)
    plain_block = weights_fields(random_network(NetworkConfig(**{**vars(SMALL), "se_ratio": 0})))[1]
    negative = message((1, layer(torch.rand(16, 112, 3, 3))), (3, layer(torch.rand(16))))
    negative += message((4, layer(torch.linspace(-1, 1, 16))))
    infinite = message((1, 0.0), (2, float("inf")), (3, b"\x01\x00" * 3))
    return {
        "magic number": net_file(fields, magic=0x1C1),
        "wants lc0 9.9.9": net_file(fields, version=(9, 9, 9)),
        "weights encoding 0": net_file(fields, encoding=0),
        "ONNX network": net_file(fields, extra=[(11, b"")]),
        "attention body": net_file([*fields, (27, b"")]),
        "blocks: 0: expected a whole number from 1": net_file(without_blocks),
        "blocks: 257: expected a whole number from 1 to 256": net_file(
            [*without_blocks, *[(2, blocks[0])] * 257]
        ),
        "some blocks only": net_file([*fields, plain_block]),
        "filters of the input": net_file(changed(fields, 1, None)),
        "channels of the value head": net_file(changed(fields, 7, layer(torch.rand(13)))),
        "policy.hidden: layer missing": net_file(changed(fields, 11, None)),
        "value.output.weight: 23 numbers, expected 24": net_file(changed(fields, 9, layer(torch.rand(23)))),
        "policy.output: 7 weights for 3 planes": net_file(
            changed(fields, 3, message((1, layer(torch.rand(7))), (2, layer(torch.rand(3)))))
        ),
        "expected variances": net_file(changed(fields, 1, negative)),
        "no bn_means": net_file(changed(fields, 1, message((1, layer(torch.rand(16, 112, 3, 3)))))),
        "not finite": net_file(changed(fields, 10, infinite)),
        "3 bytes, expected a multiple of 2": net_file(changed(fields, 10, message((3, b"abc")))),
        "encoding 9": net_file(changed(fields, 10, message((3, b"abcdef"), (4, 9)))),
        "damaged or truncated": net_file(fields)[:-40],
    }


def bad_attention_files() -> dict[str, bytes]:
    """The same for the layers of an attention policy head."""
    layout = network_format(policy=3)
    fields = weights_fields(random_network(ATTENTION))
    convolution = weights_fields(random_network(SMALL))

    def file(number: int, value: bytes | None) -> bytes:
        return net_file(changed(fields, number, value), format_bytes=layout)

    return {
        "policy.embed.bias: 0 numbers, expected 16": file(5, None),
        "policy.embed.bias: 12 numbers, expected 16": file(5, layer(torch.rand(12))),
        "policy.query.bias: 32 numbers, expected 16": file(18, layer(torch.rand(32))),
        "policy.key.bias: 8 numbers, expected 16": file(20, layer(torch.rand(8))),
        "policy.embed.weight: 0 numbers, expected 256": file(4, None),
        "policy.query.weight: 255 numbers, expected 256": file(17, layer(torch.rand(255))),
        "policy.key.weight: 512 numbers, expected 256": file(19, layer(torch.rand(32, 16))),
        "policy.promotion.weight: 0 numbers, expected 64 for shape [4, 16]": file(22, None),
        "policy.promotion.weight: 48 numbers, expected 64": file(22, layer(torch.rand(3, 16))),
        "policy.promotion: from 0.0 to inf": file(22, message((1, 0.0), (2, float("inf")), (3, bytes(128)))),
        "policy.key: 3 bytes, expected a multiple of 2": file(19, message((3, b"abc"))),
        "policy.key: encoding 9": file(20, message((3, b"abcdef"), (4, 9))),
        "encoders in a policy head": net_file([*fields, (21, b"")], format_bytes=layout),
        "several policy heads": net_file([*fields, (45, b"")], format_bytes=layout),
        "attention body: expected": net_file([*fields, (25, b"")], format_bytes=layout),
        "in a file whose format is convolution": net_file(fields),
        "policy.embed.weight: 0 numbers": net_file(convolution, format_bytes=layout),
        "Mish activations: expected": net_file(fields, format_bytes=network_format(policy=3, activation=1)),
    }


BAD_FILES = bad_files() | bad_attention_files()


@pytest.mark.parametrize("words", BAD_FILES)
def test_faulty_files_are_refused_with_one_line_that_names_the_fault(words: str, tmp_path: Path):
    path = tmp_path / "network.pb.gz"
    path.write_bytes(gzip.compress(BAD_FILES[words], compresslevel=1))
    with pytest.raises(WeightsError) as caught:
        read_lc0(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_damaged_gzip_and_missing_files_are_weights_errors(tmp_path: Path):
    packed = gzip.compress(net_file(weights_fields(random_network(SMALL))))
    for name, content, words in [
        ("cut.pb.gz", packed[:-100], "truncated"),
        ("flipped.pb.gz", packed[:200] + bytes(64) + packed[264:], "damaged gzip"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WeightsError, match=words):
            read_lc0(tmp_path / name)
    with pytest.raises(WeightsError, match="No such file"):
        read_lc0(tmp_path / "none.pb.gz")
    with pytest.raises(WeightsError, match="directory"):
        read_lc0(tmp_path)


@pytest.mark.parametrize(("config", "policy"), [(SMALL, 2), (ATTENTION, 3)])
def test_random_damage_never_raises_anything_but_a_weights_error(config: NetworkConfig, policy: int):
    data = net_file(weights_fields(random_network(config)), format_bytes=network_format(policy=policy))
    generator = np.random.default_rng(11)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        if generator.random() < 0.3:
            del damaged[int(generator.integers(len(data))) :]
        # Half of the hits where the structure is densest: the heads of the messages.
        for _ in range(int(generator.integers(1, 8))):
            limit = min(len(damaged), 80 if generator.random() < 0.5 else len(damaged))
            if limit > 5:
                damaged[int(generator.integers(5, limit))] = int(generator.integers(256))
        try:
            parse_lc0(bytes(damaged))
        except WeightsError:
            refused += 1
    assert 50 < refused < 300
