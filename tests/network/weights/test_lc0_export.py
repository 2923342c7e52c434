"""lc0 files that we write: what comes back is equal, and what lc0 has no form for is refused by name."""

import dataclasses
import gzip
from pathlib import Path

import pytest
import torch

from alphazero.base.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.model.sizes import on_meta_device
from alphazero.network.weights.lc0_export import to_lc0, write_lc0
from alphazero.network.weights.lc0_schema import net_class
from alphazero.network.weights.lc0_weights import RULE50_PLANE, parse_lc0, read_lc0, read_limited
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig
from tests.support.network.lc0_files import random_planes

SMALL = NetworkConfig(blocks=2, filters=16, se_ratio=4)
ATTENTION = dataclasses.replace(SMALL, policy_head="attention")


def random_network(config: NetworkConfig) -> AlphaZeroNet:
    """A network none of whose tensors has its initial value."""
    generator = torch.Generator().manual_seed(7)
    network = AlphaZeroNet(config, get_spec(config.game), generator)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.rand(tensor.shape, generator=generator)
                tensor.add_(noise * 0.5 if "running_var" in name else (noise - 0.5) * 0.2)
    return network.eval()


@pytest.mark.parametrize("name", ["maia-1100", "maia-1500"])
def test_maia_in_out_in_is_bit_equal(shared_data: Path, tmp_path: Path, name: str) -> None:
    original = shared_data / "lc0" / f"{name}.pb.gz"
    network = read_lc0(original)
    write_lc0(tmp_path / "out.pb.gz", network.config, network.state_dict, 400_000)
    ours, theirs = (net_class().FromString(read_limited(path)) for path in (tmp_path / "out.pb.gz", original))
    # Every 16-bit number and every range, and what lc0 is told of the layout.
    assert ours.weights == theirs.weights
    assert ours.format == theirs.format
    assert ours.min_version == theirs.min_version
    again = read_lc0(tmp_path / "out.pb.gz")
    assert again.config == network.config
    assert all(torch.equal(again.state_dict[key], tensor) for key, tensor in network.state_dict.items())


@pytest.mark.parametrize("se_ratio", [0, 4])
@pytest.mark.parametrize("moves_left", [False, True])
@pytest.mark.parametrize("policy_head", ["convolution", "attention"])
def test_a_network_of_ours_comes_back_to_the_rounding_of_16_bits(
    se_ratio: int, moves_left: bool, policy_head: str
) -> None:
    config = dataclasses.replace(SMALL, se_ratio=se_ratio, moves_left=moves_left, policy_head=policy_head)
    network = random_network(config)
    data = to_lc0(config, network.state_dict(), 12, "GPL")
    back = parse_lc0(data)
    assert back.config == config
    assert to_lc0(config, back.state_dict, 12, "GPL") == data  # what is in the 16-bit form stays
    assert back.metadata == {"source_format": "lc0", "license": "GPL", "training_steps": 12}
    other = AlphaZeroNet(config, get_spec("chess"))
    other.load_state_dict(back.state_dict)
    with torch.no_grad():
        expected, got = network(random_planes()), other.eval()(random_planes())
    for before, after in zip(expected, got, strict=True):
        if before is not None:
            assert torch.allclose(before, after, atol=2e-3 * float(before.abs().max()))


def test_every_number_is_within_half_a_step_of_its_layer() -> None:
    network = random_network(SMALL)
    net = net_class().FromString(to_lc0(SMALL, network.state_dict(), 0, ""))
    values = network.state_dict()["blocks.1.second.conv.weight"].double().reshape(-1)
    layer = net.weights.residual[1].conv2.weights
    raw = torch.frombuffer(bytearray(layer.params), dtype=torch.uint16).double()
    step = (layer.max_val - layer.min_val) / 65535
    assert float((layer.min_val + raw * step - values).abs().max()) <= step / 2 * 1.0001
    assert (int(raw.min()), int(raw.max())) == (0, 65535)


