"""The programs of this package that cluster starts with `python -m`, here and on other hosts: their names.

Names and no imports: cluster does without torch, and most of them run on another host.
"""

from __future__ import annotations

NODE_AGENT = "alphazero.cluster.agent.node_agent"  # one host's part of a job
HOST_PROBE = "alphazero.cluster.hosts.probe"  # what a host says of itself
DATA_RECEIVER = "alphazero.cluster.hosts.sync_data"  # the host's side of --sync-data
TORCHRUN = "alphazero.ranks.torchrun"  # torchrun with an account of the rank that failed first
PREFLIGHT = "alphazero.ranks.preflight"  # all ranks together for a moment, before the trainer

DOCTOR = "alphazero.doctor.here"  # what a host can do, measured

PROGRAMS = (NODE_AGENT, HOST_PROBE, DATA_RECEIVER, TORCHRUN, PREFLIGHT, DOCTOR)
