"""Writes a network as ONNX, with the inputs and outputs that lc0 gives its own ONNX files.

`/input/planes` [batch, planes, H, W] float32, each scalar plane the raw number (lc0's rule50 plane the count
of plies); `/output/policy` [batch, A] logits of all indices, legal or not; `/output/wdl` [batch, 3] shares of
win, draw, loss of the mover; `/output/mlh` [batch, 1] plies, where the network has that head (lc0
src/neural/onnx/converter.cc, leela2onnx). BatchNorm is folded into the convolutions. The file's metadata says
in words what these are in the game at hand.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from alphazero.base.errors import WeightsError
from alphazero.games.outside.names import is_outside
from alphazero.games.registry import CHESS
from alphazero.network.inference.forward import fold_batch_norm
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.lc0_weights import MAX_FILE_BYTES
from alphazero.network.weights.weights import write_whole

PACKAGES = ("onnx", "onnxscript")
OPSET = 18  # the lowest that torch's exporter writes without a conversion
INPUT, POLICY, WDL, MOVES_LEFT = "/input/planes", "/output/policy", "/output/wdl", "/output/mlh"
FLOAT_BYTES = 4
SPARE_BYTES = 16 << 20  # above the graph of the largest network
EXAMPLE_POSITIONS = 2  # of one, the exporter would take the batch for a constant


class _Interface(nn.Module):
    """The network between lc0's planes and lc0's outputs."""

    def __init__(self, network: AlphaZeroNet) -> None:
        super().__init__()
        self.network = fold_batch_norm(network)
        spec = network.spec
        scale_C = torch.ones(spec.num_planes)
        scale_C[spec.num_planes - spec.num_scalar_planes :] = torch.tensor(spec.scalar_scale)
        with torch.no_grad():
            if network.config.body == "attention":
                self.network.body.embedding.squares.weight[:, : spec.num_planes] *= scale_C
            else:
                self.network.input.conv.weight *= scale_C[:, None, None]

    def forward(self, planes_BCHW: Tensor) -> tuple[Tensor, ...]:
        """Policy logits [B, A], win, draw, loss [B, 3], and moves left [B, 1] where there is that head."""
        output = self.network(planes_BCHW)
        wdl_B3 = torch.softmax(output.wdl_B3, dim=1)
        if output.moves_left_B1 is None:
            return output.policy_BA, wdl_B3
        return output.policy_BA, wdl_B3, output.moves_left_B1


def metadata_of(network: AlphaZeroNet) -> dict[str, str]:
    """What the numbers of the file mean: the game, and the order of win, draw and loss.

    In chess and in games whose rules lie outside the core also the order of planes and actions.
    """
    spec = network.spec
    said = {"game": spec.name, "wdl": "win, draw, loss of the side to move"}
    if spec.name == CHESS:
        said["planes"] = "lc0's 112 planes, INPUT_CLASSICAL_112_PLANE"
        said["actions"] = "lc0's 1858 moves, seen by the side to move"
    elif is_outside(spec.name):
        added = spec.num_planes - spec.num_scalar_planes
        said["planes"] = (
            f"0 to {added - 1}: observation_tensor(player) of the player to move; "
            f"{added}: ones where the second player is to move, else zeros; {added + 1}: ones"
        )
        said["actions"] = f"the number of the action, 0 to {spec.policy_size - 1}"
    return said


def write_onnx(path: Path, network: AlphaZeroNet) -> None:
    """Write the network to `path`, whole or not at all. Raises WeightsError."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise WeightsError(
            f"{path}: writing ONNX needs {' and '.join(missing)}; expected pip install {' '.join(missing)}"
        )
    numbers = network.parameter_count()
    if FLOAT_BYTES * numbers + SPARE_BYTES > MAX_FILE_BYTES:
        raise WeightsError(
            f"{path}: a network of {numbers:,} numbers: ONNX files have {FLOAT_BYTES} bytes for each and "
            f"are at most {MAX_FILE_BYTES:,} bytes long, protobuf's limit; expected --to safetensors or pt"
        )
    spec = network.spec
    example = torch.zeros(EXAMPLE_POSITIONS, spec.num_planes, spec.board_height, spec.board_width)
    outputs = [POLICY, WDL] + ([MOVES_LEFT] if network.moves_left is not None else [])
    with _without_notices():
        program = torch.onnx.export(
            _Interface(network).eval(),
            (example,),
            None,
            input_names=[INPUT],
            output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    for key, value in metadata_of(network).items():
        model.metadata_props.add(key=key, value=value)
    write_whole(path, model.SerializeToString())


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Hide the exporter's notices: its progress, and packages that it does not need."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
