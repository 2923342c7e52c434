"""A validation in words."""

from alphazero.run.metrics import explain_validation
from alphazero.training.loop.progress import describe_validation

FIRST = {"policy_top1": 0.2, "policy_top5": 0.5, "policy_loss": 2.5, "value_loss": 1.0, "value_mse": 0.75}
SECOND = {
    "policy_top1": 0.215,
    "policy_top5": 0.5,
    "policy_loss": 2.25,
    "value_loss": 1.0625,
    "value_mse": 0.75,
}


def test_changes_since_the_one_before_are_in_brackets():
    assert describe_validation(FIRST) == (
        "top-1 20.00% top-5 50.00% | policy loss 2.5000 | value loss 1.0000 mse 0.7500"
    )
    assert describe_validation(SECOND, FIRST) == (
        "top-1 21.50% (+1.50) top-5 50.00% (+0.00) | policy loss 2.2500 (-0.2500) | "
        "value loss 1.0625 (+0.0625) mse 0.7500 (+0.0000)"
    )
    assert describe_validation({"move_error": 0.3}, {"move_error": 0.4}) == (
        "moves that err against exact truth 30.00% (-10.00)"
    )


def test_the_end_is_told_to_a_beginner():
    assert explain_validation({}) == ""
    text = explain_validation(SECOND, FIRST)
    assert "21.5%" in text and "20.0%" in text
    assert "75.0%" in explain_validation({"move_error": 0.25})
