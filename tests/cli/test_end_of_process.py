"""How a command ends its process: as Python does, but without taking libraries down."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit, threading, time
from alphazero.run.rank import end_process

class Library:
    def __del__(self):
        print("taken down")

library = Library()
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread ended"))).start()
end_process(3)
"""


def test_threads_and_exit_handlers_are_waited_for_and_nothing_is_taken_down():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "thread ended\nat exit\n", "")


def test_output_that_cannot_be_written_is_a_failure():
    program = "from alphazero.run.rank import end_process; print('x'); end_process(0)"
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, env=environment, timeout=60)
    assert done.returncode == 120


CRASH = """
import alphazero.cli.main as command

class Library:
    def __del__(self):
        print("taken down")

library = Library()
def crash(argv):
    raise RuntimeError("a bug")
command.main = crash
command.entry_point([])
"""


def test_a_crash_shows_its_traceback_and_takes_nothing_down_either():
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback") and done.stderr.endswith("RuntimeError: a bug\n")
