"""What the core must know of a game whose rules lie outside it, and the faults of such rules as one line."""

from __future__ import annotations

import math
import operator
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from alphazero.base.errors import DEBUG_VARIABLE, AlphaZeroError, ConfigError, RulesError
from alphazero.base.log import error_line
from alphazero.base.text import quoted, reason, shortened

if TYPE_CHECKING:  # a launcher reads names without numpy
    import numpy as np
    import numpy.typing as npt

PATIENCE_S = 60.0  # with a question that the rules do not answer
GLANCE_S = 0.5
MOST_ACTIONS = 1 << 16  # a move has 16 bits
MOST_NUMBERS = 1 << 20  # of an observation
MOST_PLIES = 1_000_000
MOST_SHOWN = 40  # moves of a line in a message


class State(Protocol):
    """A position of rules outside the core, as OpenSpiel has it. Players are 0, who moves first, and 1."""

    def current_player(self) -> int: ...
    def legal_actions(self) -> Sequence[int]: ...
    def apply_action(self, action: int) -> None: ...
    def is_terminal(self) -> bool: ...
    def returns(self) -> Sequence[float]: ...
    def observation_tensor(self, player: int) -> Any: ...  # noqa: ANN401 - numbers, nested or not
    def action_to_string(self, player: int, action: int) -> str: ...
    def clone(self) -> State: ...


METHODS = tuple(name for name in vars(State) if not name.startswith("_"))


class AnswerError(ValueError):
    """An answer of the rules that cannot be right; its message is complete."""


