"""The [cluster] section of a TOML file: a cluster described once, for every launch from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from alphazero.base.section import setting
from alphazero.settings.load import read_section

PORT_MAX = 65535
# Bounds of settings and flags: above every sensible value.
MOST_NODES = 65_536
MOST_PROCESSES = 1024
MOST_RESTARTS = 1_000_000
MOST_SECONDS = 1e8


@dataclass(frozen=True)
class ClusterConfig:
    """What the file says; 0 or nothing where it is silent. Flags beat it (docs/cluster.md)."""

    nodes: int = setting(0, "machines of the job", minimum=1, maximum=MOST_NODES)
    gpus: int = setting(0, "processes on each machine, -1 for all GPUs", minimum=-1, maximum=MOST_PROCESSES)
    hostfile: str = setting("", "file that lists the hosts, a path as --hostfile takes it")
    hosts: tuple[str, ...] = setting((), "hosts, each as a line of a hostfile")
    master_addr: str = setting("", "address of node 0")
    master_port: int = setting(0, "port of node 0", minimum=1, maximum=PORT_MAX)
    interface: str = setting("", "network interface of gloo and NCCL")
    launcher: str = setting(
        "auto", "what starts the ranks", choices=("auto", "torchrun", "deepspeed", "slurm")
    )
    include: str = setting("", "hosts and slots to use")
    exclude: str = setting("", "hosts and slots to leave out")
    max_restarts: int = setting(0, "restarts after a failure", minimum=0, maximum=MOST_RESTARTS)
    min_nodes: int = setting(0, "fewest hosts to go on with", minimum=1, maximum=MOST_NODES)
    hang_timeout: float = setting(0.0, "seconds that a step may stand still", minimum=1, maximum=MOST_SECONDS)
    start_timeout: float = setting(
        0.0, "seconds until the first steps have been timed", minimum=1, maximum=MOST_SECONDS
    )
    pause_timeout: float = setting(
        0.0, "seconds that a validation or checkpoint may take", minimum=1, maximum=MOST_SECONDS
    )
    games_timeout: float = setting(
        0.0, "seconds that self-play or a gate's games may stand still", minimum=1, maximum=MOST_SECONDS
    )
    shutdown_timeout: float = setting(
        0.0, "seconds from a rank's last message to its end", minimum=1, maximum=MOST_SECONDS
    )
    silence_timeout: float = setting(
        0.0, "seconds after which a silent host or head counts as lost", minimum=3, maximum=MOST_SECONDS
    )
    host_weights: tuple[str, ...] = setting(
        (),
        "shares of hosts of unequal speed, HOST=WEIGHT",
        pattern=r"[^=\s]+=(?!0*\.?0*$)([0-9]{1,6}(\.[0-9]{1,6})?)",
        expected="HOST=WEIGHT with a weight above 0, as gpu-node-1=2",
    )


@dataclass(frozen=True)
class ClusterFile:
    """A [cluster] section and where each of its keys stands."""

    config: ClusterConfig
    places: Mapping[str, str]

    def said(self, key: str) -> str:
        """A key with its value and place, for messages."""
        value = getattr(self.config, key)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        return f"[cluster] {key}={shown} ({self.places[key]})"


def read_cluster(source: str) -> ClusterFile | None:
    """The [cluster] section of the preset or TOML file `source`, None where there is none.

    Raises ConfigError naming file, line and key for a key or value that cannot be.
    """
    if not source:
        return None
    found = read_section(source, "cluster", ClusterConfig)
    if found is None:
        return None
    config, places = found
    assert isinstance(config, ClusterConfig)
    assert set(places) <= {entry.name for entry in fields(ClusterConfig)}
    return ClusterFile(config, places)
