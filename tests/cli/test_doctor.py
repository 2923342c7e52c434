"""`alphazero doctor` as typed, and its arithmetic."""

import json
import subprocess
import sys

import pytest

from alphazero.cli.main import main
from alphazero.cli.training.doctor import (
    Computer,
    cost_lines,
    cpu_peak,
    gpu_peak,
    preset_cost,
    rate,
)


def test_quick_shows_environment_and_health_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from alphazero.cli.main import main\n"
        "sys.exit(main(['doctor', '--quick', '--json', '--device', 'cpu']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["format"], found["version"], found["presets"]) == ("alphazero-doctor", 4, [])
    assert found["environment"]["packages"]["torch"]
    assert found["health"]["findings"]


def test_quick_is_a_page_for_people(capsys):
    assert main(["doctor", "--quick", "--device", "cpu"]) == 0
    page = capsys.readouterr().out
    for subject in ("git", "packages", "driver", "processor", "memory"):
        assert any(line.startswith(subject) for line in page.splitlines())


@pytest.mark.parametrize("flags", [["--presets", "chess_gpu"], ["--gpus", "-1"], ["--device", "tpu"]])
def test_a_mistake_is_one_line(capsys, flags):
    assert main(["doctor", *flags]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("alphazero: error: ")
    assert all(word in error for word in flags)


def test_presets_cost_what_their_arithmetic_says(capsys):
    flags = ["--presets", "chess_20x256", "connect4", "--gpus", "4", "--device", "cpu"]
    assert main(["doctor", *flags, "--json"]) == 0
    tower, four = json.loads(capsys.readouterr().out)["presets"]
    assert tower["parameters"] == 24_843_715
    assert (four["game"], four["network"], four["fits"]) == ("connect4", "5x64", True)


def test_hours_follow_from_the_peak_and_include_the_games_that_a_preset_plays():
    computer = Computer("cuda", 8, 80 << 30, 8 * 989e12)
    chess, four = preset_cost("chess_20x256", computer), preset_cost("connect4", computer)
    assert chess.trains == pytest.approx(0.34 * 8 * 989e12 / (3 * chess.flop))
    assert chess.hours == pytest.approx(1e6 / chess.trains / 3600)
    assert four.plays == pytest.approx(0.63 * 8 * 989e12 / four.flop / 64)
    assert four.hours == pytest.approx((1e6 / four.trains + 1e6 / 4 / four.plays) / 3600)
    lines = cost_lines([chess, four], computer)
    assert lines[1].split()[:2] == ["chess_20x256", "chess"]
    assert lines[1].split()[-3:] == ["7", "of", "8"]
    assert "8 ranks (cuda)" in "\n".join(lines)


def test_as_many_devices_should_play_as_feed_those_that_train():
    """By hand: a GPU plays 180 positions of 20x256 a second, each is used 4 times, and one trains on 35,566;
    of Connect Four 279,585, 4 times, and 3.2 M: with 6 of 8 both come to 6.4 to 6.7 M, with 5 to 5.6 M."""
    costs = [
        preset_cost(preset, Computer("cuda", ranks, 80 << 30, ranks * 989e12)).actors
        for preset, ranks in (("chess_20x256", 8), ("connect4", 8), ("connect4", 2), ("connect4", 1))
    ]
    assert costs == [7, 6, 1, 0]


def test_one_h100_would_train_20x256_as_it_was_recorded():
    cost = preset_cost("chess_20x256", Computer("cuda", 1, 80 << 30, 989e12))
    # docs/performance.md, batches of 1,024 of a plain tower
    assert cost.trains == pytest.approx(35_388, rel=0.03)


def test_what_no_memory_holds_does_not_fit_and_without_a_peak_nothing_is_estimated():
    small = preset_cost("chess_1b", Computer("cuda", 1, 6 << 30, 0.0))
    assert small.fits is False
    assert (small.trains, small.plays, small.hours) == (None, None, None)
    assert preset_cost("chess_1b", Computer("cuda", 1, 80 << 30, 0.0)).fits
    assert preset_cost("connect4", Computer("cuda", 1, 0, 0.0)).fits is None
    assert cost_lines([small], Computer("cuda", 1, 6 << 30, 0.0))[1].split()[-5:] == [
        "no",
        "?",
        "?",
        "?",
        "?",
    ]


def test_a_cpu_has_a_measured_peak_and_a_gpu_the_one_of_its_data_sheet():
    assert 1e8 < cpu_peak() < 1e14
    assert gpu_peak("NVIDIA H100 80GB HBM3") == 989e12
    assert gpu_peak("NVIDIA H100 PCIe") == 756e12
    assert gpu_peak("NVIDIA T4") == 0.0


def test_rates_keep_three_digits():
    assert [rate(value) for value in (1.4371, 18.06, 723.2, 12345.6)] == ["1.44", "18.1", "723", "12,346"]
