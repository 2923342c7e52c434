"""What is told of a host, as text and as JSON, and how it travels."""

import json

from alphazero.doctor.disk_speed import DiskSpeed
from alphazero.doctor.examined_host import ExaminedHost, decode, encode, to_json
from alphazero.doctor.figures import PresetFigures
from alphazero.doctor.page import page
from alphazero.machine.environment import environment

HOW = {"trains": "whole steps of 256 positions", "plays": "not measured", "largest_micro_batch": "tried"}
CHESS = PresetFigures(
    **{"preset": "chess_cpu", "game": "chess", "network": "6x64", "mode": "supervised", "ranks": 2},
    **{"device": "cpu", "precision": "fp32", "batch_size": 256, "trains": 500.0, "largest_micro_batch": 6819},
    how=HOW,
)
BROKEN = PresetFigures("othello", fault="rank 1 ended with status 1: it said nothing")
HOST = ExaminedHost("host1", environment(), DiskSpeed("/runs", 2**30, 2**31), "", (CHESS, BROKEN))


def test_a_host_travels_whole():
    assert decode(f"Welcome!\n{encode(HOST)}\nbye\n") == HOST
    assert decode("Welcome!\n") is None
    assert decode(encode(HOST)[:-5]) is None


def test_the_page_has_the_environment_the_table_and_how_each_figure_was_got():
    text = page(HOST)
    assert "/runs: writes 1,024 MiB/s, reads 2,048 MiB/s" in text
    row = next(line for line in text.splitlines() if line.startswith("chess_cpu"))
    assert row.split("  ")[0] == "chess_cpu"
    for told in ("chess 6x64", "2 x cpu", "fp32", "500 positions/s", "6,819", "33 minutes"):
        assert told in row
    assert "100 million positions of chess, chess_cpu: about 2.3 days" in text
    assert "trains on: whole steps of 256 positions; plays: not measured" in text
    assert "energy: not measured" in text
    assert "othello: could not be measured: rank 1 ended with status 1" in text


def test_energy_is_told_where_it_was_measured():
    with_power = PresetFigures(**{**vars(CHESS), "watts": {"gpu0": 100.0, "processor 0": 44.0}})
    text = page(ExaminedHost("host1", environment(), None, "/x: cannot be written", (with_power,)))
    assert "0.08 kWh" in text
    assert "energy: 144 W in chess_cpu (gpu0, processor 0, while training" in text
    assert "/x: cannot be written" in text


def test_a_host_that_said_nothing_is_one_line():
    text = page(ExaminedHost("host2", {}, fault="no answer; expected a host that is up"))
    assert text == "host2\n\ncould not be examined: no answer; expected a host that is up"


def test_json_has_the_hours_and_the_estimates():
    told = json.loads(json.dumps(to_json(HOST)))
    assert told["presets"][0]["hours_per_million"] == 1e6 / 500 / 3600
    assert told["presets"][0]["kwh_per_million"] is None
    assert told["presets"][1]["fault"]
    assert told["estimates"][0]["preset"] == "chess_cpu"
