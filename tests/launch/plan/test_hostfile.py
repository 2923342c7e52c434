"""The hostfile reader: what it takes, and what it says about everything else."""

import contextlib
import random
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.head.remote import ssh_argv
from alphazero.launch.plan.hostfile import Host, parse_hostfile, read_hostfile
from tests.support.paths import REPOSITORY


def test_hosts_come_in_the_order_of_the_file_with_users_addresses_and_comments():
    text = """# two racks
gpu-1 slots=8   # the master

me@10.0.0.7\tslots=4
[fd00::2] slots=2
FD00::3 slots=1
node_5.cluster.local slots=12
"""
    assert parse_hostfile(text, "hostfile") == (
        Host("gpu-1", 8, "", 2),
        Host("10.0.0.7", 4, "me", 4),
        Host("fd00::2", 2, "", 5),
        Host("fd00::3", 1, "", 6),
        Host("node_5.cluster.local", 12, "", 7),
    )
    assert parse_hostfile("me@10.0.0.7 slots=4", "hostfile")[0].name == "me@10.0.0.7"


def test_a_weight_is_the_share_of_each_rank_there_and_one_where_none_is_given():
    hosts = parse_hostfile("a slots=1 weight=0.5\nb slots=2\nc slots=1 weight=12", "h")
    assert [host.weight for host in hosts] == [0.5, 1.0, 12.0]


def test_actors_are_some_of_the_slots_or_all_of_them():
    hosts = parse_hostfile("a slots=8 actors=2\nb slots=8 actors=8\nc slots=1 weight=0.5 actors=0", "h")
    assert [(host.slots, host.actors, host.weight) for host in hosts] == [
        (8, 2, 1.0),
        (8, 8, 1.0),
        (1, 0, 0.5),
    ]


def test_carriage_returns_do_no_harm():
    assert parse_hostfile("a slots=1\r\nb slots=2\r\n", "h") == (Host("a", 1, "", 1), Host("b", 2, "", 2))


WANTED = "expected '<host> slots=<positive int>'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a slots=1\n\ngpu1 slots=x", f"hostfile:3: 'gpu1 slots=x': {WANTED}"),
        ("gpu1 slots=0", f"hostfile:1: 'gpu1 slots=0': {WANTED}"),
        ("gpu1 slots=-1", f"hostfile:1: 'gpu1 slots=-1': {WANTED}"),
        ("gpu1 slots=08", f"hostfile:1: 'gpu1 slots=08': {WANTED}"),
        ("gpu1 slots=8.0", f"hostfile:1: 'gpu1 slots=8.0': {WANTED}"),
        ("gpu1 slots=\u0668", f"hostfile:1: 'gpu1 slots=\u0668': {WANTED}"),  # an Arabic eight
        ("gpu1 slots = 8", f"hostfile:1: 'gpu1 slots = 8': {WANTED}"),
        ("gpu1", f"hostfile:1: 'gpu1': {WANTED}"),
        ("gpu1 8", f"hostfile:1: 'gpu1 8': {WANTED}"),
        ("slots=8", f"hostfile:1: 'slots=8': {WANTED}"),
        ("gpu1 slots=8 max_slots=9", f"hostfile:1: 'gpu1 slots=8 max_slots=9': {WANTED}"),
        (
            "gpu1 slots=8 weight=0",
            "hostfile:1: 'gpu1 slots=8 weight=0': expected weight=<number above 0>, as weight=0.5",
        ),
        (
            "gpu1 slots=8 weight=-1",
            "hostfile:1: 'gpu1 slots=8 weight=-1': expected weight=<number above 0>, as weight=0.5",
        ),
        (
            "gpu1 slots=8 actors=9",
            "hostfile:1: 'gpu1 slots=8 actors=9': expected actors=<0 to 8>, where 8 leave no rank there",
        ),
        (
            "gpu1 slots=8 actors=",
            "hostfile:1: 'gpu1 slots=8 actors=': expected actors=<0 to 8>, where 8 leave no rank there",
        ),
        ("gpu1 weight=2 slots=8", f"hostfile:1: 'gpu1 weight=2 slots=8': {WANTED}"),
        ("gpu1 slots=8 weight=2 weight=3", f"hostfile:1: 'gpu1 slots=8 weight=2 weight=3': {WANTED}"),
        ("gpu1 slots=8 weight=2 x", f"hostfile:1: 'gpu1 slots=8 weight=2 x': {WANTED}"),
        (
            "fe80::1%eth0 slots=1",
            f"hostfile:1: 'fe80::1%eth0 slots=1': {WANTED}; 'fe80::1%eth0' names no host",
        ),
        (
            "fe80::1%$(id) slots=1",
            f"hostfile:1: 'fe80::1%$(id) slots=1': {WANTED}; 'fe80::1%$(id)' names no host",
        ),
        ("gpu1 slots=50000", f"hostfile:1: 'gpu1 slots=50000': {WANTED}"),
        (
            "-oProxyCommand=x slots=1",
            f"hostfile:1: '-oProxyCommand=x slots=1': {WANTED}; '-oProxyCommand=x' names no host",
        ),
        ("$(id) slots=1", f"hostfile:1: '$(id) slots=1': {WANTED}; '$(id)' names no host"),
        (
            "10.0.0.256 slots=1",
            f"hostfile:1: '10.0.0.256 slots=1': {WANTED}; '10.0.0.256' names no host",
        ),
        ("fd00::g slots=1", f"hostfile:1: 'fd00::g slots=1': {WANTED}; 'fd00::g' names no host"),
        ("a:22 slots=1", f"hostfile:1: 'a:22 slots=1': {WANTED}; 'a:22' names no host"),
        ("@a slots=1", f"hostfile:1: '@a slots=1': {WANTED}, where '<host>' may be 'user@host'"),
        (
            "a slots=1\nb slots=1\nA slots=2",
            "hostfile:3: 'A slots=2': A is on line 1 already; expected each host once",
        ),
        ("", f"hostfile: names no host; {WANTED} on at least one line"),
        ("# nothing\n\n", f"hostfile: names no host; {WANTED} on at least one line"),
    ],
)
def test_every_other_line_is_an_error_that_names_it(text: str, message: str):
    with pytest.raises(LaunchError) as caught:
        parse_hostfile(text, "hostfile")
    assert str(caught.value) == message


