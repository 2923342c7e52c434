"""Host memory is what the tightest of machine and control groups leaves."""

from types import SimpleNamespace

import psutil
import pytest

from alphazero.machine.memory import memory_error, memory_limits, read_memory

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """What is read under a root directory with files of the kernel."""

    def build(files, available=50 * GIB, total=100 * GIB):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        memory = SimpleNamespace(available=available, total=total)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
        return read_memory(tmp_path)

    return build


def test_without_control_groups_it_is_what_psutil_says(machine):
    state = machine({})
    assert (state.available_bytes, state.total_bytes) == (50 * GIB, 100 * GIB)
    assert str(state) == "50.0 GiB of 100.0 GiB host memory available"


def test_a_version_2_limit_counts_and_its_page_cache_is_free(machine):
    group = "sys/fs/cgroup/user/job"
    state = machine(
        {
            "proc/self/cgroup": "0::/user/job\n",
            f"{group}/memory.max": f"{8 * GIB}\n",
            f"{group}/memory.current": f"{7 * GIB}\n",
            f"{group}/memory.stat": f"anon 5\nactive_file {GIB}\ninactive_file {2 * GIB}\nslab 9\n",
        }
    )
    assert (state.available_bytes, state.total_bytes) == (4 * GIB, 8 * GIB)


def test_the_tightest_of_nested_groups_wins(machine):
    state = machine(
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/outer/memory.max": f"{6 * GIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{5 * GIB}\n",
        }
    )
    assert (state.available_bytes, state.total_bytes) == (GIB, 6 * GIB)


def test_a_version_1_limit_counts(machine):
    group = "sys/fs/cgroup/memory/job"
    state = machine(
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/elsewhere\n4:memory:/job\n0::/\n",
            f"{group}/memory.limit_in_bytes": f"{4 * GIB}\n",
            f"{group}/memory.usage_in_bytes": f"{3 * GIB}\n",
            f"{group}/memory.stat": f"active_file 1\ntotal_active_file {GIB}\ntotal_inactive_file 0\n",
        }
    )
    assert (state.available_bytes, state.total_bytes) == (2 * GIB, 4 * GIB)


def test_a_container_that_sees_only_its_own_group_finds_it_at_the_mount(machine):
    state = machine(
        {
            "proc/self/cgroup": "4:memory:/docker/0123abcd\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        }
    )
    assert (state.available_bytes, state.total_bytes) == (GIB, 2 * GIB)


def test_groups_without_a_limit_change_nothing(machine):
    state = machine(
        {
            "proc/self/cgroup": "4:memory:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/memory.current": f"{GIB}\n",
        }
    )
    assert state.total_bytes == 100 * GIB


def test_more_used_than_allowed_is_nothing_available(machine):
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "100",
        "sys/fs/cgroup/memory.current": "101",
    }
    state = machine(files)
    assert state.available_bytes == 0 and state.is_critical


@pytest.mark.parametrize(("available", "critical"), [(3.1, False), (2.9, True)])
def test_critical_is_below_three_hundredths(machine, available, critical):
    assert machine({}, available=int(available * GIB)).is_critical is critical


def test_on_this_machine_it_agrees_with_psutil():
    state = read_memory()
    limits = [limit for limit, _ in memory_limits()]
    assert state.total_bytes == min([psutil.virtual_memory().total, *limits])
    assert 0 < state.available_bytes <= state.total_bytes


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`",
        "CUDA driver error: out of memory",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "NCCL error: unhandled cuda error. Last error: Cuda failure 'out of memory'",
        "NCCL error: Last error: Failed to CUDA calloc async 608 bytes",
        "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried",
    ],
)
def test_an_error_of_memory_is_known_whoever_words_it(text):
    error = RuntimeError(text)
    assert memory_error(error) is error
    outer = RuntimeError("the capture failed")
    outer.__cause__ = error
    assert memory_error(outer) is error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("NCCL error: remote process exited or there was a network error"),
        ValueError("the words out of memory in a message of another kind"),
    ],
)
def test_another_error_is_none_of_memory(error):
    assert memory_error(error) is None


def test_torch_s_and_python_s_own_types_are_known_whatever_they_say():
    torch_s = type("OutOfMemoryError", (RuntimeError,), {})
    assert memory_error(torch_s("no")) is not None
    assert memory_error(MemoryError()) is not None
