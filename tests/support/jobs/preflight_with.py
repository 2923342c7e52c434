"""The preflight with one rank that is stopped or of another torch; for tests.

preflight_with.py FAULT RANK [the preflight's own flags]
"""

import os
import signal
import sys
from pathlib import Path

from alphazero.launch.node import preflight
from alphazero.launch.node.preflight import RollCall, facts_of
from alphazero.run.rank import end_process

FAULT, RANK, *FLAGS = sys.argv[1:]
IS_ODD = os.environ["RANK"] == RANK


def facts(device, backend: str, files: list[Path]) -> dict[str, str]:
    """As the preflight, but for the version of the odd rank."""
    return facts_of(device, backend, files) | ({"torch": "9.9.9"} if FAULT == "version" and IS_ODD else {})


class StoppingRollCall(RollCall):
    """As the preflight's, but the odd rank stops before it times the all-reduce."""

    def enter(self, step: str) -> None:
        """Enter a step, or stop."""
        if FAULT == "stopped" and IS_ODD and step == "all-reduce":
            os.kill(os.getpid(), signal.SIGSTOP)
        super().enter(step)


preflight.facts_of = facts
preflight.RollCall = StoppingRollCall
end_process(preflight.main(FLAGS))
