"""Stands in for an actor: says that it plays, and when it is asked to end, that it has published.

`fake_actor.py selfplay --for PLACE ...`.
"""

import signal
import sys
import threading


def main() -> int:
    """An actor's life."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    print(f"plays for {sys.argv[3]}", flush=True)
    while not asked.wait(0.1):
        pass
    print("has published", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
