"""UCI engines as processes: one for each engine and game in progress, reused from game to game."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import chess
import chess.engine

from alphazero.base.errors import ConfigError
from alphazero.base.text import one_of, quoted, reason, shortened
from alphazero.machine.die_with_parent import guarded
from alphazero.play.matches.game import Decision, Ending, Score
from alphazero.play.matches.players import EnginePlayer

START_TIMEOUT_S = 35.0  # until uciok, as cutechess has it
QUIT_TIMEOUT_S = 1.0
# What engines send, bounded:
MOST_LINE_BYTES = 1 << 20
MOST_CENTIPAWNS = 1_000_000
MOST_MOVES = 1_000  # to mate
MOST_DEPTH = 1_000
MOST_NODES = 10**15


class ForfeitError(Exception):
    """The engine forfeits the game. reason: a phrase that follows the engine's name or side."""

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason


@dataclass(frozen=True)
class MoveRequest:
    """A position with all its moves, the limit of the move, and when and how the engine forfeits."""

    game: int
    board: chess.Board
    limit: chess.engine.Limit
    timeout_s: float
    timeout_ending: Ending
    timeout_reason: str


class EngineProcess:
    """A running engine, for the thread of the event loop alone."""

    def __init__(
        self, engine: EnginePlayer, transport: asyncio.SubprocessTransport, protocol: _TimedProtocol
    ) -> None:
        self.engine = engine
        self._transport = transport
        self._protocol = protocol

    @classmethod
    async def start(cls, engine: EnginePlayer) -> EngineProcess:
        """Start the engine and set its options. Raises ConfigError."""
        logging.getLogger("chess.engine").addHandler(logging.NullHandler())
        process = await cls._spawn(engine)
        try:
            await asyncio.wait_for(process._protocol.initialize(), START_TIMEOUT_S)
            process._check_options()
            await process._protocol.configure(dict(engine.options))
            await asyncio.wait_for(process._protocol.ping(), START_TIMEOUT_S)
        except BaseException as error:
            last_words = process._protocol.last_words
            await process.kill()
            if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
                fault = f"no uciok and readyok within {START_TIMEOUT_S:g} s"
            elif isinstance(error, Exception):
                fault = reason(error)
            else:
                raise
            last = f" ({shortened(last_words)})" if last_words else ""
            raise ConfigError(f"{_place(engine)}: {fault}{last}; expected a UCI engine") from error
        return process

    @classmethod
    async def _spawn(cls, engine: EnginePlayer) -> EngineProcess:
        program = engine.command[0]
        local = Path(engine.directory or ".") / program
        if shutil.which(program) is None and not (local.is_file() and os.access(local, os.X_OK)):
            raise ConfigError(f"{_place(engine)}: {quoted(program)}: expected an executable program")
        try:
            transport, protocol = await asyncio.get_running_loop().subprocess_exec(
                _TimedProtocol,
                *guarded(engine.command, with_children=True),
                cwd=engine.directory or None,
                start_new_session=True,  # Ctrl-C is ours alone, and all its processes end together
            )
        except OSError as error:
            raise ConfigError(f"{_place(engine)}: cannot be started: {error.strerror}") from error
        return cls(engine, transport, protocol)

    def _check_options(self) -> None:
        """Raises ConfigError for unknown options and invalid values."""
        known = self._protocol.options
        for name, value in self.engine.options.items():
            place = f"{_place(self.engine)}, option.{name}"
            if name not in known:
                raise ConfigError(f"{place}: no such option; {one_of(name, map(shortened, known))}")
            if known[name].is_managed():
                raise ConfigError(f"{place}: this option is set by the match")
            try:
                known[name].parse(value)
            except chess.engine.EngineError as error:
                raise ConfigError(f"{place}={quoted(value)}: {reason(error)}") from error

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return not self._protocol.returncode.done()

    async def answer(self, question: MoveRequest) -> Decision:
        """The engine's move. Raises ForfeitError."""
        protocol = self._protocol
        protocol.asked_s = protocol.answered_s = time.monotonic()
        try:
            play = protocol.play(
                question.board, question.limit, game=question.game, info=chess.engine.INFO_SCORE
            )
            result = await asyncio.wait_for(play, question.timeout_s)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise ForfeitError(question.timeout_ending, question.timeout_reason) from error
        except chess.engine.EngineTerminatedError as error:
            last = f" ({shortened(protocol.last_words)})" if protocol.last_words else ""
            raise ForfeitError(Ending.ABANDONED, f"disconnects{last}") from error
        except chess.engine.EngineError as error:
            raise ForfeitError(Ending.ILLEGAL, f"makes an illegal move ({reason(error)})") from error
        except Exception as error:  # whatever python-chess makes of what the engine sent
            raise ForfeitError(Ending.ABANDONED, f"fails ({reason(error)})") from error
        if not result.move:  # none, or the null move 0000
            raise ForfeitError(Ending.ILLEGAL, "makes no move")
        if not question.board.is_legal(result.move):  # sent early, it was judged by the position before
            raise ForfeitError(Ending.ILLEGAL, f"makes an illegal move ({result.move.uci()})")
        info = result.info
        return Decision(
            result.move.uci(),
            _score(info.get("score")),
            _bounded(info.get("depth", 0), 0, MOST_DEPTH),
            _bounded(info.get("nodes", 0), 0, MOST_NODES),
            protocol.answered_s - protocol.asked_s,
        )

    async def quit(self) -> None:
        """Ask the engine to quit, then kill what is left of it."""
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError, chess.engine.EngineError):
            await asyncio.wait_for(self._protocol.quit(), QUIT_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """Kill the engine and all processes that it has started, in whatever session."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._transport.terminate()
            await self._end()
        if self.is_running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)
            self._transport.close()
            await self._end()

    async def _end(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._protocol.returncode), QUIT_TIMEOUT_S)


class _TimedProtocol(chess.engine.UciProtocol):
    """Records when a move was requested and received, and the last line on stderr; bounds what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_s = self.answered_s = 0.0
        self.last_words = ""

    def send_line(self, line: str) -> None:
        if line.startswith("go"):
            self.asked_s = time.monotonic()
        super().send_line(line)

    def _line_received(self, line: str) -> None:
        if line.startswith("bestmove"):
            self.answered_s = time.monotonic()
        with contextlib.suppress(OverflowError):  # an info line with a number beyond all floats
            super()._line_received(line)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        super().pipe_data_received(fd, data)
        if len(self.buffer[fd]) > MOST_LINE_BYTES:
            self.buffer[fd].clear()
            if fd == 1 and self.transport is not None:
                self.last_words = f"a line of over {MOST_LINE_BYTES:,} bytes"
                self.transport.terminate()

    def error_line_received(self, line: str) -> None:
        self.last_words = line


def _score(score: chess.engine.PovScore | None) -> Score | None:
    if score is None:
        return None
    mate = score.relative.mate()
    if mate is not None:
        return Score(mate=_bounded(mate, -MOST_MOVES, MOST_MOVES))
    return Score(_bounded(score.relative.score() or 0, -MOST_CENTIPAWNS, MOST_CENTIPAWNS))


def _bounded(number: int, least: int, most: int) -> int:
    return max(least, min(number, most))


def _place(engine: EnginePlayer) -> str:
    return f"player {quoted(engine.name)}"


CLOSE_TIMEOUT_S = 10.0
Result = TypeVar("Result")


class EngineRoom:
    """The engine processes of a match, as a context manager: no engine outlives it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engines", daemon=True)
        # Of the event loop's thread alone:
        self._idle: dict[str, list[EngineProcess]] = defaultdict(list)
        self._seated: dict[tuple[int, str], EngineProcess] = {}

    def __enter__(self) -> EngineRoom:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._begin(self._close()).result(CLOSE_TIMEOUT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_TIMEOUT_S)
            if not self._thread.is_alive():
                self._loop.close()

    def check(self, engine: EnginePlayer) -> None:
        """Start the engine once, before the first game. Raises ConfigError where that fails."""
        self._begin(self._warm_up(engine)).result()

    def ask(self, engine: EnginePlayer, question: MoveRequest) -> Future[Decision]:
        """Request a move; the future may raise ForfeitError."""
        return self._begin(self._answer(engine, question))

    def leave(self, game: int) -> None:
        """Release the engines of a finished game."""
        self._begin(self._free(game))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _warm_up(self, engine: EnginePlayer) -> None:
        self._idle[engine.name].append(await EngineProcess.start(engine))

    async def _answer(self, engine: EnginePlayer, question: MoveRequest) -> Decision:
        place = (question.game, engine.name)
        if place not in self._seated:
            # An engine that ended between two games is started again.
            idle = [process for process in self._idle[engine.name] if process.is_running]
            self._idle[engine.name] = idle
            try:
                process = idle.pop() if idle else await EngineProcess.start(engine)
            except ConfigError as error:  # though check() started it
                raise ForfeitError(Ending.ABANDONED, f"cannot be restarted ({error})") from error
            self._seated[place] = process
        try:
            return await self._seated[place].answer(question)
        except ForfeitError:
            await self._seated.pop(place).kill()
            raise

    async def _free(self, game: int) -> None:
        for place in [place for place in self._seated if place[0] == game]:
            self._idle[place[1]].append(self._seated.pop(place))

    async def _close(self) -> None:
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        processes = [*self._seated.values(), *(process for idle in self._idle.values() for process in idle)]
        await asyncio.gather(*(process.quit() for process in processes), return_exceptions=True)
