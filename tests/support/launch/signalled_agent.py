"""A node agent that gets SIGUSR1 just before it starts its launcher, which gets it at its first moment."""

import os
import signal
import subprocess
import sys

from alphazero.launch.agent import node_agent


class SignalledPopen(subprocess.Popen):
    """What SLURM does when it signals a step at that moment."""

    def __init__(self, *args, **options) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        super().__init__(*args, **options)
        self.send_signal(signal.SIGUSR1)


if __name__ == "__main__":
    subprocess.Popen = SignalledPopen
    sys.exit(node_agent.main())
