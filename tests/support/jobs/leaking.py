"""train_distributed.py that leaks what LEAK names at every step: memory, files or threads.

memory    4 KiB a step
files     an open file each 100 steps
threads   a sleeping thread each 100 steps
"""

import os
import sys
import threading
from pathlib import Path

from deepspeed.runtime.engine import DeepSpeedEngine

from alphazero.cli.main import entry_point

STEP = DeepSpeedEngine.step
HOARD: list[object] = []


def step(self: DeepSpeedEngine, *arguments: object, **named: object) -> None:
    """The engine's step, and the leak."""
    STEP(self, *arguments, **named)
    if os.environ["LEAK"] == "memory":
        HOARD.append(os.urandom(4096))
    elif self.global_steps % 100 == 0 and os.environ["LEAK"] == "files":
        HOARD.append(Path(os.devnull).open())  # noqa: SIM115 - left open on purpose
    elif self.global_steps % 100 == 0:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


DeepSpeedEngine.step = step

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
