"""The programs that cluster starts with `python -m`, here and on other hosts: their names.

A separate file, with names and no imports: cluster does without torch, and most run on another host.
"""

from __future__ import annotations

NODE_AGENT = "alphazero.launch.agent.node_agent"  # one host's part of a job
HOST_PROBE = "alphazero.launch.head.probe"  # what a host reports of itself
DATA_RECEIVER = "alphazero.launch.head.sync_data"  # the host's side of --sync-data
TORCHRUN = "alphazero.launch.node.torchrun"  # torchrun, with an account of the rank that failed first
PREFLIGHT = "alphazero.launch.node.preflight"  # all ranks together for a moment, before the trainer

PROGRAMS = (NODE_AGENT, HOST_PROBE, DATA_RECEIVER, TORCHRUN, PREFLIGHT)
