"""Network and loss as one module: what DeepSpeed wraps, and what the memory probe tries."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable

import torch
from torch import nn

from alphazero.base.errors import ConfigError
from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model.attention import COMPILED, Run, run_part
from alphazero.network.model.loss import LossTerms, loss_terms
from alphazero.network.model.planes import DeviceBatch, expand_planes
from alphazero.network.model.precision import autocast
from alphazero.network.model.resnet import AlphaZeroNet, NetworkOutput
from alphazero.settings.sections import LossConfig, TrainingConfig
from alphazero.training.engine.graphed_network import GraphedNetwork


class TrainingModule(nn.Module):
    """Packed positions in, the loss out as a plain scalar.

    DeepSpeed finds the outputs of a module by type: its timers and its profiler hook into the backward
    pass of a tensor, and see nothing in a dataclass. So the terms of the loss are read after the pass,
    from `last_terms`.
    """

    def __init__(
        self, network: AlphaZeroNet, loss: LossConfig, config: TrainingConfig, *, compiles: bool = True
    ) -> None:
        """compiles: where the settings or the kernels of an attention body ask for it."""
        super().__init__()
        self.network = network
        self._loss = loss
        self._precision = config.precision
        self._run: Callable[[torch.Tensor], NetworkOutput] = self._run_network
        is_attention = network.config.body == "attention"
        if is_attention:
            network.body.checkpointing = config.activation_checkpointing
        elif config.activation_checkpointing != "none":
            raise ConfigError(
                f"activation_checkpointing {config.activation_checkpointing}: expected none for a residual "
                "body, or --body attention"
            )
        compiler = os.environ.get("CXX", "g++")
        on_cpu = next(network.parameters()).device.type == "cpu"
        is_compiled = config.compile and compiles
        if is_compiled and on_cpu and shutil.which(compiler) is None:
            raise ConfigError(
                f"compile: C++ compiler {compiler!r} not found: install it, or add --no-compile"
            )
        if is_attention:
            of_gpu = "" if on_cpu or not compiles else network.body.trained_by
            run = network.body.run_by(COMPILED if is_compiled else of_gpu)
            self._run = functools.partial(self._run_network, run=run)
        elif is_compiled:
            # A function, not the module: validation keeps the plain network, names stay as they are.
            self._run = torch.compile(self._run_network)
        self._graphed: GraphedNetwork | None = None
        self._last_terms: LossTerms | None = None

    def use_graphs(self, recorder: CudaRecorder, say: Callable[[str], None]) -> None:
        """From the next pass on, run the network as recordings, the loss beside them; `say` gets why not."""
        self._graphed = GraphedNetwork(self._pass, self.network.parameters(), recorder, say)

    def drop_graphs(self) -> None:
        """Forget the recordings, whose memory is then free."""
        self._graphed = None

    def forward(self, batch: DeviceBatch) -> torch.Tensor:
        """Mean loss of the micro-batch, 0-d; the network in its precision, the loss in fp32."""
        run = self._graphed or self._pass
        terms = loss_terms(self._loss, run(batch.packed_BN), batch)
        # Without the graph: what is kept here would hold the activations of a pass that failed.
        self._last_terms = dataclasses.replace(terms, total=terms.total.detach())
        return terms.total

    @property
    def last_terms(self) -> LossTerms:
        """The terms of the last forward pass, without gradients."""
        assert self._last_terms is not None, "no forward pass was made"
        return self._last_terms

    @property
    def last_pass_was_graphed(self) -> bool:
        """Whether the last forward pass was replayed from a recording."""
        return self._graphed is not None and self._graphed.was_replayed

    def _pass(self, packed_BN: torch.Tensor) -> NetworkOutput:
        planes_BCHW = expand_planes(packed_BN, self.network.spec)
        with autocast(planes_BCHW.device, self._precision, keep_casts=self._graphed is None):
            return self._run(planes_BCHW)

    def _run_network(self, planes_BCHW: torch.Tensor, run: Run = run_part) -> NetworkOutput:
        output: NetworkOutput = self.network(planes_BCHW, run)
        return output
