"""Random games by rules that lie outside the core: faults of the rules, results and lengths of games.

In some of the games each move is made on a copy as well, as searches do, and the whole game once more from a
new start. All that the rules show must stay the same. The first fault ends the check; what is odd and may be
meant is a note.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from alphazero.games.outside.names import class_of
from alphazero.games.outside.rules import (
    AnswerError,
    Rules,
    State,
    actions_of,
    answered,
    as_floats,
    returns_of,
    text_of_moves,
    watched,
)

# Games that are played on copies as well, which takes four times as long: the first, then one in so many.
GAMES_ON_COPIES, THEN_ONE_IN, PLIES_ON_COPIES = 20, 7, 400
ONE_SIDED = 50  # games of which each side wins some, unless something is wrong
LARGE = 100.0  # of an observation's numbers
SIDE, MOST_SIDE = 3, 32  # squares of a side of what is taken for a board
# All that the rules show of a position, by the method that shows it.
Shown: TypeAlias = dict[str, Any]


@dataclass
class Findings:
    """wins: by player. last_wins: those of the player who moved last. moved: plies by player.

    largest, are_signs: of the observations' numbers, and whether all are -1, 0 or 1. first_seen,
    sees_changes: the first observation, and whether another one differed. out_of_time: whether the limit of
    time ended the games.
    """

    games: int = 0
    plies: int = 0
    longest: int = 0
    moved: list[int] = field(default_factory=lambda: [0, 0])
    wins: list[int] = field(default_factory=lambda: [0, 0])
    last_wins: int = 0
    seconds: float = 0.0
    largest: float = 0.0
    are_signs: bool = True
    first_seen: bytes = b""
    sees_changes: bool = False
    out_of_time: bool = False


@dataclass
class _Game:
    """One random game. deadline: of time.perf_counter."""

    rules: Rules
    findings: Findings
    deadline: float
    moves: list[int] = field(default_factory=list)

    def so_far(self) -> str:
        """The moves of this game, as messages of faults end."""
        return f" (the moves so far: {text_of_moves(self.moves)})"

    def play(self, draw: random.Random, is_on_copies: bool) -> None:
        """To its end, or to that of the time. Raises AnswerError, and whatever the rules raise."""
        rules, findings = self.rules, self.findings
        state, twin = rules.copy(rules.start), rules.copy(rules.start)
        now, last = self.look(state), -1
        start = now
        while not now["is_terminal"]:
            if len(self.moves) == rules.max_plies:
                raise AnswerError(f"is_terminal() is false after {rules.max_plies:,} plies, max_game_length")
            if time.perf_counter() > self.deadline:
                findings.out_of_time = True
                return
            answered()
            player, legal = now["current_player"], now["legal_actions"]
            action = draw.choice(legal)
            is_on_copies &= len(self.moves) < PLIES_ON_COPIES
            copy = self.moved_copy(twin, action) if is_on_copies else twin
            before, answer = now, state.apply_action(action)  # type: ignore[func-returns-value]
            self.moves.append(action)
            now = self.look(state)
            if answer is not None and now == before:
                kind = type(answer).__name__
                raise AnswerError(
                    f"apply_action() returns a {kind}; expected that it changes the state itself"
                )
            if is_on_copies:
                self.same(
                    now,
                    copy,
                    "the same move in a copy leads elsewhere, by {}; expected rules without "
                    "chance, and a clone() of everything",
                )
                twin = copy
            findings.moved[player] += 1
            last = player
        if is_on_copies:
            self.play_again(start, now)
        findings.games += 1
        findings.longest = max(findings.longest, len(self.moves))
        for player, value in enumerate(now["returns"]):
            findings.wins[player] += value > 0
            findings.last_wins += value > 0 and player == last

    def look(self, state: State) -> Shown:
        """All that the rules show. Raises AnswerError for an answer that the core refuses."""
        shown: Shown = {"is_terminal": bool(state.is_terminal())}
        if type(state).__str__ is not object.__str__:  # which has the object's address
            shown["__str__"] = str(state)
        if shown["is_terminal"]:
            return shown | {"returns": returns_of(state)}
        player, legal = state.current_player(), actions_of(state)
        if player not in (0, 1):
            raise AnswerError(f"current_player() is {player}; expected 0 or 1 while is_terminal() is false")
        if not legal:
            raise AnswerError("legal_actions() is empty while is_terminal() is false")
        if len(set(legal)) < len(legal):
            raise AnswerError("legal_actions() names an action twice")
        most = self.rules.num_actions - 1
        if not 0 <= legal[0] <= legal[-1] <= most:
            raise AnswerError(f"legal_actions() has {legal[0]} to {legal[-1]}; expected 0 to {most}")
        seen = as_floats(state.observation_tensor(player))
        if seen.size != (size := math.prod(self.rules.shape)):
            raise AnswerError(f"observation_tensor() has {seen.size} numbers; expected {size}")
        if not (finite := np.isfinite(seen)).all():
            number = int(finite.argmin())
            raise AnswerError(
                f"observation_tensor() has {seen[number]} as number {number}; expected finite ones"
            )
        if not np.array_equal(seen, as_floats(state.observation_tensor(player))):
            raise AnswerError("observation_tensor() is another one when it is asked for again")
        texts = [state.action_to_string(player, action) for action in legal]
        for action, text in zip(legal, texts, strict=True):
            if not isinstance(text, str) or not text.strip() or not text.isprintable():
                what = f"action_to_string() of action {action}"
                raise AnswerError(f"{what} is {text!r}; expected a line of text")
        if len(set(texts)) < len(texts):
            raise AnswerError("action_to_string() has one text for two legal actions; expected one for each")
        self.findings.first_seen = self.findings.first_seen or seen.tobytes()
        self.findings.sees_changes |= seen.tobytes() != self.findings.first_seen
        self.findings.largest = max(self.findings.largest, float(np.abs(seen).max()))
        self.findings.are_signs &= bool(np.isin(seen, (-1, 0, 1)).all())
        return shown | {
            "current_player": player,
            "legal_actions": legal,
            "observation_tensor": seen.tobytes(),
            "action_to_string": texts,
        }

    def moved_copy(self, twin: State, action: int) -> State:
        """A copy of the twin after a move, which is where the state comes to."""
        before, copy = self.look(twin), self.rules.copy(twin)
        self.same(before, copy, "clone() differs from its original in {}")
        copy.apply_action(action)
        self.same(
            before, twin, "clone() shares parts with its original: a move in it changes the original's {}"
        )
        return copy

    def play_again(self, start: Shown, end: Shown) -> None:
        """The same moves from a new start."""
        state = self.rules.new_start()
        why = "the same moves in a new game lead elsewhere, by {}; expected rules without chance"
        self.same(start, state, why)
        for action in self.moves:
            if state.is_terminal() or action not in actions_of(state):
                raise AnswerError(why.format("legal_actions"))
            state.apply_action(action)
        self.same(end, state, why)

    def same(self, expected: Shown, state: State, why: str) -> None:
        """Raises AnswerError where the state shows something else."""
        if (now := self.look(state)) != expected:
            differ = [name for name in {**expected, **now} if expected.get(name) != now.get(name)]
            raise AnswerError(why.format(" and ".join(differ)))


def check(
    rules: Rules,
    num_games: int,
    seed: int,
    most_seconds: float = math.inf,
    on_game: Callable[[], None] = lambda: None,
) -> Findings:
    """Play so many random games, as far as the time suffices. Raises RulesError for the first fault."""
    findings, draw, began = Findings(), random.Random(seed), time.perf_counter()
    while findings.games < num_games and not findings.out_of_time:
        game = _Game(rules, findings, began + most_seconds)
        is_on_copies = findings.games < GAMES_ON_COPIES or findings.games % THEN_ONE_IN == 0
        with rules.explain.faults(game.so_far), watched():
            game.play(draw, is_on_copies)
        findings.plies += len(game.moves)
        on_game()
    findings.seconds = time.perf_counter() - began
    return findings


def notes_of(rules: Rules, findings: Findings) -> list[str]:
    """What is odd, and may be meant."""
    notes = []
    if not findings.games:
        what = f"{findings.plies:,} plies of one in {findings.seconds:.0f} s"
        notes.append(f"is_terminal: no game has ended; {what}")
    decided = sum(findings.wins)
    for player, won in enumerate(findings.wins):
        if not findings.moved[player] and findings.games:
            notes.append(f"current_player: player {player} is never to move")
        elif won == decided >= ONE_SIDED:
            what = f"player {player} won all {decided:,} games that were not drawn"
            notes.append(f"returns: {what}; is it [1, -1] where player 0 won, whoever is to move?")
    if not decided and findings.games >= ONE_SIDED:
        notes.append(f"returns: all {findings.games:,} games were drawn")
    if rules.clone is not None:
        notes.append("clone: there is none, and copy.deepcopy takes its place, which is slow")
    if findings.games and not findings.sees_changes:
        notes.append("observation_tensor: the same in every position, so that a network sees nothing")
    if findings.largest > LARGE:
        notes.append(
            f"observation_tensor: has numbers up to {findings.largest:,.0f}; networks learn from about 1"
        )
    if class_of(rules.name) is not None and (note := _note_on_shape(rules, findings.are_signs)):
        notes.append(f"observation_tensor: {note}")
    return notes


def _note_on_shape(rules: Rules, are_signs: bool) -> str:
    """Where another board fits the actions better than the present one; "" where none does."""
    shape, (planes, *board) = rules.observed, rules.shape

    def fit(height: int, width: int) -> int:
        """2: an action for each square or column; 1: some for each square."""
        squares = height * width
        if min(height, width) < SIDE:
            return 0
        return 2 if rules.num_actions in (width, squares, squares + 1) else rules.num_actions % squares == 0

    if len(shape) > 1:
        height, width = max(pairwise(shape), key=lambda sides: fit(*sides))
        meant = str([math.prod(shape) // (height * width), height, width])
        is_meant = fit(height, width) > fit(*board)
    else:
        meant = "[planes, height, width]"
        sides = range(SIDE, MOST_SIDE + 1)
        is_meant = are_signs and any(
            shape[0] % (height * width) == 0 and fit(height, width) for height in sides for width in sides
        )
    if not is_meant:
        return ""
    read = f"{planes} planes of {board[0]}x{board[1]}" if board != [1, 1] else "no board"
    return f"shape {list(shape)} is {read}; if the numbers are of squares, expected the shape {meant}"
