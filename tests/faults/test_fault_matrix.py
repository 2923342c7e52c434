"""Each fault ends the job within 30 s: culprit named, nothing left behind, nobody else hurt, right status.

The head, ssh, agents and supervisor are the real ones on two hosts in namespaces; torchrun and the trainer
are stand-ins without torch (fake_launcher.py, fake_rank.py). test_faults_of_real_jobs.py has the real ones.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.faults.faulty_job import LIMIT_S
from tests.support.hosts.hosts import Host
from tests.support.hosts.real_job import error_line
from tests.support.paths import REPOSITORY


def test_an_undisturbed_job_ends_well_and_leaves_logs_of_all_ranks(start):
    job = start(num_steps=8)
    status, said = job.end()
    assert status == 0, said
    assert (job.run / "result").read_text() == str(sum(range(12)) * sum(range(1, 9)))
    logs = sorted(path.name for path in (job.run / "logs").iterdir())
    ranks = ["host1-rank0.log", "host1-rank1.log", "host2-rank2.log", "host2-rank3.log"]
    assert [name for name in logs if "rank" in name] == ranks
    for number, name in enumerate(ranks):
        assert f"rank {number} begins at step 0 of 8 on 4 ranks" in (job.run / "logs" / name).read_text()
    # Rank 0 speaks as it is, the others by name.
    assert "rank 0 begins at step 0 of 8 on 4 ranks" in said.splitlines()
    assert "host2 rank 3: rank 3 begins" in said


def test_a_killed_rank_is_named_with_its_host_and_log(start):
    job = start()
    job.wait_for_step(2)
    job.hosts[1].run("kill", "-9", str(job.rank_process(job.hosts[1], 3)))
    status, said = job.end()
    assert status == 128 + signal.SIGKILL
    assert re.search(
        r"rank 3 on host2 \(pid \d+\) was killed by SIGKILL.*\(log: host2:.*/logs/host2-rank3.log\)",
        error_line(said),
    )


@pytest.mark.parametrize(
    ("part", "who"),
    [
        ("node_agent", "host2 is lost"),
        pytest.param("fake_launcher", "host2 launcher", marks=pytest.mark.slow),
    ],
)
def test_a_killed_agent_or_launcher_leaves_no_rank_behind(start, part: str, who: str):
    job = start()
    job.wait_for_step(2)
    job.hosts[1].run("kill", "-9", str(job.process(job.hosts[1], part)))
    status, said = job.end()
    assert status == (1 if part == "node_agent" else 128 + signal.SIGKILL)
    assert f"error: {who}" in error_line(said)
    assert ("killed by a signal" if part == "node_agent" else "SIGKILL") in error_line(said)


@pytest.mark.slow
def test_a_host_cut_off_is_named_and_ends_its_ranks_by_itself(start):
    job = start()
    job.wait_for_step(2)
    job.hosts[1].cut_off()
    status, said = job.end()
    assert status == 1
    assert "host2 is lost" in error_line(said)


def test_a_stopped_rank_is_found_and_every_rank_shows_its_stack(start):
    job = start(limits={"step_s": 3.0})
    job.wait_for_step(30, limit_s=20)
    job.hosts[1].run("kill", "-STOP", str(job.rank_process(job.hosts[1], 2)))
    status, said = job.end()
    assert status == 124
    assert re.search(
        r"error: rank 2 on host2 \(pid \d+\) stands still in step \d+ .*, its process is stopped", said
    )
    for rank in range(4):
        log = job.run / "logs" / f"host{rank // 2 + 1}-rank{rank}.log"
        assert "most recent call first" in log.read_text()
        assert "fake_rank.py" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("limit_s", [1.5, 6.0])
def test_a_stopped_rank_is_found_as_soon_as_the_limit_says(start, limit_s: float):
    job = start(limits={"step_s": limit_s})
    job.wait_for_step(30, limit_s=20)
    job.hosts[1].run("kill", "-STOP", str(job.rank_process(job.hosts[1], 2)))
    status, said = job.end()
    assert status == 124
    found = re.search(r"error: rank 2 on host2 .* stands still in step \d+ \(\w+\) for (\d+) s", said)
    assert found, said
    # Looked at once a second, on both sides.
    assert limit_s - 1 <= int(found[1]) <= limit_s + 4


SETTABLE_CLOCK = """
import time
def set_time(real_time=time.time):
    with open({file!r}) as file:
        return real_time() + float(file.read())
