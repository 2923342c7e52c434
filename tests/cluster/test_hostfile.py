"""The hostfile reader: what it takes, and what it says about everything else."""

import random
import string
from pathlib import Path

import pytest

from alphazero.cluster.hostfile import Host, parse_hostfile, read_hostfile
from alphazero.errors import LaunchError

REPOSITORY = Path(__file__).resolve().parents[2]


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
        ("gpu1 slots=5000", "hostfile:1: 'gpu1 slots=5000': expected at most 4096 slots"),
        (
            "-oProxyCommand=x slots=1",
            f"hostfile:1: '-oProxyCommand=x slots=1': {WANTED}; '-oProxyCommand=x' is no host name",
        ),
        ("$(id) slots=1", f"hostfile:1: '$(id) slots=1': {WANTED}; '$(id)' is no host name"),
        (
            "10.0.0.256 slots=1",
            f"hostfile:1: '10.0.0.256 slots=1': {WANTED}; '10.0.0.256' is no IPv4 address",
        ),
        ("fd00::g slots=1", f"hostfile:1: 'fd00::g slots=1': {WANTED}; 'fd00::g' is no IPv6 address"),
        ("a:22 slots=1", f"hostfile:1: 'a:22 slots=1': {WANTED}; 'a:22' is no IPv6 address"),
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


def test_a_missing_or_unreadable_file_is_an_error_and_not_a_local_run(tmp_path: Path):
    with pytest.raises(LaunchError, match="cannot be read: No such file"):
        read_hostfile(tmp_path / "none")
    with pytest.raises(LaunchError, match="cannot be read: Is a directory"):
        read_hostfile(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"gpu1 slots=\xff")
    with pytest.raises(LaunchError, match=r"is not text \(byte 11\)"):
        read_hostfile(binary)


def test_no_line_whatever_makes_the_reader_fail_otherwise_than_with_one_line():
    rng = random.Random(1)
    pieces = ["\u2028", "\x1b[2J", "\N{SNOWMAN}", "\x00", "\t", "::1", "slots=", *string.printable]
    good = 0
    for _ in range(5000):
        line = rng.choice(["gpu-1 slots=8", "me@10.0.0.1 slots=12", "[fd00::1] slots=3 # rack"])
        for _ in range(rng.randint(0, 3)):
            place = rng.randint(0, len(line))
            line = line[:place] + rng.choice(pieces) + line[place + rng.randint(0, 1) :]
        try:
            hosts = parse_hostfile(line, "h")
        except LaunchError as error:
            assert "\n" not in str(error)
            assert str(error).isprintable()
        else:
            good += 1
            assert 1 <= len(hosts) <= 2
            assert len(hosts) == 1
            assert hosts[0].slots > 0
            assert not hosts[0].address.startswith("-")
    assert 1000 < good < 4000


def test_the_shipped_hostfile_suits_any_single_machine():
    assert [(host.name, host.slots) for host in read_hostfile(REPOSITORY / "hostfile")] == [("localhost", 1)]


@pytest.mark.slow
def test_deepspeed_reads_the_shipped_hostfile_alike():
    from deepspeed.launcher.runner import fetch_hostfile

    assert dict(fetch_hostfile(str(REPOSITORY / "hostfile"))) == {"localhost": 1}