def test_attention_is_written_as_lc0_has_it() -> None:
    tensors = random_network(ATTENTION).state_dict()
    net = net_class().FromString(to_lc0(ATTENTION, tensors, 0, ""))
    assert (net.format.network_format.network, net.format.network_format.policy) == (4, 3)
    # lc0 0.28.2 refuses such a file; the backends of 0.29.0 evaluate it.
    assert (net.min_version.major, net.min_version.minor, net.min_version.patch) == (0, 29, 0)
    assert not net.weights.HasField("policy") and not net.weights.HasField("policy1")
    for field, name in (
        ("ip_pol_w", "embed.weight"),
        ("ip_pol_b", "embed.bias"),
        ("ip2_pol_w", "query.weight"),
        ("ip2_pol_b", "query.bias"),
        ("ip3_pol_w", "key.weight"),
        ("ip3_pol_b", "key.bias"),
        ("ip4_pol_w", "promotion.weight"),
    ):
        layer, values = getattr(net.weights, field), tensors[f"policy.{name}"].double().reshape(-1)
        raw = torch.frombuffer(bytearray(layer.params), dtype=torch.uint16).double()
        step = (layer.max_val - layer.min_val) / 65535
        assert float((layer.min_val + raw * step - values).abs().max()) <= step / 2 * 1.0001, field


def test_lc0_is_fed_raw_counts_and_80_planes_with_both_halves_of_batch_norm() -> None:
    network = random_network(SMALL)
    net = net_class().FromString(to_lc0(SMALL, network.state_dict(), 0, ""))
    assert len(net.weights.policy.biases.params) == 2 * 80
    assert len(net.weights.policy.weights.params) == 2 * 80 * 16 * 9
    assert net.weights.input.HasField("bn_gammas") and net.weights.input.HasField("bn_betas")
    values = network.state_dict()["input.conv.weight"][:, RULE50_PLANE]
    layer = net.weights.input.weights
    raw = torch.frombuffer(bytearray(layer.params), dtype=torch.uint16).double().reshape(16, 112, 3, 3)
    step = (layer.max_val - layer.min_val) / 65535
    assert torch.allclose(layer.min_val + raw[:, RULE50_PLANE] * step, values.double() / 99, atol=step)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value_channels": 16}, "network value_channels = 16: expected 32, as lc0 has it"),
        ({"value_hidden": 64}, "network value_hidden = 64: expected 128, as lc0 has it"),
        ({"game": "connect4"}, "a network of connect4: expected chess, which is all that lc0 plays"),
    ],
)
def test_what_lc0_has_no_form_for_is_refused_by_name(tmp_path: Path, change: dict, told: str) -> None:
    network = random_network(dataclasses.replace(SMALL, **change))
    with pytest.raises(WeightsError, match=told):
        write_lc0(tmp_path / "out.pb.gz", network.config, network.state_dict(), 0)
    assert list(tmp_path.iterdir()) == []


def test_the_same_network_gives_the_same_bytes_packed_or_not(tmp_path: Path) -> None:
    network = random_network(SMALL)
    for name in ("one.pb.gz", "two.pb.gz", "plain.pb"):
        write_lc0(tmp_path / name, SMALL, network.state_dict(), 5)
    packed = (tmp_path / "one.pb.gz").read_bytes()
    assert packed == (tmp_path / "two.pb.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain.pb").read_bytes()


def test_a_network_above_the_limit_of_protobuf_is_refused_by_name(tmp_path: Path) -> None:
    """The billion numbers of chess_1b, of which none is there."""
    network = on_meta_device(load_config("chess_1b", {}).network)
    message = (
        r"1,125,246,499 numbers: lc0's files have 2 bytes .* at most 2,147,483,647 .*--to safetensors or pt"
    )
    with pytest.raises(WeightsError, match=message):
        write_lc0(tmp_path / "out.pb.gz", network.config, network.state_dict(), 0)
    assert list(tmp_path.iterdir()) == []
