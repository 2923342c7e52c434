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
from pathlib import Path
from typing import Any, TypeVar

import chess
import chess.engine

from alphazero.base.errors import ConfigError
from alphazero.base.text import quoted, reason, shortened
from alphazero.machine.die_with_parent import guarded
from alphazero.play.matches.game import Decision, Ending, LiveGame, Score
from alphazero.play.matches.players import Player

START_TIMEOUT_S = 35.0  # until uciok, as cutechess has it
QUIT_TIMEOUT_S = 1.0
CLOSE_TIMEOUT_S = 10.0
LATE_S = 1.0  # waited beyond the clock and margin of an engine
# What engines send, bounded:
MOST_LINE_BYTES = 1 << 20
MOST_CENTIPAWNS = 1_000_000
MOST_MOVES = 1_000  # to mate
MOST_DEPTH = 1_000
MOST_NODES = 10**15

Result = TypeVar("Result")


class ForfeitError(Exception):
    """The engine forfeits the game. reason: a phrase that follows the engine's name or side."""

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason


class EngineProcess:
    """A running engine, for the thread of the event loop alone."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _TimedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    @classmethod
    async def start(cls, player: Player) -> EngineProcess:
        """Start the engine and set its options. Raises ConfigError."""
        logging.getLogger("chess.engine").addHandler(logging.NullHandler())
        who, program = f"player {quoted(player.name)}", player.command[0]
        local = Path(player.directory or ".") / program
        if shutil.which(program) is None and not (local.is_file() and os.access(local, os.X_OK)):
            raise ConfigError(f"{who}: {quoted(program)}: expected an executable program")
        try:
            transport, protocol = await asyncio.get_running_loop().subprocess_exec(
                _TimedProtocol,
                *guarded(player.command, with_children=True),
                cwd=player.directory or None,
                start_new_session=True,  # Ctrl-C is ours alone, and all its processes end together
            )
        except OSError as error:
            raise ConfigError(f"{who}: cannot be started: {error.strerror}") from error
        process = cls(transport, protocol)
        try:
            await asyncio.wait_for(protocol.initialize(), START_TIMEOUT_S)
            for name, value in player.options.items():
                await protocol.configure({name: value})
            await asyncio.wait_for(protocol.ping(), START_TIMEOUT_S)
        except BaseException as error:
            await process.kill()
            if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
                fault = f"no uciok and readyok within {START_TIMEOUT_S:g} s"
            elif isinstance(error, Exception):
                fault = reason(error)
            else:
                raise
            raise ConfigError(f"{who}: {fault}{protocol.last_words}; expected a UCI engine") from error
        return process

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return not self._protocol.returncode.done()

    @property
    def plays_chess960(self) -> bool:
        """Whether it has the option that turns Chess960 on."""
        return "UCI_Chess960" in self._protocol.options

    async def move(
        self, game: int, board: chess.Board, limit: chess.engine.Limit, timeout_s: float, late: ForfeitError
    ) -> Decision:
        """The engine's move in the game of this number. Raises ForfeitError, `late` after timeout_s."""
        protocol = self._protocol
        protocol.asked_s = protocol.answered_s = time.monotonic()
        try:
            play = protocol.play(board, limit, game=game, info=chess.engine.INFO_SCORE)
            result = await asyncio.wait_for(play, timeout_s)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise late from error
        except chess.engine.EngineTerminatedError as error:
            raise ForfeitError(Ending.ABANDONED, f"disconnects{protocol.last_words}") from error
        except chess.engine.EngineError as error:
            raise ForfeitError(Ending.ILLEGAL, f"makes an illegal move ({reason(error)})") from error
        except Exception as error:  # whatever python-chess makes of what the engine sent
            raise ForfeitError(Ending.ABANDONED, f"fails ({reason(error)})") from error
        if not result.move:  # none, or the null move 0000
            raise ForfeitError(Ending.ILLEGAL, "makes no move")
        if not board.is_legal(result.move):  # sent early, it was judged by the position before
            raise ForfeitError(Ending.ILLEGAL, f"makes an illegal move ({result.move.uci()})")
        info = result.info
        return Decision(
            result.move.uci(),
            _score(info.get("score")),
            _bounded(info.get("depth", 0), 0, MOST_DEPTH),
            _bounded(info.get("nodes", 0), 0, MOST_NODES),
            max(0.0, protocol.answered_s - protocol.asked_s),
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
        self.last_words = ""  # for the end of a message: " (no licence found)"

    def send_line(self, line: str) -> None:
        if line.startswith("go"):
            self.asked_s = time.monotonic()
        super().send_line(line)

    def _line_received(self, line: str) -> None:
        if line.split(maxsplit=1)[:1] == ["bestmove"]:  # python-chess, too, passes over spaces before it
            self.answered_s = time.monotonic()
        with contextlib.suppress(OverflowError):  # an info line with a number beyond all floats
            super()._line_received(line)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        super().pipe_data_received(fd, data)
        if len(self.buffer[fd]) > MOST_LINE_BYTES:
            self.buffer[fd].clear()
            if fd == 1 and self.transport is not None:
                self.error_line_received(f"a line of over {MOST_LINE_BYTES:,} bytes")
                self.transport.terminate()

    def error_line_received(self, line: str) -> None:
        self.last_words = f" ({shortened(line)})" if line else ""


def _score(score: chess.engine.PovScore | None) -> Score | None:
    if score is None:
        return None
    mate = score.relative.mate()
    if mate is not None:
        return Score(mate=_bounded(mate, -MOST_MOVES, MOST_MOVES))
    return Score(_bounded(score.relative.score() or 0, -MOST_CENTIPAWNS, MOST_CENTIPAWNS))


def _bounded(number: int, least: int, most: int) -> int:
    return max(least, min(number, most))


class EngineRoom:
    """The engine processes of a match, as a context manager: no engine outlives it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engines", daemon=True)
        # Of the event loop's thread alone; engines go by their players' names:
        self._idle: dict[str, list[EngineProcess]] = defaultdict(list)
        self._playing: dict[tuple[int, str], EngineProcess] = {}

    def __enter__(self) -> EngineRoom:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._begin(self._close()).result(CLOSE_TIMEOUT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_TIMEOUT_S)
            if not self._thread.is_alive():
                self._loop.close()

    def check(self, player: Player, *, chess960: bool = False) -> None:
        """Start the engine once, before the first game. Raises ConfigError where that fails.

        chess960: also where it does not play Chess960.
        """

        async def warm_up() -> None:
            process = await EngineProcess.start(player)
            self._idle[player.name].append(process)
            if chess960 and not process.plays_chess960:
                raise ConfigError(
                    f"player {quoted(player.name)}: has no option UCI_Chess960; "
                    "expected an engine that plays Chess960"
                )

        self._begin(warm_up()).result()

    def ask(self, player: Player, game: LiveGame, timeout_s: float) -> Future[Decision]:
        """Request a move; the future may raise ForfeitError. timeout_s: of an engine without a clock."""
        limit, clocks = player.limit, game.clocks
        late = ForfeitError(Ending.ABANDONED, f"does not answer for {timeout_s:g} s")
        if limit.is_timed:
            timeout_s = game.clock.deadline_s + LATE_S
            late = ForfeitError(Ending.TIME, "loses on time without an answer")
        asked = chess.engine.Limit(nodes=limit.nodes, depth=limit.depth, time=limit.move_time_s)
        if limit.control is not None:
            asked.remaining_moves = game.clock.moves_to_go or None
            for colour, clock in (("white", clocks[True]), ("black", clocks[False])):
                if clock.limit.control is not None:
                    setattr(asked, f"{colour}_clock", clock.left_s)
                    setattr(asked, f"{colour}_inc", clock.limit.control.increment_s)
        number, board = game.pairing.number, game.board()

        async def move() -> Decision:
            process = await self._process(player, number)
            try:
                return await process.move(number, board, asked, timeout_s, late)
            except ForfeitError:
                await self._playing.pop((number, player.name)).kill()
                raise

        return self._begin(move())

    def leave(self, game: int) -> None:
        """Release the engines of a finished game."""

        async def free() -> None:
            for number, name in [key for key in self._playing if key[0] == game]:
                self._idle[name].append(self._playing.pop((number, name)))

        self._begin(free())

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _process(self, player: Player, game: int) -> EngineProcess:
        """The process that plays the game, else an idle one, else a new one."""
        key = (game, player.name)
        if key not in self._playing:
            # An engine that ended between two games is started again.
            idle = [process for process in self._idle[player.name] if process.is_running]
            self._idle[player.name] = idle
            try:
                process = idle.pop() if idle else await EngineProcess.start(player)
            except ConfigError as error:  # though check() started it
                raise ForfeitError(Ending.ABANDONED, f"cannot be restarted ({error})") from error
            self._playing[key] = process
        return self._playing[key]

    async def _close(self) -> None:
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        processes = [*self._playing.values(), *(process for idle in self._idle.values() for process in idle)]
        await asyncio.gather(*(process.quit() for process in processes), return_exceptions=True)
