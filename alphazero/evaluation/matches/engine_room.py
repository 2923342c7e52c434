"""All engine processes of a match: one for each engine and game under way, used again game after game."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from alphazero.errors import ConfigError
from alphazero.evaluation.matches.contestants import Engine
from alphazero.evaluation.matches.engine_process import EngineProcess, ForfeitError, Question
from alphazero.evaluation.matches.game import Decision, Ending

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

    def check(self, engine: Engine) -> None:
        """Start the engine once, before the first game. Raises ConfigError where that fails."""
        self._begin(self._warm_up(engine)).result()

    def ask(self, engine: Engine, question: Question) -> Future[Decision]:
        """The engine's move, in time; the future may raise ForfeitError."""
        return self._begin(self._answer(engine, question))

    def leave(self, game: int) -> None:
        """A game is over: its engines are free for others."""
        self._begin(self._free(game))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _warm_up(self, engine: Engine) -> None:
        self._idle[engine.name].append(await EngineProcess.start(engine))

    async def _answer(self, engine: Engine, question: Question) -> Decision:
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
