"""`alphazero eval --solved --solver`: how often networks err in games of OpenSpiel and of Python files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import ConfigError
from alphazero.base.section import flag_of
from alphazero.base.text import counted, table
from alphazero.cli.measuring.eval_solved import player_names, players_of
from alphazero.games.outside.solvers import check_solver, read_solver
from alphazero.play.workers import Place
from alphazero.show.console import Console

if TYPE_CHECKING:
    import torch

    from alphazero.measure.truth.outside import KnownPosition
    from alphazero.measure.truth.solved_positions import ExactPosition

NUM_POSITIONS = 1000  # of a game of which not all are looked at


@dataclass(frozen=True)
class AskedPositions:
    """Positions in which a move errs. total: with the others. is_all: whether these are all of the game."""

    game: str
    total: int
    is_all: bool
    asked: tuple[ExactPosition, ...]

    @property
    def heading(self) -> str:
        """In words."""
        chosen = "all that can be reached" if self.is_all else "of random games"
        positions = counted(self.total, "position")
        return f"{positions} of {self.game}, {chosen}; in {len(self.asked):,} of them a move errs"


def run(args: argparse.Namespace, device: torch.device, places: Sequence[Place]) -> int:
    """Count each network's errors, alone and with a search, print them."""
    from alphazero.measure.truth.outside import errors_of
    from alphazero.network.weights.open_network import open_network

    check(args, places)
    networks = {name: open_network(name, device)[0] for name in args.weights}
    games = {name: network.spec.name for name, network in networks.items()}
    game, solver = games[args.weights[0]], read_solver("--solver", args.solver)
    for name, other in games.items():
        if other != game:
            raise ConfigError(f"{name}: plays {other}; expected {game}, as {args.weights[0]}")
    check_solver(solver, game)
    rows: dict[str, dict[str, int]] = {}
    with closing(Console(True)) as console:
        positions = solved_positions(args, game, solver, console)
        searches = sum(proofs is not None for proofs in player_names(args).values())
        simulations = len(positions.asked) * searches * (args.simulations or 0)
        for name, network in networks.items():
            with console.working(name, simulations, "simulation") as work:

                def more(count: int) -> None:
                    work.done += count

                own = players_of(args, network, device, more)
                rows[name] = {title: sum(errors_of(positions.asked, own[title])) for title in own}
    print(to_json(positions, solver, rows) if args.json else to_table(positions, rows))
    return 0


def check(args: argparse.Namespace, places: Sequence[Place]) -> None:
    """Raises ConfigError for flags that do not go with --solver."""
    for name in ("data", "not_in", "num_workers", "solved_sets", "all_moves"):
        if getattr(args, name):
            raise ConfigError(f"{flag_of(name)}: not with --solver")
    if places:
        raise ConfigError("--gpus: not with --solver, which counts in one process")
    if args.simulations is None and (args.proofs is not None or args.config):
        raise ConfigError("--proofs, --config: only with --simulations N")


def solved_positions(args: argparse.Namespace, game: str, solver: str, console: Console) -> AskedPositions:
    """All positions where they are few and --positions asks for no number, else random ones."""
    from alphazero.measure.truth.outside import SEED, positions_to_err_in, reachable_positions

    with console.working(f"solving {game}", 0, "position") as work:

        def tick(known: int, searched: int) -> None:
            work.advance(known, f"{searched:,} searched" if searched else "")

        found: list[KnownPosition] | None = None
        if args.positions is None:
            found = reachable_positions(game, solver, tick)
        is_all = found is not None
        if found is None:
            count, seed = args.positions or NUM_POSITIONS, SEED if args.seed is None else args.seed
            found = positions_to_err_in(game, solver, count, tick, only_errors=False, seed=seed)
    asked = tuple(position.exact(game) for position in found if position.may_err)
    if not asked:
        raise ConfigError(
            f"--solver {solver}: in {counted(len(found), 'position')} of {game} no move errs; expected some"
        )
    return AskedPositions(game, len(found), is_all, asked)


def to_table(positions: AskedPositions, rows: dict[str, dict[str, int]]) -> str:
    """A line for each network and player."""
    asked = len(positions.asked)
    lines = [("weights", "player", "positions", "errors", "move_error")]
    lines += [
        (name, player, str(asked), str(errors), f"{errors / asked:.2%}")
        for name, players in rows.items()
        for player, errors in players.items()
    ]
    return "\n".join([positions.heading, "", *table(lines, "llrrr")])


def to_json(positions: AskedPositions, solver: str, rows: dict[str, dict[str, int]]) -> str:
    """The same for programs."""
    asked = len(positions.asked)
    networks: list[dict[str, Any]] = [
        {
            "weights": name,
            "players": {
                player: {"errors": errors, "move_error": errors / asked} for player, errors in players.items()
            },
        }
        for name, players in rows.items()
    ]
    known = {"game": positions.game, "solver": solver, "positions": positions.total}
    chosen = {"is_all": positions.is_all, "positions_with_errors": asked}
    return json.dumps({**known, **chosen, "networks": networks}, indent=2)