time.time = set_time
"""


@pytest.mark.slow
def test_clocks_that_are_set_end_nothing_and_a_hang_is_still_found(start, tmp_path):
    """Those of all hosts, in every process of the job: back by a minute, on by an hour, back again."""
    ahead_s = tmp_path / "ahead_s"
    ahead_s.write_text("0")

    def set_clock(seconds: int) -> None:
        temporary = tmp_path / "new"
        temporary.write_text(str(seconds))
        temporary.replace(ahead_s)

    def give_clock(directory: Path) -> None:
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(SETTABLE_CLOCK.format(file=str(ahead_s)))

    give_clock(tmp_path / "packages")
    job = start(
        before=lambda hosts: [give_clock(host.directory / "packages") for host in hosts],
        environment={"PYTHONPATH": f"{tmp_path / 'packages'}:{REPOSITORY}"},
        limits={"step_s": 2.0, "start_s": 20.0},
        step_s=0.1,
    )
    step = 30
    job.wait_for_step(step, limit_s=40)
    for seconds in (-60, 3600, -20):
        set_clock(seconds)
        step += 40  # twice as long as the limit
        job.wait_for_step(step, limit_s=40)
    job.hosts[1].run("kill", "-STOP", str(job.rank_process(job.hosts[1], 2)))
    set_clock(40)
    status, said = job.end()
    assert status == 124
    assert re.search(r"error: rank 2 on host2 .* stands still in step \d+ .*, its process is stopped", said)


def test_the_head_killed_takes_every_host_with_it(start):
    job = start()
    job.wait_for_step(2)
    inner = job.process(job.hosts[0], "fake_head")
    job.hosts[0].run("kill", "-9", str(inner))
    begun = time.monotonic()
    job.head.wait(10)
    for host in job.hosts:
        host.wait_until_idle(limit_s=LIMIT_S)
    assert time.monotonic() - begun < LIMIT_S
    job.assert_decoys_live()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGUSR1])
def test_one_ctrl_c_or_slurm_s_warning_lets_ranks_save_and_the_next_start_goes_on_from_there(start, number):
    job = start(num_steps=100)
    job.wait_for_step(7)
    job.hosts[0].run("kill", f"-{number}", str(job.process(job.hosts[0], "fake_head")))
    status, said = job.end()
    assert status == 128 + number
    assert "stopping: ranks" in said
    stopped = [int(found) for found in re.findall(r"stopped after step (\d+)", said)]
    assert len(stopped) == 4
    assert len(set(stopped)) == 1
    assert (job.run / "checkpoints" / f"step-{stopped[0]:08d}").is_dir()
    assert not re.search("error", said)


@pytest.mark.slow
def test_a_host_that_is_told_to_end_saves_and_the_job_starts_again(start):
    """As a machine that shuts down tells all its processes."""
    job = start(num_steps=60, max_restarts=1)
    job.wait_for_step(7)
    job.hosts[1].run("kill", "-TERM", str(job.process(job.hosts[1], "node_agent")))
    job.wait_for_output("restart 1 of 1")
    status, said = job.end()
    assert status == 0, said
    assert "host2 was asked" in said and "SIGTERM" in said
    stopped = re.search(r"rank 0 stopped after step (\d+)", said)
    assert stopped, said
    assert f"rank 0 begins at step {stopped[1]} of 60" in said
    assert (job.run / "result").read_text() == str(sum(range(12)) * sum(range(1, 61)))


@pytest.mark.slow
def test_the_second_ctrl_c_ends_all_at_once(start):
    job = start(step_s=20.0)  # no step ends: the first request is not answered
    job.wait_for_step(0)
    head = str(job.process(job.hosts[0], "fake_head"))
    job.hosts[0].run("kill", "-INT", head)
    time.sleep(1.0)
    begun = time.monotonic()
    job.hosts[0].run("kill", "-INT", head)
    status, said = job.end()
    assert time.monotonic() - begun < 15
    assert status == 128 + signal.SIGINT
    assert "ending at once" in said


def mount_small_disk(host: Host, path: Path, size: str) -> None:
    """A file system of its own at `path` on that host."""
    path.mkdir(exist_ok=True)
    host.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))


def test_a_disk_that_fills_up_is_named_with_its_file(start, tmp_path):
    job = start(
        before=lambda hosts: mount_small_disk(hosts[0], tmp_path / "runs", "8g"),
        environment={"ALPHAZERO_TEST_BYTES": "9000000"},
    )
    job.wait_for_output("rank 0 begins")
    job.hosts[0].run("mount", "-o", "remount,size=4m", str(tmp_path / "runs"))
    status, said = job.end()
    assert status == 2, said
    # Rank 0's checkpoint, or a heartbeat of its neighbour that came at the same moment.
    assert re.search("rank [01] on host1.*No space left", error_line(said))


def test_a_disk_too_small_from_the_start_starts_nothing(start, tmp_path):
    job = start(before=lambda hosts: mount_small_disk(hosts[1], tmp_path / "runs", "4m"))
    status, said = job.end()
    assert status == 2
    assert re.search("error: host2: health fail: host2: disk_free_mib = [0-9]", said)


def spoil_known_hosts(hosts: list[Host]) -> None:
    """host1 remembers another key of host2."""
    known = hosts[0].directory / "ssh" / "known_hosts"
    lines = known.read_text().splitlines()
    lines[1] = lines[1].split()[0] + " " + " ".join(lines[0].split()[1:])
    known.write_text("\n".join(lines) + "\n")


def name_host1_loopback(hosts: list[Host]) -> None:
    """As Debian writes it: a host's own name is 127.0.1.1 in its /etc/hosts."""
    file = hosts[0].directory / "hosts"
    file.write_text(file.read_text().replace("10.213.57.1 host1", "127.0.1.1 host1"))