@dataclass(frozen=True)
class Explainer:
    """An exception of the rules as one line. file: that of the rules, "" for a library."""

    name: str
    file: str

    def __call__(self, error: BaseException) -> str:
        """'nim.py:31: ZeroDivisionError: division by zero', of the last line within the file."""
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exception(error)
        try:
            what = shortened((str(error).strip().splitlines() or [""])[0])
        except Exception:  # the text of an exception is the rules' own code as well
            what = ""
        kind = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno}: {kind}: {error.msg}"
        if isinstance(error, AnswerError):
            return f"{self.name}: {what}"
        own = [frame for frame in frames if frame.filename == self.file]
        location = f"{self.file}:{own[-1].lineno}" if own else self.name
        return f"{location}: {kind}" + (f": {what}" if what else "")

    @contextmanager
    def faults(self, where: Callable[[], str] = str) -> Iterator[None]:
        """What the rules raise within the block becomes a RulesError. where: what its line adds."""
        try:
            yield
        except (AlphaZeroError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise RulesError(self(error) + where()) from error


@dataclass(frozen=True)
class Rules:
    """new_start makes a state at the start of the game; start: one of them, which stays there.

    clone: what copies a state; None: its method. observed: the shape of an observation as the rules have it.
    """

    name: str
    explain: Explainer
    start: State
    new_start: Callable[[], State]
    clone: Callable[[State], State] | None
    observed: tuple[int, ...]
    num_actions: int
    max_plies: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Planes, height and width of an observation; a single square for other shapes."""
        return shape_of_board(self.observed)

    def copy(self, state: State) -> State:
        """A separate copy of a state."""
        return state.clone() if self.clone is None else self.clone(state)

    @property
    def policy_planes(self) -> int:
        """GameSpec.policy_planes: 0 where actions are not so many for each square."""
        _, height, width = self.shape
        squares = height * width
        if self.num_actions == squares + 1 and squares > 1:  # a pass, behind the squares
            return 2
        return self.num_actions // squares if self.num_actions % squares == 0 else 0

    @property
    def policy_map(self) -> tuple[int, ...]:
        """GameSpec.policy_map: actions count the squares, and on each square its kinds of moves."""
        _, height, width = self.shape
        squares, kinds = height * width, self.policy_planes
        if self.num_actions != kinds * squares:  # with a pass, or no planes
            return tuple(range(self.num_actions))
        return tuple(action % kinds * squares + action // kinds for action in range(self.num_actions))


def shape_of_board(shape: Sequence[int]) -> tuple[int, int, int]:
    """The planes, height and width of an observation of this shape.

    Three numbers are these; two are planes and squares where the squares make a square board (gomoku).
    Others are no board.
    """
    if len(shape) == 3:
        return (shape[0], shape[1], shape[2])
    if len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]:
        return (shape[0], math.isqrt(shape[1]), math.isqrt(shape[1]))
    return (math.prod(shape), 1, 1)


def check_sizes(name: str, num_actions: int, shape: tuple[int, int, int], max_plies: int) -> None:
    """Raises ConfigError for sizes that no game here has."""
    if not 1 <= num_actions <= MOST_ACTIONS:
        raise ConfigError(f"{name}: {num_actions:,} actions; expected 1 to {MOST_ACTIONS:,}")
    if min(shape) < 1 or math.prod(shape) > MOST_NUMBERS:
        raise ConfigError(f"{name}: observations of {shape} numbers; expected 1 to {MOST_NUMBERS:,}")
    if not 1 <= max_plies <= MOST_PLIES:
        raise ConfigError(f"{name}: games of {max_plies:,} plies; expected 1 to {MOST_PLIES:,}")


def actions_of(state: State) -> list[int]:
    """The legal actions, ascending: rules may give them in any order and in any collection."""
    actions = state.legal_actions()
    try:
        return sorted(map(operator.index, actions))
    except TypeError:
        raise AnswerError(f"legal_actions() is {quoted(actions)}; expected a list of whole numbers") from None


def returns_of(state: State) -> tuple[float, float]:
    """The results of a game that is over, player 0's first."""
    returns: object = state.returns()
    with suppress(TypeError, ValueError):
        first, second = map(float, returns)  # type: ignore[call-overload]
        if first in (-1.0, 0.0, 1.0) and second == -first:
            return first, second
    raise AnswerError(f"returns() is {quoted(returns)}; expected [1, -1], [0, 0] or [-1, 1]")


def as_floats(tensor: object) -> npt.NDArray[np.float32]:
    """An observation as f32 [numbers], for the core."""
    import numpy as np

    if tensor is None:  # which numpy takes for a number
        raise AnswerError("observation_tensor() is None; expected numbers")
    try:
        with np.errstate(over="ignore"):  # what is infinite is refused with its place
            return np.ascontiguousarray(tensor, dtype=np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise AnswerError(f"observation_tensor() is {quoted(tensor)}; {reason(error)}") from None


def text_of_moves(moves: Sequence[int]) -> str:
    """'4,0,8' for messages; of a long line its length and its end."""
    if len(moves) > MOST_SHOWN:
        return f"{len(moves):,}, the last ones {','.join(map(str, moves[-MOST_SHOWN // 4 :]))}"
    return ",".join(map(str, moves)) or "none"


_watching = threading.Event()
_asking: dict[int, float] = {}  # threads that run rules outside the core: since when (time.monotonic)


def watch() -> None:
    """From now on a question that the rules do not answer ends the process, with the line where they are."""
    if not _watching.is_set():
        _watching.set()
        threading.Thread(target=_watch, name="rules", daemon=True).start()


@contextmanager
def watched() -> Iterator[None]:
    """Rules run on this thread outside the core, and are watched as within: see `answered`."""
    watch()
    _asking[threading.get_ident()] = time.monotonic()
    try:
        yield
    finally:
        _asking.pop(threading.get_ident(), None)


def answered(more_s: float = 0.0) -> None:
    """Rules that are watched on this thread have answered: the time of the next answer begins."""
    if (thread := threading.get_ident()) in _asking:
        _asking[thread] = time.monotonic() + more_s


def _watch() -> None:
    """No exception is raised in the thread: what waits within a library takes none."""
    while True:
        time.sleep(GLANCE_S)
        core = sys.modules.get("alphazero._core")
        ask_core = getattr(core, "threads_asking_rules", list)  # while it is being loaded
        own = [(thread, time.monotonic() - since) for thread, since in list(_asking.items())]
        for thread, seconds in [*ask_core(), *own]:
            if seconds > PATIENCE_S:
                frame = sys._current_frames().get(thread)
                line = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "the rules of the game"
                os.write(
                    2, f"{error_line(f'{line}: no answer for {seconds:.0f} s')}\n".encode(errors="replace")
                )
                os._exit(ConfigError.exit_code)
