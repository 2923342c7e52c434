"""The [cluster] section of a TOML file beside flags, hostfile and environment."""

from pathlib import Path

import pytest

from alphazero.base.errors import AlphaZeroError, ConfigError
from alphazero.launch.plan.sources import LaunchRequest
from alphazero.run.rank_watch import Limits
from tests.support.launch.resolving import TWO, cluster


@pytest.fixture
def toml(tmp_path: Path):
    """Writes a TOML file with a [cluster] section, gives its path."""

    def write(section: str) -> Path:
        path = tmp_path / "c.toml"
        path.write_text(f"[training]\nbatch_size = 64\n\n[cluster]\n{section}\n")
        return path

    return write


def test_a_cluster_is_described_once_in_the_toml(toml, hostfile):
    path = hostfile("box slots=2\nme@other slots=4 weight=0.5\n")
    config = toml(
        f'hostfile = "{path}"\nmaster_addr = "10.0.0.5"\n'
        "master_port = 6000\n"
        'interface = "eth0"\nlauncher = "deepspeed"\nmax_restarts = 3\nmin_nodes = 1\n'
        'exclude = "other:0"'
    )
    found = cluster(LaunchRequest(), config=config)
    assert [(part.address, part.num_ranks, part.weight, part.slots) for part in found.hosts] == [
        ("box", 2, 1.0, ()),
        ("other", 3, 0.5, (1, 2, 3)),
    ]
    assert (found.role, found.master_addr, found.master_port) == ("head", "10.0.0.5", 6000)
    assert (found.launcher, found.interface) == ("deepspeed", "eth0")
    assert (found.max_restarts, found.min_nodes) == (3, 1)


def test_limits_come_from_flags_then_the_toml_then_the_defaults(toml):
    config = toml("hang_timeout = 20\nsilence_timeout = 30")
    limits = cluster(LaunchRequest(hang_timeout=7.0, start_timeout=60.0), config=config).limits
    assert limits == Limits(step_s=7.0, start_s=60.0, silence_s=30.0)
    assert cluster(LaunchRequest()).limits == Limits()


def test_no_phase_is_held_to_less_than_a_step():
    limits = cluster(LaunchRequest(hang_timeout=400.0)).limits
    assert (limits.step_s, limits.pause_s, limits.games_s, limits.shutdown_s) == (400, 600, 400, 400)


def test_a_flag_beats_the_toml_in_what_is_a_choice(toml):
    config = toml('master_port = 6000\ninterface = "eth0"\nlauncher = "deepspeed"')
    found = cluster(LaunchRequest(master_port=7000, interface="lo", launcher="torchrun"), config=config)
    assert (found.master_port, found.interface, found.launcher) == (7000, "lo", "torchrun")
    assert cluster(LaunchRequest(launcher="auto"), config=config).launcher == "torchrun"


@pytest.mark.parametrize(
    ("section", "request_", "environment", "message"),
    [
        ("nodes = 2", {"nodes": 3}, {}, "--nodes 3 contradicts [cluster] nodes=2 ({path}:5)"),
        ("\ngpus = 2", {"gpus": 3}, {}, "--gpus 3 contradicts [cluster] gpus=2 ({path}:6)"),
        ("nodes = 3", {}, TWO, "[cluster] nodes=3 ({path}:5) contradicts SLURM_NNODES=2"),
        ("gpus = 0", {}, {}, "[cluster] gpus=0 ({path}:5): expected a number of processes from 1"),
        ('host_weights = ["a=2"]', {}, {}, "{path}:5: 'host_weights' = ['a=2']: no such setting"),
        ("node = 2", {}, {}, "{path}:5: 'node' = 2: no such setting; did you mean nodes? Expected"),
        ("nodes = 0", {}, {}, "{path}:5: nodes: 0: expected a whole number from 1 to 65536"),
        ('nodes = "x"', {}, {}, "{path}:5: nodes: 'x': expected a whole number"),
        ("master_port = 65536", {}, {}, "{path}:5: master_port: 65536: expected a whole number from 1 to"),
        ('launcher = "mpi"', {}, {}, "{path}:5: launcher: 'mpi': expected one of auto, torchrun"),
    ],
)
def test_a_section_that_cannot_be_is_an_error_with_its_line(
    toml, section: str, request_: dict, environment: dict[str, str], message: str
):
    path = toml(section)
    with pytest.raises(AlphaZeroError) as caught:
        cluster(LaunchRequest(**request_), config=path, **environment)
    assert str(caught.value).startswith(message.format(path=path))


def test_the_hostfile_of_a_flag_beats_another_list_of_hosts(toml, hostfile):
    path = hostfile("a slots=1\nb slots=1\n")
    found = cluster(LaunchRequest(hostfile=path), config=toml('hostfile = "nowhere"'))
    assert [host.address for host in found.hosts] == ["a", "b"]


def test_the_trainer_ignores_the_cluster_section_and_no_other(toml):
    from alphazero.settings.load import load_config

    path = toml("nodes = 2")
    assert load_config(str(path), {}).training.batch_size == 64
    path.write_text("[clusters]\nnodes = 2\n")
    with pytest.raises(ConfigError, match="no such section"):
        load_config(str(path), {})
