"""What the games of a generation look like, in numbers: lengths, results, entropy, wrong resignations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero.selfplay.games import is_trained_on

FIXED_POINT = 65535.0


def figures_of(batch: pa.RecordBatch) -> dict[str, float]:
    """Figures of finished games (GAME_SCHEMA), at least one.

    games, plies (a game), positions (trained on), first_player_wins, draws, too_long, resigned: shares of
    the games; policy_entropy: mean in nats of the policies trained on; checked_resignations: games played
    through in which a side would have resigned, and wrong_resignations: the share of them in which that side
    did not lose (both absent without any).
    """
    results = batch.column("result").to_numpy(zero_copy_only=False)
    ends = np.array(batch.column("end").to_pylist())
    lengths = _list_lengths(batch.column("moves"))
    figures = {
        "games": float(batch.num_rows),
        "plies": float(lengths.mean()),
        "positions": float(np.count_nonzero(is_trained_on(batch))),
        "first_player_wins": float((results > 0).mean()),
        "draws": float((results == 0).mean()),
        "too_long": float((ends == "TOO_LONG").mean()),
        "resigned": float((ends == "RESIGNATION").mean()),
        "policy_entropy": policy_entropy(batch),
    }
    return figures | checked_resignations(batch)


def policy_entropy(batch: pa.RecordBatch) -> float:
    """Mean entropy in nats of the policies that are trained on; 0 where there are none."""
    shares = _values(batch.column("policy_prob")) / FIXED_POINT
    num_policies = np.count_nonzero(is_trained_on(batch))
    return float(-(shares * np.log(shares)).sum() / max(1, num_policies))


def checked_resignations(batch: pa.RecordBatch) -> dict[str, float]:
    """How many games were played on where a side would have resigned, and in which share it did not lose."""
    resign_ply = batch.column("resign_ply").to_numpy(zero_copy_only=False)
    played = batch.column("plays_through").to_numpy(zero_copy_only=False) & (resign_ply >= 0)
    if not played.any():
        return {}
    results = batch.column("result").to_numpy(zero_copy_only=False)[played]
    # Games begin with the first player, so plies of even number are that one's.
    for_resigner = np.where(resign_ply[played] % 2 == 0, results, -results)
    wrong = float((for_resigner >= 0).mean())
    return {"checked_resignations": float(played.sum()), "wrong_resignations": wrong}


def describe(figures: dict[str, float]) -> str:
    """In a line, for people."""
    parts = [
        f"{figures['games']:,.0f} games of {figures['plies']:.1f} plies",
        f"{figures['positions']:,.0f} positions",
        f"first player {figures['first_player_wins']:.0%}, drawn {figures['draws']:.0%}",
        f"policy entropy {figures['policy_entropy']:.2f}",
    ]
    if "wrong_resignations" in figures:
        wrong = figures["wrong_resignations"]
        parts.append(f"resigned {figures['resigned']:.0%}, wrongly {wrong:.1%} of those played on")
    return " | ".join(parts)


def _values(column: pa.Array[Any]) -> npt.NDArray[Any]:
    lists: Any = column
    values: npt.NDArray[Any] = lists.flatten().to_numpy(zero_copy_only=False)
    return values


def _list_lengths(column: pa.Array[Any]) -> npt.NDArray[Any]:
    lists: Any = column
    lengths: npt.NDArray[Any] = np.diff(lists.offsets.to_numpy(zero_copy_only=False))
    return lengths
