"""`alphazero bench scaling`: the model by hand, and a small measurement on two CPU ranks."""

import json

import pytest

from alphazero.cli.main import main
from benchmarks.scaling import GPU_COUNTS, Link, OwnSteps, forecast, steps_of_gpu_bench, text

LINK = Link("hosts of two", across_rate=100.0, gpus_per_host=2, latency_s=0.5, inside_rate=1000.0)


def test_steps_are_linear_between_sizes_level_below_and_proportional_above():
    own = OwnSteps({64: 1.0, 128: 1.5}, spread=0.0)
    assert [own.seconds(size) for size in (16, 64, 96, 128, 256)] == [1.0, 1.0, 1.25, 1.5, 3.0]


def test_a_step_is_the_slowest_rank_s_and_the_exchange():
    """Exact expectations of the largest of n normal numbers are 0, 0.564, 1.029, 1.424, 2.07 (n = 32)."""
    own = OwnSteps({64: 1.0}, spread=1.0)
    found = [own.step_s(64, ranks, 0.5) - 1.5 for ranks in (1, 2, 4, 8, 32)]
    assert found == pytest.approx([0.0, 0.564, 1.029, 1.424, 2.07], abs=0.03)


def test_an_all_reduce_crosses_within_hosts_and_over_hosts():
    assert LINK.all_reduce_s(100, 1) == 0.0
    # Two of one host: half of the bytes twice, two hops.
    assert LINK.all_reduce_s(100, 2) == pytest.approx(100 / 1000 + 1.0)
    # Four on two hosts: as above, and half of the bytes twice between the hosts; four hops.
    assert LINK.all_reduce_s(100, 4) == pytest.approx(100 / 1000 + 100 / 100 + 2.0)


def test_the_forecast_is_near_linear_where_steps_are_long_and_bounded_by_launches_where_they_are_short():
    own = OwnSteps({64: 0.02, 1024: 0.1, 4096: 0.4}, spread=0.01)
    rows = forecast(own, 100_000_000, 1024, 4096)
    found = {(row["gpus"], row["link"]): row for row in rows}
    assert {gpus for gpus, _ in found} == set(GPU_COUNTS)
    assert all(found[1, link]["weak"] == found[1, link]["strong"] == 1.0 for link in ("NVLink", "100 Gb/s"))
    assert found[8, "NVLink"]["weak"] > 7.5
    weak = [found[64, link]["weak"] for link in ("100 Gb/s", "400 Gb/s", "NVLink")]
    assert weak == sorted(weak) and weak[-1] <= 64
    # 4,096 positions over 64 GPUs are 64 each, which take 0.02 s however fast the network is.
    assert found[64, "NVLink"]["strong"] < 0.4 / 0.02


def test_the_tables_carry_the_model_where_steps_of_a_gpu_are_known(tmp_path):
    rows = [
        {"name": f"training bf16 zero0 {batch}", "figures": {"step_ms": batch / 20 + 5}}
        for batch in (256, 1024, 4096)
    ]
    other = {"name": "training bf16 zero0 1024 compile", "figures": {"step_ms": 1.0}}
    passes = {"name": "passes bf16 1024", "figures": {"parameters": 25_000_000}}
    own, gradient_bytes = steps_of_gpu_bench({"rehearsal": False, "rows": [passes, *rows, other]}, tmp_path)
    assert gradient_bytes == 10**8  # of that network, not of the one trained here
    assert own.seconds_by_positions[1024] == pytest.approx(0.0562)
    step = {"kind": "weak", "ranks": 1, "positions_per_rank": 8, "measured_s": 1.0, "predicted_s": 1.0}
    document = {
        "machine": {"device_name": "a GPU", "versions": {"torch": "2"}, "commit": "c"},
        "job": {"blocks": 1, "filters": 8, "precision": "fp32", "batch": 8},
        "scaling": [{**step, "speedup": 1.0, "predicted_speedup": 1.0}],
        "model_basis": {"source": "a GPU", "weak": 1024, "strong": 4096, "gradient_bytes": 10**8},
        "model": forecast(own, 10**8, 1024, 4096),
    }
    tables = text(document)
    assert "| 8 | " in tables and "5.0-7.0" in tables and "Modelled from" in tables
    assert "| weak | 1 | 8 |" in tables and "The model assumes:" in tables


@pytest.mark.slow
def test_measured_and_predicted_stand_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out = tmp_path / "scaling.json"
    flags = ["--device", "cpu", "--gpus", "2", "--blocks", "1", "--filters", "8", "--batch-size", "64"]
    assert main(["bench", "scaling", "--json", *flags, "--precision", "fp32", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    rows = {(row["kind"], row["ranks"]): row for row in found["scaling"]}
    assert set(rows) == {("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)}
    assert rows["weak", 2]["positions_per_rank"] == 64 and rows["strong", 2]["positions_per_rank"] == 32
    assert all(row["measured_s"] > 0 and row["predicted_s"] > 0 for row in rows.values())
    assert rows["weak", 1]["speedup"] == rows["strong", 1]["predicted_speedup"] == 1.0
    assert "no_model" in found
    assert main(["bench", "scaling", "--table", str(out)]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "21", "--gpus", "2"], "expected a batch that 2 ranks share evenly"),
        (["--into", "page.md"], "--into: expected --table FILE with it"),
        (["--steps-of", "none.json"], "none.json: "),
        (["--gpus", "0"], "expected a whole number"),
    ],
)
def test_a_slip_in_the_flags_is_one_line(flags, message, capsys, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert main(["bench", "scaling", "--device", "cpu", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
