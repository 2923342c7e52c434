"""The programs that a launch starts, here and on other hosts: their modules' names.

None is imported: launching does without torch, and most run on another host.
"""

from __future__ import annotations

from alphazero.machine.environment import START

NODE_AGENT = "alphazero.launch.agent.node_agent"  # one host's part of a job
HOST_PROBE = "alphazero.launch.head.probe"  # what a host reports of itself
DATA_RECEIVER = "alphazero.launch.head.sync_data"  # the host's side of --sync-data
TORCHRUN = "alphazero.launch.node.torchrun"  # torchrun, with an account of the rank that failed first
PREFLIGHT = "alphazero.launch.node.preflight"  # all ranks together for a moment, before the trainer
DEEPSPEED = "deepspeed.launcher.launch"  # DeepSpeed's launcher of one node

PROGRAMS = (NODE_AGENT, HOST_PROBE, DATA_RECEIVER, TORCHRUN, PREFLIGHT)


def words_of(program: str) -> tuple[str, ...]:
    """What follows the interpreter to start a program."""
    return (START, "--module", program)
