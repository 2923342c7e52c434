"""Ranks that train a network for a step; as a program it prints the bytes that each keeps."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.machine.machine import find_free_port
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import load_config
from alphazero.training.engine.engine import Engine, end_process_group, start_process_group
from alphazero.training.engine.probe import random_batch
from alphazero.training.ranks.batch import plan_batches
from alphazero.training.ranks.runtime import read_runtime

# A hundredth of chess_1b by the same rules: heads of 32, feed-forward layers half as wide again.
SHAPE = {"filters": 256, "heads": 8, "ffn_width": 384, "blocks": 16, "smolgen_channels": 4}
# Small, for they are not what is measured.
BUCKETS = {"reduce_bucket_size": 100_000, "allgather_bucket_size": 100_000}
# A bucket with room for all gradients, which a rank then keeps whole.
WHOLE = {**BUCKETS, "reduce_bucket_size": 100_000_000}


def kept_tensors() -> dict[int, int]:
    """Bytes of each piece of memory that a tensor of this process has."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
    gradients = [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
    storages = [tensor.untyped_storage() for tensor in (*tensors, *gradients)]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def hold(rank: int, num_ranks: int, stage: int, optimizer: str, options: Mapping[str, int]) -> int:
    """Bytes after the passes of a second step, before it changes the weights. Collective."""
    runtime = read_runtime(os.environ, "cpu")
    start_process_group(runtime)
    batch_size, spec = 2 * num_ranks, get_spec("chess")
    flags = {"zero_stage": stage, "optimizer": optimizer, "batch_size": batch_size, "micro_batch_size": 1}
    config = load_config("chess_1b", {**SHAPE, **flags, "precision": "fp32"})
    before = sum(kept_tensors().values())
    network = AlphaZeroNet(config.network, spec, torch.Generator().manual_seed(0))
    plan = plan_batches(batch_size, 1, [1.0] * num_ranks, "cpu")
    config = dataclasses.replace(config, deepspeed=DeepSpeedSettings(zero_options=options))
    engine = Engine(network, config, plan, runtime)
    batch = random_batch(spec, 1)
    held = 0
    for step in range(2):
        for number in range(rank, batch_size, num_ranks):
            engine.accumulate(MicroBatch(step, number, batch, False), batch_size)
        held = sum(kept_tensors().values()) - before
        bad_ranks = [] if engine.gradients_are_finite() else [rank]
        engine.finish_step(step, 1e-3, batch_size, bad_ranks)
    end_process_group()
    return held


def main() -> None:
    """Arguments: ranks, ZeRO stage, optimizer; "whole" where ranks keep whole gradients."""
    num_ranks, stage, optimizer = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    options = WHOLE if "whole" in sys.argv else BUCKETS
    job = {"WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks, "MASTER_PORT": find_free_port()}
    os.environ |= {name: str(value) for name, value in job.items()} | {"MASTER_ADDR": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as directory:
        results = [Path(directory, str(rank)) for rank in range(num_ranks)]
        children = []
        for rank, result in enumerate(results):
            pid = os.fork()
            if pid == 0:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                torch.set_num_threads(1)
                result.write_text(str(hold(rank, num_ranks, stage, optimizer, options)))
                os._exit(0)
            children.append(pid)
        assert not any(os.waitpid(pid, 0)[1] for pid in children)
        print(json.dumps([int(result.read_text()) for result in results]))


if __name__ == "__main__":
    main()
