"""Pickles of a few opcodes that would take a reader for ever, or all of its memory."""

import pickle
import struct
import zipfile
from pathlib import Path
from random import Random

FLOATS = 4
START, END = b"\x80\x02}", b"."


def as_pt(path: Path, pickled: bytes) -> None:
    """An archive as torch.save writes it, with one storage of two numbers."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (("data.pkl", pickled), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(f"x/{name}", content)
        archive.writestr("x/data/0", bytes(2 * FLOATS))


def text(value: str) -> bytes:
    """BINUNICODE."""
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    """BININT or LONG1."""
    return pickle.dumps(value, 2)[2:-1]


def key_value(key: bytes, value: bytes) -> bytes:
    """Set in the dict on top."""
    return key + value + b"s"


def at_a(value: bytes) -> bytes:
    """Set in the dict under the key a."""
    return key_value(text("a"), value)


def numbers(values: tuple[int, ...]) -> bytes:
    """A tuple."""
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, *, numel: int = 2) -> bytes:
    """A tensor on storage 0."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(numel)
    hooks = b"ccollections\nOrderedDict\n)R"
    placed = number(offset) + numbers(size) + numbers(stride) + b"\x89" + hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"tQ" + placed + b"tR"


def doubled(times: int) -> bytes:
    """A tuple of two times the same tuple of two times the same ..."""
    steps = b"N"
    for place in range(times):
        steps += b"q" + bytes([place]) + b"h" + bytes([place]) + b"\x86"
    return steps


def colliding_keys(count: int) -> bytes:
    """Whole numbers of one hash: Python hashes them modulo 2^61 - 1."""
    return b"(" + b"".join(number((2**61 - 1) * place) + b"N" for place in range(1, count)) + b"u"


PAIRS = b"ccollections\nOrderedDict\n(]" + doubled(40) + b"N\x86atR"
# By name the steps after an empty dict, and what the reader answers.
STEPS: dict[str, tuple[bytes, str]] = {
    "nested-key": (key_value(doubled(40), b"N"), "a key of another kind"),
    "nested-value": (key_value(text("magic"), doubled(40)), "magic"),
    "nested-pairs": (at_a(PAIRS), "damaged"),
    "pairs": (at_a(b"ccollections\nOrderedDict\n(](Nta" + b"tR"), "damaged"),
    "attributes": (at_a(b"ccollections\nOrderedDict\n)R](Ntab"), "magic"),
    "tuple-key": (key_value(b")", b"N"), "a key of another kind"),
    "float-key": (key_value(b"G" + bytes(8), b"N"), "a key of another kind"),
    "colliding-keys": (colliding_keys(100_000), "a key of another kind"),
    "memo": (b"r" + struct.pack("<I", (1 << 28) - 1), "magic"),
    "empty-memo": (b"j" + struct.pack("<I", 7), "index 7"),
    "deep-lists": (at_a(b"]" * 200_000 + b"a" * 199_999), "magic"),
    "deep-tuples": (at_a(b"N" + b"\x85" * 200_000), "magic"),
    "marks": (b"(" * 400_000 + b"u" * 400_000, "damaged or truncated"),
    "grown-storage": (at_a(tensor((1 << 40,), (1,))), "damaged"),
    "many-sizes": (at_a(tensor((1,) * 100_000, (1,) * 100_000)), "expected all of them"),
    "huge-storage": (at_a(tensor((1,), (1,), numel=1 << 40)), "expected 1099511627776 of torch.float32"),
    "huge-number": (at_a(b"\x8b\0\0\x10\0" + b"\x7f" * (1 << 20)), "damaged"),
    "digits": (at_a(b"L" + b"7" * 1_000_000 + b"L\n"), "damaged"),
    "bytes": (at_a(b"\x8e" + struct.pack("<Q", 1 << 40)), "damaged"),
    "set": (at_a(b"\x8f"), "damaged"),
    "many-tensors": (
        b"(" + b"".join(text(str(place)) + tensor((2,), (1,)) for place in range(9_000)) + b"u",
        "magic",
    ),
}
HOSTILE = {name: (START + steps + END, answer) for name, (steps, answer) in STEPS.items()}


def random_pickle(random: Random) -> bytes:
    """One of them, or steps in any order: each alone is one that torch.save writes."""
    if random.randrange(3) == 0:
        return random.choice(list(HOSTILE.values()))[0]
    steps = (
        *(b"N", b"\x88", b"\x89", b"K\x01", b"K\x02", b"]", b"}", b")", b"(", b"a", b"e", b"s", b"u"),
        *(b"t", b"R", b"b", b"Q", b"\x85", b"\x86", b"\x87"),
        *(text("a"), text("storage"), text("0"), text("cpu")),
        *(b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n"),
        *(tensor((2,), (1,)), numbers((2, 3)), doubled(3), number(2**61 - 1), number(1 << 40)),
    )
    pickled = START
    for place in range(random.choice((3, 10, 40, 2000))):
        pickled += random.choice(steps)
        if random.randrange(3) == 0:
            at = random.choice((place, place, random.randrange(256), (1 << 31) - 1))
            short = at < 256 and random.randrange(2)
            pickled += (b"q" + bytes([at])) if short else b"r" + struct.pack("<I", at)
        if random.randrange(3) == 0:
            pickled += b"h" + bytes([random.randrange(min(place + 1, 256))])
    return pickled + END
