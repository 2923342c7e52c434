"""What stands for CUDA graphs on a machine without a GPU: the same function, called once more."""

from collections.abc import Callable

from alphazero.network.inference.program import Work


class CallingAgain:
    """Stands in for CudaRecorder, and counts what was recorded and done again. fail: called before each."""

    def __init__(self, fail: Callable[[], None] = lambda: None) -> None:
        self.warm_ups = self.recordings = self.replays = 0
        self._fail = fail

    def warm_up(self, work: Work) -> None:
        self.warm_ups += 1
        work()

    def record(self, work: Work) -> Work:
        self._fail()
        self.recordings += 1
        work()

        def again() -> None:
            self.replays += 1
            work()

        return again
