"""--include and --exclude in DeepSpeed's syntax, and every mistake that DeepSpeed would swallow."""

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.plan.hostfile import choose_hosts, parse_hostfile

HOSTS = parse_hostfile("worker-0 slots=2\nme@worker-1 slots=4\n[fd00::2] slots=1\n", "hostfile")


def left(include: str | None = None, exclude: str | None = None) -> dict[str, tuple[int, ...]]:
    """Slots by host."""
    chosen = choose_hosts(HOSTS, include, exclude, "--hostfile hostfile")
    return {host.address: host.chosen or tuple(range(host.slots)) for host in chosen}


def test_without_a_filter_all_slots_take_part():
    assert left() == {"worker-0": (0, 1), "worker-1": (0, 1, 2, 3), "fd00::2": (0,)}


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("worker-0@worker-1:0,2", {"worker-0": (0, 1), "worker-1": (0, 2)}),
        ("worker-1:2,0@WORKER-0:1", {"worker-0": (1,), "worker-1": (0, 2)}),  # the hostfile's order
        ("[FD00::2]:0", {"fd00::2": (0,)}),
    ],
)
def test_include_names_what_takes_part(include: str, expected: dict):
    assert left(include=include) == expected


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        ("worker-1:0", {"worker-0": (0, 1), "worker-1": (1, 2, 3), "fd00::2": (0,)}),
        ("worker-1@[fd00::2]", {"worker-0": (0, 1)}),
        ("worker-0:0,1", {"worker-1": (0, 1, 2, 3), "fd00::2": (0,)}),
    ],
)
def test_exclude_names_what_does_not(exclude: str, expected: dict):
    assert left(exclude=exclude) == expected


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["worker-0@worker-1:0,2", "worker-1:1,3"])
@pytest.mark.parametrize("flag", ["include", "exclude"])
def test_deepspeed_understands_the_same(flag: str, spec: str):
    from deepspeed.launcher.runner import parse_inclusion_exclusion

    pool = {host.address: host.slots for host in HOSTS}
    theirs = parse_inclusion_exclusion(
        pool, spec if flag == "include" else "", spec if flag == "exclude" else ""
    )
    assert {name: tuple(slots) for name, slots in theirs.items()} == left(**{flag: spec})


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"include": "remote"}, "--include remote: --hostfile hostfile has no host remote; expected some of"),
        ({"include": "worker-0:2"}, "--include worker-0:2: worker-0 has no slot 2; expected 0 to 1"),
        ({"exclude": "worker-0:7"}, "--exclude worker-0:7: worker-0 has no slot 7; expected 0 to 1"),
        ({"include": ""}, "--include : '': expected HOST or HOST:SLOT,SLOT"),
        ({"include": "worker-0@"}, "--include worker-0@: '': expected HOST or HOST:SLOT,SLOT"),
        ({"include": "worker-0:x"}, "--include worker-0:x: 'worker-0:x': expected HOST or HOST:SLOT,SLOT"),
        ({"include": "worker-0:"}, "--include worker-0:: 'worker-0:': expected HOST or HOST:SLOT,SLOT"),
        ({"include": "worker-0:1@worker-0:0"}, "--include worker-0:1@worker-0:0: names worker-0 twice"),
        ({"include": "worker-0:1,1"}, "--include worker-0:1,1: names a slot of worker-0 twice"),
        (
            {"exclude": "worker-0@worker-1@[fd00::2]"},
            "--exclude worker-0@worker-1@[fd00::2]: leaves no host of --hostfile hostfile",
        ),
        (
            {"include": "worker-0", "exclude": "worker-1"},
            "--include worker-0 contradicts --exclude worker-1: expected one of them",
        ),
    ],
)
def test_whatever_names_nothing_is_an_error(filters: dict, message: str):
    with pytest.raises(LaunchError) as caught:
        left(**filters)
    assert str(caught.value).startswith(message)
