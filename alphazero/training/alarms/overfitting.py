"""A head that learns its positions by heart: worse on held-out positions while training gets better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alphazero.training.alarms.alarm import Alarm

CAUSE = "overfitting"
# Of the loss: differences below it are what validations differ by without a reason.
LEAST_RISE = 0.01
LEAST_FALL = 0.01

ADVICE = {
    "value": "more games (positions of one game share one result), a smaller --value-weight, a larger "
    "--weight-decay, or fewer epochs; --resume best-value_loss goes on from the best",
    "policy": "more games, a larger --weight-decay, a smaller network, or fewer epochs; "
    "--resume best-policy_loss goes on from the best",
}


@dataclass(frozen=True)
class Standing:
    """A validation: its step, the loss held out, and the mean training loss of the steps before it."""

    step: int
    held_out: float
    training: float


class Overfitting:
    """Compares each validation with the best one so far, for policy and value apart."""

    def __init__(self) -> None:
        self._best: dict[str, Standing] = {}

    def look(self, step: int, held_out: Mapping[str, float], training: Mapping[str, float]) -> list[Alarm]:
        """Judge one more validation. training: the means of the same losses since the last one."""
        found = []
        for head in ADVICE:
            name = f"{head}_loss"
            if name not in held_out or name not in training:
                continue
            now = Standing(step, held_out[name], training[name])
            best = self._best.setdefault(head, now)
            if now.held_out <= best.held_out:
                self._best[head] = now
            elif (
                now.held_out > (1 + LEAST_RISE) * best.held_out
                and now.training < (1 - LEAST_FALL) * best.training
            ):
                found.append(_alarm(head, now, best))
        return found


def _alarm(head: str, now: Standing, best: Standing) -> Alarm:
    return Alarm(
        CAUSE,
        f"the {head} head overfits: its loss on held-out positions is {now.held_out:.4f} at step {now.step}, "
        f"{now.held_out / best.held_out - 1:.1%} above its best of {best.held_out:.4f} at step {best.step}, "
        f"while in training it fell from {best.training:.4f} to {now.training:.4f}",
        ADVICE[head],
        reason=head,
        subject=head,
    )
