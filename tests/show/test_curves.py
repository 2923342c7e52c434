"""Figures as points of curves: named, grouped, at their step."""

from alphazero.show.curves import points_of


def shown(kind, step, figures):
    return [
        (f"{point.group}/{point.name}", point.step, point.value) for point in points_of(kind, step, figures)
    ]


def test_figures_are_grouped_and_ids_and_unknown_kinds_are_no_curves():
    figures = {"loss": 2.0, "sample_id_sum": 7.0}
    assert shown("step", 1, figures) == [("train/loss", 1, 2.0)]
    assert shown("epoch", 1, {**figures, "ended_in_step": 30.0}) == [("train/epoch_loss", 30, 2.0)]
    assert shown("time_share", 10, {"checkpoint": 0.5}) == [("speed/share_of_time/checkpoint", 10, 0.5)]
    assert shown("unknown", 1, {"loss": 1.0}) == []


def test_a_generation_stands_at_the_first_step_that_trains_on_it():
    assert shown("self_play", 20, {"games": 3.0}) == [("selfplay/games", 21, 3.0)]
