"""What computes an attention body on GPUs, rehearsed on a CPU: as exact as PyTorch's operators."""

import functools
from typing import Any

import pytest
import torch

from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.kernels import ATTENTION_KERNELS, OPERATORS, probe_network, trial
from alphazero.network.model import attention
from alphazero.network.model.attention import COMPILED, COMPILED_PLAIN, AttentionBody, attend
from alphazero.network.model.planes import expand_planes
from alphazero.settings.load import Config, load_config
from alphazero.training.engine import probe
from alphazero.training.engine.training_module import TrainingModule

CPU = torch.device("cpu")


def small(**flags: Any) -> Config:
    sizes = {"blocks": 2, "filters": 32, "heads": 4, "ffn_width": 32, "smolgen_channels": 4}
    return load_config("", {"body": "attention", "policy_head": "attention", **sizes, **flags})


@pytest.fixture(params=["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=request.param))
    monkeypatch.setattr(probe, "TRIAL_BOARDS", 4)


@pytest.mark.parametrize("kernels", ATTENTION_KERNELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_trial_of_training_finds_them_right(compiler, monkeypatch, precision, kernels):
    is_plain = kernels == COMPILED_PLAIN  # on a CPU every kind is, without this
    monkeypatch.setattr(attention, "attend", lambda *parts: attend(*parts[:-1], is_plain))
    passes = probe.attention_passes(small(precision=precision), CPU)
    assert trial(passes, probe.DTYPES[precision], None, kernels) == ("", 0.0)


def test_a_trial_finds_what_is_computed_otherwise(monkeypatch):
    monkeypatch.setattr(probe, "TRIAL_BOARDS", 4)
    run_by = AttentionBody.run_by

    def wrong(body: AttentionBody, kernels: str) -> Any:
        for encoder in body.encoders if kernels == COMPILED else ():
            encoder.alpha *= 1.001
        return run_by(body, OPERATORS)

    monkeypatch.setattr(AttentionBody, "run_by", wrong)
    passes = probe.attention_passes(small(precision="fp32"), CPU)
    assert trial(passes, torch.float32, None, COMPILED)[0].startswith("their error is ")


def test_kernels_that_memory_does_not_suffice_for_are_left_out():
    def make_pass(kernels: str, dtype: torch.dtype) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 17 GiB")

    fault, _ = trial(make_pass, torch.float32, CPU, COMPILED)
    assert fault.startswith("OutOfMemoryError: CUDA out of memory")


@pytest.mark.parametrize("kernels", ATTENTION_KERNELS)
def test_evaluations_by_them_are_those_of_the_network(compiler, kernels):
    network = probe_network(small().network).eval()
    planes = expand_planes(torch.from_numpy(probe.random_batch(network.spec, 3).packed), network.spec)
    forward = ModuleForward(network, CPU, torch.float32, kernels=kernels)
    with torch.inference_mode():
        wanted = network(planes)
        policy, wdl = forward(planes)
    assert forward.description.startswith("PyTorch" if kernels == OPERATORS else kernels)
    torch.testing.assert_close(wdl, wanted.wdl_B3, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy[:, network.policy.policy_map_A], wanted.policy_BA, rtol=1e-4, atol=1e-5)


def test_encoders_share_what_is_compiled(compiler):
    made = []

    def count(graph: torch.fx.GraphModule, inputs: object) -> Any:
        made.append(graph)
        return graph.forward

    network = probe_network(small(blocks=2).network)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", functools.partial(torch.compile.func, backend=count))
        run = network.body.run_by(COMPILED)
        with torch.no_grad():
            for _ in range(2):
                network.before_heads(torch.zeros(2, 112, 8, 8), run)
    assert len(made) == 2  # the embedding, and one of two encoders


def test_cpu_ranks_are_not_compiled_because_a_gpu_was(monkeypatch):
    monkeypatch.setattr(AttentionBody, "trained_by", COMPILED)
    monkeypatch.setattr(torch, "compile", None)
    config = small()
    batch = probe.to_device(probe.random_batch(probe_network(config.network).spec, 2), CPU)
    TrainingModule(probe_network(config.network), config.loss, config.training)(batch).backward()
