"""`alphazero doctor` as typed."""

import json
import subprocess
import sys

import pytest

from alphazero.cli.main import main


def test_quick_shows_the_environment_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from alphazero.cli.main import main\n"
        "sys.exit(main(['doctor', '--quick', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["format"], found["version"]) == ("alphazero-doctor", 2)
    (host,) = found["hosts"]
    assert host["presets"] == host["estimates"] == []
    assert host["environment"]["packages"]["torch"]


def test_quick_is_a_page_for_people(capsys):
    assert main(["doctor", "--quick"]) == 0
    page = capsys.readouterr().out
    for subject in ("commit", "packages", "CUDA", "processor", "memory", "ports"):
        assert any(line.startswith(subject) for line in page.splitlines())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--presets", "chess_gpu"], "chess_gpu"),
        (["--seconds", "0"], "--seconds"),
        (["--hostfile", "/nowhere"], "--hostfile /nowhere: cannot be read"),
        (["--sizes", "--quick"], "--sizes: not with --hostfile or --quick"),
        (["--hostfile", "/nowhere", "--gpus", "2"], "--gpus: not with --hostfile"),
    ],
)
def test_a_mistake_is_one_line(capsys, flags, message):
    assert main(["doctor", *flags]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("alphazero: error: ")
    assert message in error


def test_sizes_are_told_with_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    """chess_20x256: 24.9 M numbers, of which a rank of stage 0 keeps 16 bytes each."""
    assert main(["doctor", "--sizes", "--presets", "chess_20x256", "chess_t1", "--gpus", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["version"], found["ranks"]) == ("alphazero-sizes", 1, 4)
    tower, attention = found["presets"]
    assert tower["rank_bytes"][0] == 16 * tower["parameters"] == 16 * 24_901_516
    assert tower["rank_bytes"] == sorted(tower["rank_bytes"], reverse=True)
    assert tower["step_flop"] == 3 * tower["flop"]
    assert list(tower["kept_bytes"]) == ["none"]
    assert list(attention["kept_bytes"]) == ["none", "scores", "encoders"]


def test_sizes_are_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--sizes", "--presets", "connect4", "chess_t1", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("preset", "network", "parameters", "FLOP", "none", "scores", "encoders"),
        *("ZeRO", "0", "ZeRO", "1", "ZeRO", "2", "ZeRO", "3"),
    ]
    assert lines[1].split()[:5] == ["connect4", "connect4", "5x64", "0.6", "M"]
    assert lines[-1].endswith("of each of 1 rank.")


@pytest.mark.slow
def test_a_preset_is_measured_by_two_ranks(capsys, tmp_path):
    flags = ["--presets", "connect4", "--seconds", "3", "--gpus", "2", "--device", "cpu"]
    assert main(["doctor", *flags, "--runs-dir", str(tmp_path), "--json"]) == 0
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    (preset,) = host["presets"]
    assert (preset["preset"], preset["ranks"], preset["device"]) == ("connect4", 2, "cpu")
    assert preset["trains"] > 1
    assert preset["plays"] > 1
    assert 0 < preset["share_of_peak"] < 1
    assert preset["memory_bytes"] > 64 << 20
    assert host["estimates"][0]["hours"] > 0
    assert host["disk"]["directory"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
