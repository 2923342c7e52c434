"""One UCI engine as a process: started, configured, asked for moves, and ended for certain.

All engine processes of a match: one for each engine and game under way, used again game after game.
"""

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


class ForfeitError(Exception):
    """What costs an engine the game. told: as it follows the engine's name or side."""

    def __init__(self, ending: Ending, told: str) -> None:
        super().__init__(told)
        self.ending = ending
        self.told = told


@dataclass(frozen=True)
class MoveRequest:
    """A position with all its moves, the limit of the move, and when to give the engine up."""

    game: int
    board: chess.Board
    limit: chess.engine.Limit
    timeout_s: float
    timeout_ending: Ending
    timeout_reason: str


class EngineProcess:
    """A running engine; all methods belong to the thread of the event loop."""

    def __init__(
        self, engine: EnginePlayer, transport: asyncio.SubprocessTransport, protocol: _TimedProtocol
    ) -> None:
        self.engine = engine
        self._transport = transport
        self._protocol = protocol

    @classmethod
    async def start(cls, engine: EnginePlayer) -> EngineProcess:
        """The engine, with its options set. Raises ConfigError."""
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
                told = f"no uciok and readyok within {START_TIMEOUT_S:g} s"
            elif isinstance(error, chess.engine.EngineError):
                told = reason(error)
            else:
                raise
            said = f" ({shortened(last_words)})" if last_words else ""
            raise ConfigError(
                f"{_place(engine)}: {told}{said}; expected an engine that speaks UCI"
            ) from error
        return process

    @classmethod
    async def _spawn(cls, engine: EnginePlayer) -> EngineProcess:
        program = engine.command[0]
        local = Path(engine.directory or ".") / program
        if shutil.which(program) is None and not (local.is_file() and os.access(local, os.X_OK)):
            raise ConfigError(f"{_place(engine)}: {quoted(program)}: expected a program that can be run")
        try:
            transport, protocol = await asyncio.get_running_loop().subprocess_exec(
                _TimedProtocol,
                *guarded(engine.command),
                cwd=engine.directory or None,
                start_new_session=True,  # Ctrl-C is ours alone, and all its processes end together
            )
        except OSError as error:
            raise ConfigError(f"{_place(engine)}: cannot be started: {error.strerror}") from error
        return cls(engine, transport, protocol)

    def _check_options(self) -> None:
        """Raises ConfigError for options that the engine lacks, or values that it refuses."""
        known = self._protocol.options
        for name, value in self.engine.options.items():
            place = f"{_place(self.engine)}, option.{name}"
            if name not in known:
                raise ConfigError(f"{place}: no such option; {one_of(name, known)}")
            if known[name].is_managed():
                raise ConfigError(f"{place}: expected an option that the match itself does not set")
            try:
                known[name].parse(value)
            except chess.engine.EngineError as error:
                raise ConfigError(f"{place}={quoted(value)}: {reason(error)}") from error

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
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
            said = f" ({shortened(protocol.last_words)})" if protocol.last_words else ""
            raise ForfeitError(Ending.ABANDONED, f"disconnects{said}") from error
        except chess.engine.EngineError as error:
            raise ForfeitError(Ending.ILLEGAL, f"makes an illegal move ({reason(error)})") from error
        if result.move is None:
            raise ForfeitError(Ending.ILLEGAL, "makes no move")
        info = result.info
        return Decision(
            result.move.uci(),
            _score(info.get("score")),
            info.get("depth", 0),
            info.get("nodes", 0),
            protocol.answered_s - protocol.asked_s,
        )

    async def quit(self) -> None:
        """End politely, then for certain."""
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError, chess.engine.EngineError):
            await asyncio.wait_for(self._protocol.quit(), QUIT_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), signal.SIGKILL)
        self._transport.close()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._protocol.returncode), QUIT_TIMEOUT_S)


class _TimedProtocol(chess.engine.UciProtocol):
    """Notes when a move was asked for and came, and what the engine wrote to stderr last."""

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
        super()._line_received(line)

    def error_line_received(self, line: str) -> None:
        self.last_words = line


def _score(score: chess.engine.PovScore | None) -> Score | None:
    if score is None:
        return None
    mate = score.relative.mate()
    return Score(mate=mate) if mate is not None else Score(score.relative.score() or 0)


def _place(engine: EnginePlayer) -> str:
    return f"player {quoted(engine.name)}"


CLOSE_TIMEOUT_S = 10.0
Result = TypeVar("Result")


class EngineRoom:
    """A context manager: no engine outlives it. Engines are spoken to in a thread of its own."""

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
        """The engine's move, in time; the future may raise ForfeitError."""
        return self._begin(self._answer(engine, question))

    def leave(self, game: int) -> None:
        """A game is over: its engines are free for others."""
        self._begin(self._free(game))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _warm_up(self, engine: EnginePlayer) -> None:
        self._idle[engine.name].append(await EngineProcess.start(engine))

    async def _answer(self, engine: EnginePlayer, question: MoveRequest) -> Decision:
        place = (question.game, engine.name)
        if place not in self._seated:
            # One that ended by itself after a game has lost nothing: it is started anew.
            idle = [process for process in self._idle[engine.name] if process.is_running]
            self._idle[engine.name] = idle
            try:
                process = idle.pop() if idle else await EngineProcess.start(engine)
            except ConfigError as error:  # it did start before
                raise ForfeitError(Ending.ABANDONED, f"does not start again ({error})") from error
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
