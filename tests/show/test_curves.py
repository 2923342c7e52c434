"""Figures as points of curves: named, grouped, and each once."""

import json

from alphazero.show.curves import Curves


def shown(points):
    return [(f"{point.group}/{point.name}", point.step, point.value) for point in points]


def test_ids_and_figures_that_the_network_has_not_got_are_no_curves():
    curves = Curves()
    figures = {"loss": 2.0, "moves_left_loss": 0.0, "sample_id_sum": 7.0}
    assert shown(curves.take("step", 1, figures)) == [("train/loss", 1, 2.0)]
    assert shown(curves.take("epoch", 1, {**figures, "ended_in_step": 30.0})) == [
        ("train/epoch_loss", 30, 2.0)
    ]
    assert curves.take("unknown", 1, {"loss": 1.0}) == []


def test_a_figure_that_is_always_zero_has_no_curve_and_one_that_was_begins_after_its_zeros():
    curves = Curves()
    assert curves.take("time_share", 10, {"checkpoint": 0.0}) == []
    assert curves.take("time_share", 20, {"checkpoint": 0.0}) == []
    name = "speed/share_of_time/checkpoint"
    assert shown(curves.take("time_share", 30, {"checkpoint": 0.5})) == [(name, 30, 0.5)]
    assert shown(curves.take("time_share", 40, {"checkpoint": 0.0})) == [(name, 40, 0.0)]


def test_of_several_readings_at_one_step_the_first_is_shown():
    curves = Curves()
    assert len(curves.take("health", 5, {"host/load": 1.0})) == 1
    assert curves.take("health", 5, {"host/load": 2.0}) == []
    assert shown(curves.take("health", 6, {"host/load": 3.0})) == [("system/host/load", 6, 3.0)]


def test_a_run_that_goes_back_makes_its_later_points_again():
    curves = Curves()
    for step in (1, 2, 3):
        curves.take("step", step, {"loss": 1.0})
    curves.rewind(1)
    assert curves.take("step", 1, {"loss": 2.0}) == []
    assert shown(curves.take("step", 2, {"loss": 2.0})) == [("train/loss", 2, 2.0)]


def test_a_resumed_run_stands_where_its_earlier_starts_stood():
    lines = [
        {"kind": "time_share", "step": 10, "checkpoint": 0.0, "compute": 1.0},
        {"kind": "health", "step": 20, "host/load": 1.0},
        {"kind": "alarm", "step": 20, "time_s": 1.0, "text": "words"},
        {"kind": "self_play", "step": 20, "games": 3.0},
        {"kind": "self_play", "step": 0, "games": 2.0},
        {"kind": "time_share", "step": 30, "checkpoint": 0.5, "compute": 1.0},
    ]
    curves = Curves()
    curves.restore([*map(json.dumps, lines), "{damaged", "[]", "[" * 10_000], 20)
    assert curves.take("health", 20, {"host/load": 2.0}) == []
    # Played once more after the checkpoint of step 20, and shown at the first step that trains on it.
    assert shown(curves.take("self_play", 20, {"games": 3.0})) == [("selfplay/games", 21, 3.0)]
    assert shown(curves.take("time_share", 30, {"checkpoint": 0.5, "compute": 1.0})) == [
        ("speed/share_of_time/checkpoint", 30, 0.5),
        ("speed/share_of_time/compute", 30, 1.0),
    ]


def test_what_was_shown_before_a_kill_is_not_sent_again():
    """A generation of zeros, then one with a value; killed after it; resumed from between them."""
    generations = [(0, {"resigned": 0.0}), (5, {"resigned": 3.0})]
    before, after = Curves(), Curves()
    sent = [point for step, figures in generations for point in before.take("self_play", step, figures)]
    after.restore(
        (json.dumps({"kind": "self_play", "step": step, **figures}) for step, figures in generations), 4
    )
    sent = [point for point in sent if point.step <= 4]  # the later ones are hidden by the restart
    sent += after.take("self_play", *generations[1])
    assert shown(sent) == [("selfplay/resigned", 6, 3.0)]
