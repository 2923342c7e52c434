"""The preflight with one rank that is stopped; for tests.

preflight_with.py FAULT RANK [the preflight's own flags]
"""

import os
import signal
import sys

from alphazero.launch.node import preflight
from alphazero.launch.node.preflight import RollCall
from alphazero.run.rank import end_process

FAULT, RANK, *FLAGS = sys.argv[1:]


class StoppingRollCall(RollCall):
    """As the preflight's, but the odd rank stops before it times the all-reduce."""

    def enter(self, step: str) -> None:
        """Enter a step, or stop."""
        if FAULT == "stopped" and os.environ["RANK"] == RANK and step == "all-reduce":
            os.kill(os.getpid(), signal.SIGSTOP)
        super().enter(step)


preflight.RollCall = StoppingRollCall
end_process(preflight.main(FLAGS))