@pytest.mark.parametrize("word", ["(", "[", "1", ":", "a."])
def test_an_endless_word_is_shown_in_part(word: str):
    with pytest.raises(LaunchError) as error:
        parse_hostfile(f"{word * 200000} slots=1", "hostfile")
    assert len(str(error.value)) < 500


def test_a_missing_or_unreadable_file_is_an_error_and_not_a_local_run(tmp_path: Path):
    with pytest.raises(LaunchError, match="No such file"):
        read_hostfile(tmp_path / "none")
    with pytest.raises(LaunchError, match="Is a directory"):
        read_hostfile(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"gpu1 slots=\xff")
    with pytest.raises(LaunchError, match=r"not text \(byte 11\)"):
        read_hostfile(binary)


SEEDS = [
    "gpu-1 slots=8",
    "me@10.0.0.1 slots=12",
    "[fd00::1] slots=3 # rack",
    "n_5.x.y slots=1 actors=1 weight=0.25",
]
PIECES = [
    "\u2028",
    "\x1b[2J",
    "\N{SNOWMAN}",
    "\x00",
    "\t",
    "::1",
    "%eth0",
    "slots=",
    "weight=",
    "actors=",
    "$(id)",
    "`id`",
]
PIECES += [";", "'", '"', "-o", "@", "\r", "1.5", "0", *string.printable]
SAFE = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:@-]*")


def mutated(rng: random.Random) -> str:
    """A line that is nearly good: up to three pieces put in, or letters taken out."""
    line = rng.choice(SEEDS)
    for _ in range(rng.randint(0, 3)):
        place = rng.randint(0, len(line))
        line = line[:place] + rng.choice(PIECES) + line[place + rng.randint(0, 2) :]
    return line


def grown(rng: random.Random) -> str:
    """A line by a grammar whose leaves may be wrong."""
    user = rng.choice(["", "", "me@", "a b@", "-l@", "@", "root;@"])
    labels = [
        rng.choice(["gpu", "n-1", "_", "x" * 64, "-x", "10", "0", "256"]) for _ in range(rng.randint(1, 5))
    ]
    host = rng.choice([".".join(labels), "[fd00::" + labels[0] + "]", "::1", "[" + labels[0]])
    slots = rng.choice(
        ["slots=1", "slots=8", "slots=0", "slots=4096", "slots=4097", "slots=1e3", "slots", ""]
    )
    weight = rng.choice(["", "", "weight=2", "weight=0.0", "weight=1e9", "weight=nan", "weight=0.000001"])
    return f"{user}{host} {slots} {weight} {rng.choice(['', '# note', '#'])}"


def test_ten_thousand_lines_are_read_or_refused_in_one_line_and_what_is_read_reads_as_itself():
    rng = random.Random(1)
    num_read = 0
    for number in range(10_000):
        if number % 3 == 0:
            line = rng.randbytes(rng.randint(0, 40)).decode("latin-1")
        else:
            line = mutated(rng) if number % 3 == 1 else grown(rng)
        line = line.replace("\n", " ")
        try:
            hosts = parse_hostfile(line, "h")
        except LaunchError as error:
            assert "\n" not in str(error)
            assert str(error).isprintable()
            continue
        num_read += 1
        (host,) = hosts
        assert SAFE.fullmatch(host.name), line  # nothing that a shell or ssh would act on
        assert 1 <= host.slots <= 9999
        assert host.weight > 0
        address = f"[{host.address}]" if ":" in host.address else host.address
        words = f"slots={host.slots} actors={host.actors} weight={host.weight:.6f}"
        again = f"{host.user}{'@' if host.user else ''}{address} {words}"
        assert parse_hostfile(again, "h") == (replace(host, line=1),), line
        assert ssh_argv(host.name, ["true"])[-2:] == [host.name, "true"]
    assert 1000 < num_read < 6000


def test_whole_files_of_bytes_are_read_or_refused_in_one_line(tmp_path: Path):
    rng = random.Random(2)
    path = tmp_path / "hostfile"
    for _ in range(300):
        path.write_bytes(rng.randbytes(rng.randint(0, 200)) + b"\n".join(line.encode() for line in SEEDS))
        with contextlib.suppress(LaunchError):
            assert read_hostfile(path)


def test_the_shipped_hostfile_suits_any_single_machine():
    assert [(host.name, host.slots) for host in read_hostfile(REPOSITORY / "hostfile")] == [("localhost", 1)]


@pytest.mark.slow
def test_deepspeed_reads_the_shipped_hostfile_alike():
    from deepspeed.launcher.runner import fetch_hostfile

    assert dict(fetch_hostfile(str(REPOSITORY / "hostfile"))) == {"localhost": 1}
