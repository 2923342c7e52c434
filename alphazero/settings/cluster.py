"""The settings of a cluster: flags of `alphazero launch`, and the [cluster] section of a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alphazero.base.section import read_toml, setting
from alphazero.settings.load import find_config, values_in

PORT_MAX = 65535
# Bounds of settings and flags: above every sensible value.
MOST_NODES = 65_536
MOST_PROCESSES = 1024
MOST_RESTARTS = 1_000_000
MOST_SECONDS = 1e8


def _seconds(help_text: str, minimum: float = 1) -> Any:  # noqa: ANN401 - as setting()
    return setting(None, f"seconds {help_text}", minimum=minimum, maximum=MOST_SECONDS, metavar="SECONDS")


@dataclass(frozen=True)
class ClusterConfig:
    """Also keys of [cluster] in the file of --config; a flag takes precedence (docs/cluster.md)."""

    gpus: int | None = setting(
        None,
        "processes on each machine: N, or -1 for one per GPU (default); without a GPU N CPU ranks (default: "
        "one per core, as far as batch and memory go)",
        minimum=-1,
        maximum=MOST_PROCESSES,
        aliases=("num_gpus", "nproc_per_node"),
        metavar="N",
    )
    actors: int | None = setting(
        None,
        "processes beside the ranks of each machine that play the games, each on a GPU that the ranks leave "
        "or a share of the cores; --self-play-from is elsewhere then, unless it is given (docs/actors.md)",
        minimum=1,
        maximum=MOST_PROCESSES,
        metavar="N",
    )
    nodes: int | None = setting(
        None,
        "machines of the job (default: 1, or all hosts of the hostfile; fewer are its first ones)",
        minimum=1,
        maximum=MOST_NODES,
        aliases=("num_nodes", "nnodes"),
        metavar="N",
    )
    master_addr: str | None = setting(None, "address of node 0", metavar="ADDRESS")
    master_port: int | None = setting(
        None, "port of node 0 (default: 12355, or a free one)", minimum=1, maximum=PORT_MAX, metavar="PORT"
    )
    interface: str | None = setting(
        None, "network interface to use (default: that of the route to node 0)", metavar="NAME"
    )
    hostfile: str | None = setting(
        None,
        "file of hosts, each line '<host> slots=<processes> [actors=<of these>] [weight=<share>]'; all start "
        "from here",
        metavar="FILE",
    )
    include: str | None = setting(None, "hosts and slots to use, as gpu1@gpu2:0,2", metavar="HOSTS")
    exclude: str | None = setting(None, "hosts and slots to leave out", metavar="HOSTS")
    launcher: str | None = setting(
        None,
        "what starts the ranks of a machine (default: auto); slurm: torchrun, started on the nodes by srun",
        choices=("auto", "torchrun", "deepspeed", "slurm"),
    )
    max_restarts: int | None = setting(
        None,
        "times to start again after a failure (default: 0)",
        minimum=0,
        maximum=MOST_RESTARTS,
        metavar="N",
    )
    min_nodes: int | None = setting(
        None,
        "fewest hosts to continue with after a failure (default: all of them)",
        minimum=1,
        maximum=MOST_NODES,
        metavar="N",
    )
    hang_timeout: float | None = _seconds(
        "a step may stand still, or 10 median steps if that is more (default: 60); another phase has more"
    )
    start_timeout: float | None = _seconds(
        "until the first steps are timed: data import, compilation (default: 1800)"
    )
    silence_timeout: float | None = _seconds("until a silent host or head counts as lost (default: 10)", 3)


@dataclass(frozen=True)
class ClusterFile:
    """A [cluster] section and the file and line of each of its keys; empty where a file has no section."""

    config: ClusterConfig = field(default_factory=ClusterConfig)
    places: Mapping[str, str] = field(default_factory=dict)

    def shown(self, key: str) -> str:
        """A key with its value and place, for messages."""
        return f"[cluster] {key}={getattr(self.config, key)} ({self.places[key]})"


def read_cluster(source: str) -> ClusterFile:
    """The [cluster] section of the preset or TOML file `source` ("" for none).

    Raises ConfigError naming file, line and key for a key or value that cannot be.
    """
    file = read_toml(find_config(source)) if source else None
    if file is None or "cluster" not in file.table:
        return ClusterFile()
    values = values_in(file, "cluster", ClusterConfig)
    return ClusterFile(ClusterConfig(**values), {key: file.location("cluster", key) for key in values})
