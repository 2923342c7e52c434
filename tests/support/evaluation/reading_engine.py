"""A UCI engine that answers with what stands in a file: python reading_engine.py FILE.

FILE: parts that end with a line `--`: the answer to `uci`, then those to one `go` after the other. MOVE in
them is a legal move of a game from the first position, in which both sides move a knight forth and back.
"""

import sys

KNIGHTS = (b"g1f3", b"g8f6", b"f3g1", b"f6g8")


def main() -> None:
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123 - without imports it starts at once
        greeting, *answers = file.read().split(b"--\n")
    plies = number = 0
    for line in sys.stdin.buffer:
        command = line.split()[:1]
        if command == [b"position"]:
            plies = len(line.partition(b" moves ")[2].split())
        elif command == [b"go"] and answers:
            say(answers[number % len(answers)].replace(b"MOVE", KNIGHTS[plies % len(KNIGHTS)]))
            number += 1
        elif command == [b"uci"]:
            say(greeting)
        elif command == [b"isready"]:
            say(b"readyok\n")
        elif command == [b"quit"]:
            return


def say(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
