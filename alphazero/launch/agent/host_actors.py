"""The actors of a host: started beside its ranks, again where they die, and never the end of the job."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alphazero.base.errors import AlphaZeroError
from alphazero.base.log import program_line
from alphazero.base.text import exit_text
from alphazero.launch.agent.rank_output import OutputStream
from alphazero.launch.plan.launch_plan import Command

FIRST_DELAY_S = 2.0  # doubled with each early death
MOST_DEATHS = 6  # early ones in a row
STEADY_S = 600.0  # an actor that lived so long did not die early


@dataclass(eq=False)
class _Actor:
    """due: when it is to be started; None while it runs, and where it will not be."""

    number: int
    command: Command
    output: OutputStream
    process: subprocess.Popen[bytes] | None = None
    due: float | None = 0.0
    began: float = 0.0
    deaths: int = 0


class HostActors:
    """Starts and restarts them. start: a process whose output goes to a stream; may raise OSError."""

    def __init__(
        self,
        actors: Sequence[tuple[Command, OutputStream]],
        start: Callable[[Command, OutputStream], subprocess.Popen[bytes]],
    ) -> None:
        self._actors = [_Actor(number, command, output) for number, (command, output) in enumerate(actors)]
        self._start = start

    def pids(self) -> set[int]:
        """Of those that run."""
        return {actor.process.pid for actor in self._actors if actor.process}

    def advance(self, *, starts: bool) -> bool:
        """Look at each, and start what is due if `starts`; True while one runs or will be started."""
        for actor in self._actors:
            if actor.process and (code := actor.process.poll()) is not None:
                actor.process = None
                if starts and code:  # 0: it was asked to end, or the run has ended
                    self._died(actor, exit_text(code), code)
            if not starts:
                actor.due = None
            elif actor.due is not None and time.monotonic() >= actor.due:
                actor.due, actor.began = None, time.monotonic()
                try:
                    actor.process = self._start(actor.command, actor.output)
                except OSError as error:
                    self._died(actor, f"could not be started: {error.strerror}")
        return any(actor.process or actor.due is not None for actor in self._actors)

    def _died(self, actor: _Actor, fate: str, code: int = 1) -> None:
        """Say in its log, and so on the head's terminal, what becomes of it."""
        actor.deaths = 1 if time.monotonic() - actor.began > STEADY_S else actor.deaths + 1
        delay_s, future = FIRST_DELAY_S * 2 ** (actor.deaths - 1), "it is not started again"
        if code != AlphaZeroError.exit_code and actor.deaths < MOST_DEATHS:
            actor.due, future = time.monotonic() + delay_s, f"it starts again in {delay_s:.0f} s"
        line = program_line(f"actor {actor.number} {fate}; {future}", has_time=False)
        actor.output.write(f"{line}\n".encode())
