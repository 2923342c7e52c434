"""What control groups allow: the tightest of this process and its parents counts, in both versions."""

import os

import pytest

from alphazero.machine.machine import THREADS_VARIABLE
from alphazero.machine.memory import count_cores, count_processors, memory_limits, processor_quota
from alphazero.run.rank import OUTPUT_VARIABLE
from alphazero.training.ranks.runtime import default_threads


@pytest.fixture
def root(tmp_path):
    """Write files of the kernel under a root directory."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_without_control_groups_nothing_is_limited(root):
    assert processor_quota(root({})) is None
    assert count_processors(root({})) == len(os.sched_getaffinity(0))


def test_the_quota_of_a_parent_counts_in_version_2(root):
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
        "sys/fs/cgroup/outer/cpu.max": "150000 100000\n",
    }
    assert processor_quota(root(files)) == 1.5
    assert count_cores(root(files)) == count_processors(root(files)) == 1


def test_the_tighter_of_nested_quotas_counts(root):
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/outer/cpu.max": "400000 100000\n",
    }
    assert processor_quota(root(files)) == 0.5
    assert count_cores(root(files)) == count_processors(root(files)) == 1


@pytest.mark.parametrize("mounted_as", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_1_counts(root, mounted_as):
    group = f"sys/fs/cgroup/{mounted_as}/job"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/elsewhere\n0::/\n",
        f"{group}/cpu.cfs_quota_us": "300000\n",
        f"{group}/cpu.cfs_period_us": "100000\n",
        f"sys/fs/cgroup/{mounted_as}/cpu.cfs_quota_us": "-1\n",
        f"sys/fs/cgroup/{mounted_as}/cpu.cfs_period_us": "100000\n",
    }
    assert processor_quota(root(files)) == 3.0


def test_a_container_finds_its_own_group_at_the_mount(root):
    files = {"proc/self/cgroup": "0::/docker/0123abcd\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert processor_quota(root(files)) == 2.0


def test_version_2_beside_version_1_is_found_at_its_own_mount(root):
    files = {
        "proc/self/cgroup": "4:memory:/job\n0::/job\n",
        "sys/fs/cgroup/unified/job/memory.max": "1000\n",
        "sys/fs/cgroup/unified/job/memory.current": "400\n",
    }
    assert list(memory_limits(root(files))) == [(1000, 400)]


def test_threads_are_the_processors_shared_by_the_ranks_of_a_host():
    assert default_threads(1, {}) == count_processors()
    assert default_threads(10_000, {}) == 1


def test_omp_num_threads_of_the_user_counts_whoever_starts_the_ranks():
    most = count_processors()
    assert default_threads(2, {"OMP_NUM_THREADS": "3"}) == 3
    assert default_threads(1, {"OMP_NUM_THREADS": "x"}) == most
    torchrun = {"TORCHELASTIC_RUN_ID": "job"}
    assert default_threads(2, {"OMP_NUM_THREADS": "3", **torchrun}) == 3
    assert default_threads(2, {"OMP_NUM_THREADS": "1", **torchrun}) == max(1, most // 2)  # torchrun's own
    launched = {OUTPUT_VARIABLE: "/tmp", **torchrun}
    assert default_threads(1, {"OMP_NUM_THREADS": "3", **launched}) == most  # the launcher's choice
    assert default_threads(2, {"OMP_NUM_THREADS": "1", THREADS_VARIABLE: "1", **launched}) == 1
