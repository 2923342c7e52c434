"""The network's shape, size and arithmetic on every board."""

import numpy as np
import pytest
import torch
from torch import nn

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_spec
from alphazero.network.model.layers import BATCH_NORM_EPS, SqueezeExcitation
from alphazero.network.model.resnet import AlphaZeroNet, ResidualBlock
from alphazero.settings.sections import NetworkConfig

GAMES = ("chess", "connect4", "tictactoe")


def small(game: str, **changes: object) -> AlphaZeroNet:
    config = NetworkConfig(**{"game": game, "blocks": 2, "filters": 16, "value_hidden": 8, **changes})
    network = AlphaZeroNet(config, get_spec(game), torch.Generator().manual_seed(1))
    for block in network.blocks:
        nn.init.ones_(block.second.norm.weight)  # a fresh block is the identity and would hide faults
    return network


def random_planes(game: str, batch: int = 4) -> torch.Tensor:
    spec = get_spec(game)
    shape = (batch, spec.num_planes, spec.board_height, spec.board_width)
    return torch.rand(shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("se_ratio", [0, 4])
@pytest.mark.parametrize("moves_left", [False, True])
def test_every_game_gets_a_logit_for_each_policy_index(game: str, se_ratio: int, moves_left: bool):
    network = small(game, se_ratio=se_ratio, moves_left=moves_left)
    output = network(random_planes(game))
    assert output.policy_BA.shape == (4, get_spec(game).policy_size)
    assert output.wdl_B3.shape == (4, 3)
    if moves_left:
        assert output.moves_left_B1.shape == (4, 1)
        assert output.moves_left_B1.min() >= 0
    else:
        assert output.moves_left_B1 is None


def test_20x256_has_the_parameters_that_its_layers_add_up_to():
    network = AlphaZeroNet(NetworkConfig(), get_spec("chess"))
    by_hand = (
        (112 * 256 * 9 + 2 * 256)
        + 20 * 2 * (256 * 256 * 9 + 2 * 256)
        + (256 * 256 * 9 + 2 * 256)
        + (256 * 73 * 9 + 73)
        + (256 * 32 + 2 * 32)
        + (32 * 64 * 128 + 128)
        + (128 * 3 + 3)
    )
    assert network.parameter_count() == by_hand == 24_901_516


def test_squeeze_excitation_scales_with_the_first_half_and_adds_the_second():
    unit = SqueezeExcitation(4, 2)
    planes = np.random.default_rng(0).normal(size=(1, 4, 3, 3)).astype(np.float32)
    squeeze, excite = unit.squeeze, unit.excite
    pooled = planes[0].reshape(4, 9).mean(axis=1)
    hidden = np.maximum(squeeze.weight.detach().numpy() @ pooled + squeeze.bias.detach().numpy(), 0)
    both = excite.weight.detach().numpy() @ hidden + excite.bias.detach().numpy()
    wanted = planes[0] / (1 + np.exp(-both[:4]))[:, None, None] + both[4:, None, None]
    np.testing.assert_allclose(
        unit(torch.from_numpy(planes))[0].detach().numpy(), wanted, rtol=1e-5, atol=1e-6
    )


def test_a_block_whose_branch_is_silent_passes_its_input_through_a_relu():
    block = ResidualBlock(4, 0).eval()
    nn.init.zeros_(block.second.norm.weight)
    planes = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(block(planes), planes.relu())


def test_the_policy_map_picks_plane_and_square():
    spec = get_spec("chess")
    network = small("chess").eval()
    nn.init.zeros_(network.policy.output.weight)
    network.policy.output.bias.data = torch.arange(73.0)
    logits = network(random_planes("chess", 1)).policy_BA[0]
    # e2e4: two steps north, plane 1. g1f3: knight jump (-1, 2), the last of eight. h7h8b: north, bishop.
    assert logits[[322, 159, 1857]].tolist() == [1, 63, 68]
    assert logits.tolist() == [index // 64 for index in spec.policy_map]


@pytest.mark.parametrize("game", GAMES)
def test_channels_last_input_changes_nothing(game: str):
    network = small(game, se_ratio=4).eval()
    planes = random_planes(game)
    plain = network(planes)
    last = network(planes.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last.policy_BA, plain.policy_BA, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last.wdl_B3, plain.wdl_B3, rtol=1e-4, atol=1e-5)


def test_bf16_autocast_trains_with_fp32_weights_and_statistics():
    network = small("connect4", se_ratio=4, moves_left=True)
    with torch.autocast("cpu", torch.bfloat16):
        output = network(random_planes("connect4"))
    (
        output.policy_BA.float().sum() + output.wdl_B3.float().sum() + output.moves_left_B1.float().sum()
    ).backward()
    assert output.policy_BA.dtype == torch.bfloat16
    for name, parameter in network.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    statistics = [buffer for name, buffer in network.named_buffers() if name.endswith("running_mean")]
    assert all(buffer.dtype == torch.float32 and buffer.abs().sum() > 0 for buffer in statistics)


@pytest.mark.parametrize(
    "game", ["chess", *(pytest.param(game, marks=pytest.mark.slow) for game in GAMES if game != "chess")]
)
def test_torch_compile_finds_one_graph(game: str):
    network = small(game, se_ratio=4, moves_left=True).eval()
    compiled = torch.compile(network, fullgraph=True, backend="eager")  # fullgraph raises at a break
    planes = random_planes(game)
    torch.testing.assert_close(compiled(planes).policy_BA, network(planes).policy_BA)


def test_the_same_generator_gives_the_same_weights():
    first, second = small("chess").state_dict(), small("chess").state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_convolutions_start_with_he_variance_and_blocks_as_the_identity():
    network = AlphaZeroNet(NetworkConfig(blocks=1, filters=128), get_spec("chess"))
    weight = network.blocks[0].first.conv.weight
    assert weight.var().item() == pytest.approx(2 / (9 * 128), rel=0.02)
    first, second = network.blocks[0].first.norm, network.blocks[0].second.norm
    assert first.eps == second.eps == BATCH_NORM_EPS == 1e-5
    assert first.weight.eq(1).all()
    planes = torch.rand(2, 128, 8, 8)
    torch.testing.assert_close(network.blocks[0](planes), planes)
    assert network.policy.output.bias.eq(0).all()


def test_the_state_dict_holds_no_constants_of_the_game():
    assert not any("policy_map" in key for key in small("chess").state_dict())


def test_adopted_tensors_are_the_network_s_own_and_its_constants_lie_beside_them():
    """The meta device stands for a GPU: before, the policy map stayed on the CPU."""
    there = {name: tensor.to("meta") for name, tensor in small("connect4").state_dict().items()}
    with torch.device("meta"):
        network = AlphaZeroNet(small("connect4").config, get_spec("connect4"))
    network.adopt(there)
    assert all(own is there[name] for name, own in network.named_buffers() if name in there)
    assert {tensor.device.type for tensor in (*network.parameters(), *network.buffers())} == {"meta"}
    assert network(random_planes("connect4").to("meta")).policy_BA.is_meta


def test_weights_adopted_on_the_cpu_play_with_the_policy_map_of_the_game():
    network = small("chess").eval()
    with torch.device("meta"):
        twin = AlphaZeroNet(network.config, network.spec)
    twin.adopt(network.state_dict())
    planes = random_planes("chess")
    assert torch.equal(twin.eval()(planes).policy_BA, network(planes).policy_BA)


def test_a_squeeze_ratio_that_does_not_divide_the_filters_is_refused():
    with pytest.raises(ConfigError, match=r"se_ratio 5: .*16"):
        small("chess", se_ratio=5)
