"""The network's passes in training as CUDA graphs: two launches instead of thousands.

With few positions a GPU is done with each kernel of a pass before the CPU has launched the next one.
`torch.cuda.make_graphed_callables` records passes too, but hands out gradients in memory that the next pass
writes over: autograd makes that memory the parameters' `grad` and then adds it to itself. Here a pass adds to
an existing `grad`. And other threads of the process, as the writer of checkpoints, may use the device
while a pass is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from alphazero.machine.memory import memory_error
from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model.resnet import NetworkOutput
from alphazero.settings.load import Config
from alphazero.training.engine.deepspeed_config import why_gradients_are_given_away

# Shapes: B positions, N bytes of a packed position.

Pass = Callable[[Tensor], NetworkOutput]


class GraphedNetwork:
    """Runs passes of a network as recordings, recorded again where the number of positions changes.

    Each pass adds to the parameters' `grad`, as always; whoever takes them away after each pass saves a copy.
    Where recording fails, passes run as they are from then on.
    """

    def __init__(
        self,
        run: Pass,
        parameters: Iterable[nn.Parameter],
        recorder: CudaRecorder,
        say: Callable[[str], None],
    ) -> None:
        self._run = run
        self._parameters = list(parameters)
        self._recorder = recorder
        self._say = say
        self._recording: _Recording | None = None
        self._has_failed = False
        self.was_replayed = False  # the last pass
        # An input that takes a gradient, so that autograd comes back to a recorded pass.
        self._token = torch.zeros((), device=self._parameters[0].device, requires_grad=True)

    def __call__(self, packed_BN: Tensor) -> NetworkOutput:
        """The outputs for packed positions. Their backward pass must come before the next call."""
        self.was_replayed = False
        if not torch.is_grad_enabled():
            return self._run(packed_BN)
        if not self._has_failed and (self._recording is None or not self._recording.takes(packed_BN)):
            self._record(packed_BN)
        if self._recording is None:
            return self._run(packed_BN)
        self.was_replayed = True
        outputs = _Replay.apply(self._token, self._recording, packed_BN)  # type: ignore[no-untyped-call]
        return NetworkOutput(*outputs)

    def _record(self, packed_BN: Tensor) -> None:
        self._recording = None  # first: its memory is needed
        try:
            # A recording calls none of the hooks that wait for single gradients.
            if any(own._backward_hooks or own._post_accumulate_grad_hooks for own in self._parameters):
                raise RuntimeError("hooks wait for each gradient")
            self._recording = _Recording(self._run, packed_BN, self._parameters, self._recorder)
        except RuntimeError as error:
            if memory := memory_error(error):
                raise memory from error
            self._has_failed = True
            self._say(f"training without CUDA graphs: {str(error).strip().splitlines()[0]}")


class _Recording:
    """Forward and backward pass of one number of positions."""

    def __init__(
        self,
        run: Pass,
        packed_BN: Tensor,
        parameters: Sequence[nn.Parameter],
        recorder: CudaRecorder,
    ) -> None:
        self._run = run
        self._packed_BN = packed_BN.clone()
        self._parameters = list(parameters)
        # In each parameter's own layout, as autograd gives them.
        self._made = [torch.zeros_like(parameter) for parameter in parameters]
        self._has: list[bool] = []  # which outputs there are
        self._outputs: list[Tensor] = []
        self._gradients: list[Tensor] = []
        recorder.warm_up(self._both)
        self._replay_forward = recorder.record(self._forward)
        self._replay_backward = recorder.record(self._backward)

    def takes(self, packed_BN: Tensor) -> bool:
        """Whether these positions are as many as were recorded."""
        return packed_BN.shape == self._packed_BN.shape

    def forward(self, packed_BN: Tensor) -> tuple[Tensor | None, ...]:
        """The outputs, in memory that the next pass writes over."""
        self._packed_BN.copy_(packed_BN)
        self._replay_forward()
        outputs = iter(self._outputs)
        return tuple(next(outputs).detach() if has else None for has in self._has)

    def backward(self, gradients: Sequence[Tensor | None]) -> None:
        """Add to the parameters' `grad`, or make it where there is none."""
        # A `grad` that the caller left in place would be overwritten.
        held = [
            made.clone() if parameter.grad is made else parameter.grad
            for parameter, made in zip(self._parameters, self._made, strict=True)
        ]
        torch._foreach_copy_(self._gradients, [gradient for gradient in gradients if gradient is not None])
        self._replay_backward()
        there = [(own, made) for own, made in zip(held, self._made, strict=True) if own is not None]
        if there:
            torch._foreach_add_([own for own, _ in there], [made for _, made in there])
        for parameter, own, made in zip(self._parameters, held, self._made, strict=True):
            parameter.grad = made if own is None else own

    def _forward(self) -> None:
        with torch.enable_grad():
            outputs = self._run(self._packed_BN)
        self._has = [output is not None for output in outputs]
        self._outputs = [output for output in outputs if output is not None]

    def _backward(self) -> None:
        gradients = torch.autograd.grad(self._outputs, self._parameters, self._gradients)
        torch._foreach_copy_(self._made, list(gradients))

    def _both(self) -> None:
        self._forward()
        self._gradients = [torch.zeros_like(output) for output in self._outputs]
        self._backward()


class _Replay(torch.autograd.Function):
    """A recorded pass as one operation of autograd."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - whatever autograd passes
        token: Tensor,
        recording: _Recording,
        packed_BN: Tensor,
    ) -> tuple[Tensor | None, ...]:
        """The network's outputs."""
        ctx.recording = recording
        return recording.forward(packed_BN)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None, None]:  # noqa: ANN401
        """Parameters get their gradients by the recording itself."""
        ctx.recording.backward(gradients)
        return None, None, None


def why_no_graphs(config: Config) -> str:
    """Why passes on a GPU are not recorded with these settings; "" where they are."""
    if not config.training.cuda_graphs:
        return "--no-cuda-graphs"
    if cause := why_gradients_are_given_away(config):
        return f"DeepSpeed takes each gradient as it is made ({cause})"
    if (config.deepspeed.passed_on.get("flops_profiler") or {}).get("enabled"):
        return "flops_profiler counts operations as they are called"
    return ""


def graph_notices(config: Config, device: torch.device) -> list[str]:
    """What the start banner shows of it."""
    if device.type != "cuda" or not config.training.cuda_graphs:
        return []
    reason = why_no_graphs(config)
    return [f"CUDA graphs off: {reason}" if reason else "CUDA graphs on"]