def name_host1_otherwise(hosts: list[Host]) -> None:
    """host1 has two addresses, and knows itself by the one that the others do not use."""
    hosts[0].run("ip", "address", "add", "10.99.0.1/32", "dev", "lo")
    file = hosts[0].directory / "hosts"
    file.write_text(file.read_text().replace("10.213.57.1 host1", "10.99.0.1 host1"))


def forbid_python(hosts: list[Host]) -> None:
    """An interpreter that nobody may execute on host2."""
    stub = hosts[1].directory / "python"
    stub.touch(mode=0o644)
    hosts[1].run("mount", "--bind", str(stub), sys.executable)


def give_another_torch(hosts: list[Host]) -> None:
    """A newer torch's metadata comes first on host2's PYTHONPATH (its sshd sets it)."""
    info = hosts[1].directory / "packages" / "torch-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")


def hide_checkout(hosts: list[Host]) -> None:
    """An empty directory where host2 should have the checkout."""
    empty = hosts[1].directory / "empty"
    empty.mkdir()
    hosts[1].run("mount", "--bind", str(empty), str(REPOSITORY))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        pytest.param(
            lambda hosts: hosts[1].cut_off(),
            "host2: no answer; expected a host that is up",
            id="down",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            spoil_known_hosts,
            "host2: its ssh host key is not the one in known_hosts; expected",
            id="host key",
        ),
        pytest.param(
            hide_checkout, f"host2: no code at {REPOSITORY}; expected the same path", id="no checkout"
        ),
        pytest.param(give_another_torch, "host2: torch 9.9.9; expected 2.", id="other torch"),
        pytest.param(
            name_host1_loopback,
            "host1: master address host1 is 127.0.1.1 there, which other hosts cannot reach",
            id="loopback",
        ),
        pytest.param(
            name_host1_otherwise,
            "host2: master address host1 is 10.213.57.1 there, 10.99.0.1 on host1",
            id="two addresses",
        ),
        pytest.param(forbid_python, f"host2: may not run {sys.executable}", id="forbidden python"),
    ],
)
def test_what_the_host_comparison_finds_is_one_line_and_starts_nothing(start, spoil, expected: str):
    job = start(before=spoil)
    status, said = job.end()
    assert status == 2
    assert f"alphazero: error: {expected}" in said
    assert "nothing started" in said
    assert "Traceback" not in said
    assert not job.run.exists()


def take_port(hosts: list[Host]) -> None:
    """Somebody listens on the job's port on host1."""
    program = "import socket, time; s = socket.create_server(('', 23456)); time.sleep(1000)"
    listener = hosts[0].popen("python3", "-c", program)
    while ":23456" not in hosts[0].run("ss", "-tln"):
        assert listener.poll() is None
        time.sleep(0.05)


def test_a_port_in_use_that_the_user_chose_is_an_error_that_suggests_another(start):
    job = start(before=take_port, port_is_chosen=True)
    status, said = job.end()
    assert status == 2
    assert re.search(
        "error: host1: port 23456 is in use; expected a free one: --master-port [1-9][0-9]+", said
    )


@pytest.mark.slow
def test_a_port_in_use_that_nobody_chose_is_replaced(start):
    job = start(before=take_port, num_steps=8)
    status, said = job.end()
    assert status == 0, said


def test_fewer_gpus_than_slots_start_nothing(start):
    job = start(device="cuda")
    status, said = job.end()
    assert status == 2
    assert all(f"host{host}: slots=2, but 0 GPUs" in said for host in (1, 2))
    assert not job.run.exists()


@pytest.mark.slow
def test_a_terminal_that_is_held_does_not_end_the_job(start):
    """Nobody reads what the head says for longer than agents wait for a silent head."""
    reader, writer = os.pipe()
    chatter = {"ALPHAZERO_TEST_CHATTER": "1"}
    job = start(num_steps=150, step_s=0.1, environment=chatter, output=writer, limits={"silence_s": 4.0})
    os.close(writer)
    time.sleep(12)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    assert job.end()[0] == 0, said
    assert (job.run / "result").exists()


@pytest.mark.slow
def test_a_terminal_that_is_closed_does_not_end_the_job(start):
    reader, writer = os.pipe()
    job = start(num_steps=30, environment={"ALPHAZERO_TEST_CHATTER": "1"}, output=writer)
    os.close(writer)
    os.close(reader)
    assert job.end()[0] == 0
    assert (job.run / "result").exists()
