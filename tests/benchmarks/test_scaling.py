"""`alphazero bench scaling`: the model's arithmetic by hand, the measurement on CPU ranks at tiny sizes."""

import json

import pytest

from alphazero.cli.main import main
from benchmarks.scaling_parts.model import (
    GPU_COUNTS,
    Link,
    OwnSteps,
    all_reduce_s,
    forecast,
    slowest_score,
    step_s,
)

TINY = (
    *("--device", "cpu", "--gpus", "2", "--blocks", "1", "--filters", "8", "--batch", "8"),
    *("--micro-batch", "8", "--precision", "fp32", "--steps", "3", "--rounds", "1"),
)
LINK = Link("hosts of two", inside_rate=1000.0, across_rate=100.0, gpus_per_host=2, latency_s=0.5, source="")


def test_steps_are_linear_between_sizes_level_below_and_proportional_above():
    own = OwnSteps({64: 1.0, 128: 1.5}, spread=0.0)
    assert [own.seconds(size) for size in (16, 64, 96, 128, 256)] == [1.0, 1.0, 1.25, 1.5, 3.0]


def test_the_slowest_of_many_is_later_than_the_mean():
    """Blom's scores: exact expectations of the largest of n are 0, 0.564, 1.029, 1.424, 2.07 (n = 32)."""
    found = [slowest_score(ranks) for ranks in (1, 2, 4, 8, 32)]
    assert found == pytest.approx([0.0, 0.564, 1.029, 1.424, 2.07], abs=0.03)


def test_an_all_reduce_crosses_within_hosts_and_over_hosts():
    assert all_reduce_s(LINK, 100, 1) == 0.0
    # Two of one host: half of the bytes twice, two hops.
    assert all_reduce_s(LINK, 100, 2) == pytest.approx(100 / 1000 + 1.0)
    # Four on two hosts: as above, and half of the bytes twice between the hosts; four hops.
    assert all_reduce_s(LINK, 100, 4) == pytest.approx(100 / 1000 + 100 / 100 + 2.0)


def test_a_step_is_the_slowest_rank_s_and_the_exchange():
    own = OwnSteps({64: 2.0}, spread=0.1)
    assert step_s(own, 64, 1, 0.0) == 2.0
    assert step_s(own, 64, 4, 0.5) == pytest.approx(2.0 * (1 + 0.1 * slowest_score(4)) + 0.5)


def test_the_forecast_is_near_linear_where_steps_are_long_and_bounded_by_launches_where_they_are_short():
    own = OwnSteps({64: 0.02, 1024: 0.1, 4096: 0.4}, spread=0.01)
    found = {(one.gpus, one.link): one for one in forecast(own, 100_000_000, 1024, 4096, gpus_per_host=8)}
    assert {gpus for gpus, _ in found} == set(GPU_COUNTS)
    assert all(found[1, link].weak == found[1, link].strong == 1.0 for link in ("NVLink", "100 Gb/s"))
    assert found[8, "NVLink"].weak > 7.5
    assert found[64, "100 Gb/s"].weak < found[64, "400 Gb/s"].weak < found[64, "NVLink"].weak <= 64
    # 4,096 positions over 64 GPUs are 64 each, which take 0.02 s however fast the network is.
    assert found[64, "NVLink"].strong < 0.4 / 0.02


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "scaling.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert main(["bench", "scaling", "--json", *TINY, "--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_measured_and_predicted_stand_side_by_side(measured):
    found = json.loads(measured.read_text())
    rows = {(row["kind"], row["ranks"]): row for row in found["scaling"]}
    assert set(rows) == {("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)}
    assert rows["weak", 2]["positions_per_rank"] == 8 and rows["strong", 2]["positions_per_rank"] == 4
    assert all(row["measured_s"] > 0 and row["predicted_s"] > 0 for row in rows.values())
    assert rows["weak", 1]["speedup"] == rows["strong", 1]["predicted_speedup"] == 1.0
    two = next(part for part in found["parts"] if part["ranks"] == 2)
    assert len(two["all_reduce_s"]) > 4 and two["message_s"] > 0 and two["launch_floor_s"] > 0
    assert "no_model" in found and found["assumptions"]


@pytest.mark.slow
def test_the_tables_carry_the_model_where_steps_of_a_gpu_are_known(measured, tmp_path, capsys):
    """Of a document of bench gpu, here made up."""
    rows = [
        {
            "kind": "training",
            "name": f"training bf16 zero0 eager {batch}",
            "settings": {"batch": batch, "micro_batch": 0, "precision": "bf16", "zero_stage": 0},
            "figures": {"step_ms": batch / 20 + 5},
        }
        for batch in (256, 1024, 4096)
    ]
    gpu = {
        "bench": "gpu",
        "format": 1,
        "rehearsal": False,
        "machine": {"device_name": "a GPU", "commit": "c"},
        "sizes": {"blocks": 20, "filters": 256},
        "rows": rows,
    }
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(gpu))
    page = tmp_path / "page.md"
    page.write_text("<!-- bench scaling: begin -->\n<!-- bench scaling: end -->\n")
    found = json.loads(measured.read_text())
    from benchmarks import scaling

    args = scaling.Parser(prog="bench scaling")
    scaling.configure(args)
    job = scaling.Job(1, 8, "fp32", 8, 8, 3, 1, 1, 1)
    modelled = scaling.model(args.parse_args(["--steps-of", str(path)]), job, "cpu", found, gpu)
    measured_too = tmp_path / "scaling.json"
    measured_too.write_text(json.dumps({**found, **modelled}))
    assert main(["bench", "scaling", "--table", str(measured_too), "--into", str(page)]) == 0
    told = page.read_text()
    assert "| 8 | " in told and "5.0-7.0" in told and "Modelled from the steps of a GPU (c)" in told
    assert "| weak | 2 | 8 |" in told and "The model assumes:" in told


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch", "20", "--gpus", "4"], "expected a batch that 8 ranks share evenly"),
        (["--into", "page.md"], "--into: expected --table FILE with it"),
        (["--steps-of", "none.json"], "none.json: "),
        (["--gpus", "0"], "expected a whole number"),
    ],
)
def test_a_slip_in_the_flags_is_one_line(flags, message, capsys):
    assert main(["bench", "scaling", "--device", "cpu", *flags]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
