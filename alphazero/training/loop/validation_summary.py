"""A validation in a line for people, with the change since the one before."""

from __future__ import annotations

from collections.abc import Mapping

Figures = Mapping[str, float]


def describe_validation(figures: Figures, before: Figures | None = None) -> str:
    """The figures of a validation. before: of the one before, for the changes in brackets."""
    before = before or {}

    def share(name: str) -> str:
        change = f" ({100 * (figures[name] - before[name]):+.2f})" if name in before else ""
        return f"{figures[name]:.2%}{change}"

    def number(name: str) -> str:
        change = f" ({figures[name] - before[name]:+.4f})" if name in before else ""
        return f"{figures[name]:.4f}{change}"

    parts = []
    if "policy_loss" in figures:
        parts = [
            f"top-1 {share('policy_top1')} top-5 {share('policy_top5')}",
            f"policy loss {number('policy_loss')}",
            f"value loss {number('value_loss')} mse {number('value_mse')}",
        ]
    if "move_error" in figures:
        parts.append(f"moves that err against exact truth {share('move_error')}")
    return " | ".join(parts)


def told_simply(figures: Figures, first: Figures | None = None) -> str:
    """What the figures mean, in a sentence for somebody who meets them for the first time; "" without any.

    first: of the first validation, which they are compared with.
    """
    sentences = []

    def was(share: float | None) -> str:
        return "" if share is None else f" (at the first validation: {share:.1%})"

    first = first or {}
    if "policy_top1" in figures:
        sentences.append(
            f"In games that it never saw the network expects the move that was played in "
            f"{figures['policy_top1']:.1%} of the positions{was(first.get('policy_top1'))}."
        )
    if "move_error" in figures:
        error = first.get("move_error")
        sentences.append(
            f"Of solved positions it plays {1 - figures['move_error']:.1%} correctly, without any search"
            f"{was(None if error is None else 1 - error)}."
        )
    return " ".join(sentences)
