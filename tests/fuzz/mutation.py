"""Damage: bytes, numbers, lines and keys changed at random; archives and headers opened first, so that what
is inside is damaged and not their checksums alone.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Callable
from random import Random

import zstandard

from tests.support.network.hostile_pickles import random_pickle

Mutate = Callable[[bytes, Random], bytes]

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(rb'"[^"\n]*"|\w+')
_EXTREMES = (
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"-0.0",
    b"2147483648",
    b"9223372036854775808",
    b"1" + b"0" * 18,
    b"9" * 400,
    b"1" * 5000,
    b"true",
    b"null",
    b'""',
    b"[]",
    b"{}",
)
_BYTES = (
    b"\0",
    b"\xff",
    b"\n",
    b'"',
    b"\\",
    b"[",
    b"{",
    b"(",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\x80" * 10,
)
_NESTS = (b"[", b"{", b'{"a":', b"(", b"[[", b"a.", b"\\")
_NUMBERS = (-1, 5 * 10**9, 2**63, 10**400, 1e308, math.nan, -math.inf)
_VALUES = (None, True, *_NUMBERS, "", "$\\bad{$", "\0", "\udcff", "a" * 10**5, [], {}, [[]])
# What stands in JSON, and what people who write Hjson have there.
_HJSON = (
    (",", (",,", "", ", # x\n", ", // x\n", "/* x */,", "/*,", "\n")),
    ('"', ("", "'", "'''", '""')),
    ("}", (",}", "}}", "", "# }\n}", "/* } */}")),
    ("{", ("{\n# x\n", "{{", "{,", "", "/*", "//")),
    ("]", (",]", "", "]]")),
    (":", (": # x\n", ":\n", "::", "=", ": '''\n  x\n  '''")),
    ("\n", ("\r\n", "\r", "", "\n\n\n", "\u2028")),
    ("true", ("yes", "true x", "TRUE", "null")),
    ("0", ("00", "0x1", ".", "1e999", "-")),
)
_MOST_BYTES = 4 << 20  # of a damaged input


def damaged(content: bytes, random: Random) -> bytes:
    """One to four changes of any kind."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = random.choice(_CHANGES)(content, random)[:_MOST_BYTES]
    return content


def _span(content: bytes, random: Random, longest: int) -> tuple[int, int]:
    begin = random.randrange(len(content) + 1)
    return begin, min(begin + random.randint(1, longest), len(content))


def _change_bits(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _insert(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(_BYTES) * random.choice((1, 1, 1, 3, 1000)) + content[at:]


def _delete(content: bytes, random: Random) -> bytes:
    begin, end = _span(content, random, random.choice((1, 4, 64, 4096)))
    return content[:begin] + content[end:]


def _repeat(content: bytes, random: Random) -> bytes:
    begin, end = _span(content, random, random.choice((4, 64, 4096)))
    return content[:begin] + content[begin:end] * random.choice((2, 2, 2, 50, 2000)) + content[end:]


def _splice(content: bytes, random: Random) -> bytes:
    begin, end = _span(content, random, 4096)
    at = random.randrange(len(content) + 1)
    return content[:at] + content[begin:end] + content[at + (end - begin) * random.randrange(2) :]


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _change_number(content: bytes, random: Random) -> bytes:
    """A number as text."""
    found = list(_NUMBER.finditer(content[: 1 << 16]))
    if not found:
        return _insert(content, random)
    match = random.choice(found)
    return content[: match.start()] + random.choice(_EXTREMES) + content[match.end() :]


def _change_integer(content: bytes, random: Random) -> bytes:
    """A number as Arrow, zip, zlib and safetensors write it."""
    kind = random.choice("BHIQ")
    size = struct.calcsize("<" + kind)
    if len(content) < size:
        return _insert(content, random)
    # Headers and footers hold the lengths.
    near = random.choice((64, 1024, len(content)))
    at = random.randrange(min(near, len(content) - size + 1))
    if random.randrange(2):
        at = len(content) - size - at
    (value,) = struct.unpack_from("<" + kind, content, at)
    top = 256**size - 1
    new = (
        random.choice((0, 1, top, top // 2, top // 2 + 1, value + 1, value - 1, value * 2, value << 8)) & top
    )
    return content[:at] + struct.pack("<" + kind, new) + content[at + size :]


def _change_word(content: bytes, random: Random) -> bytes:
    """A key, name or string gives way to another one: keys stand twice, values get another type."""
    found = list(_WORD.finditer(content[: 1 << 16]))
    if not found:
        return _insert(content, random)
    match, other = random.choice(found), random.choice(found).group()
    return content[: match.start()] + random.choice((other, other, *_EXTREMES)) + content[match.end() :]


def _change_lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    line = random.randrange(len(lines))
    changed = random.choice(
        (
            lambda: [*lines[:line], lines[line], *lines[line:]],
            lambda: [*lines[:line], *lines[line + 1 :]],
            lambda: [*lines, lines[line]],
            lambda: [*lines[:line], b"".join(lines[line : line + 2]), *lines[line + 2 :]],
        )
    )
    return b"\n".join(changed())


def _nest(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(_NESTS) * random.choice((2, 50, 5000, 200000)) + content[at:]


_CHANGES: tuple[Mutate, ...] = (
    _change_bits,
    _insert,
    _delete,
    _repeat,
    _splice,
    _truncate,
    _change_number,
    _change_number,
    _change_integer,
    _change_integer,
    _change_word,
    _change_word,
    _change_lines,
    _nest,
)


def through(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes]) -> Mutate:
    """Damage what is inside, and now and then the outside."""

    def mutate(content: bytes, random: Random) -> bytes:
        if random.randrange(5) == 0:
            return damaged(content, random)
        return pack(damaged(unpack(content), random))

    return mutate


in_gzip = through(gzip.decompress, lambda inside: gzip.compress(inside, 1))
in_bz2 = through(bz2.decompress, lambda inside: bz2.compress(inside, 1))
in_zstd = through(lambda content: zstandard.decompress(content), zstandard.compress)


def in_zip(content: bytes, random: Random) -> bytes:
    """A member of a .pt file, its checksum right; or one doubled, lost, packed, or of other steps."""
    if random.randrange(5) == 0:
        return damaged(content, random)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as changed:
        chosen = random.choice(archive.namelist())
        if random.randrange(2):
            chosen = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        deflated = random.randrange(8) == 0
        changed.compression = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
        for name in archive.namelist():
            inside = archive.read(name)
            if name == chosen:
                pickled = name.endswith("data.pkl") and random.randrange(2)
                inside = random_pickle(random) if pickled else damaged(inside, random)
                inside = bytes(1 << 26) if deflated else inside
            if name != chosen or random.randrange(20):
                changed.writestr(name, inside)
    return out.getvalue()


def in_safetensors(content: bytes, random: Random) -> bytes:
    """The JSON header, its length made right again."""
    if random.randrange(4) == 0:
        return damaged(content, random)
    (length,) = struct.unpack_from("<Q", content)
    header = damaged(content[8 : 8 + length], random)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def in_lines(content: bytes, random: Random) -> bytes:
    """A few lines of JSON, each as in_json does it; or any damage."""
    lines = content.split(b"\n")
    for _ in range(random.choice((1, 1, 3, 20))):
        at = random.randrange(len(lines))
        lines[at] = in_json(lines[at], random)
    return b"\n".join(lines)


def in_hjson(content: bytes, random: Random) -> bytes:
    """JSON written as people write Hjson, then as in_json does it; or the syntax damaged."""
    text = (in_json(content, random) if random.randrange(2) else content).decode(errors="replace")
    for _ in range(random.choice((1, 1, 3, 20))):
        sign, others = random.choice(_HJSON)
        places = [found.start() for found in re.finditer(re.escape(sign), text[: 1 << 16])]
        if places:
            at = random.choice(places)
            text = text[:at] + random.choice(others) + text[at + len(sign) :]
    return damaged(text.encode(), random) if random.randrange(3) == 0 else text.encode()


def in_json(content: bytes, random: Random) -> bytes:
    """A value somewhere in the tree given another type or size; or any damage."""
    if random.randrange(2):
        return damaged(content, random)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):  # damaged before
        return damaged(content, random)
    at = tree
    while isinstance(at, dict | list) and at:
        key = random.choice(list(at)) if isinstance(at, dict) else random.randrange(len(at))
        if not isinstance(at[key], dict | list) or not at[key] or random.randrange(4) == 0:
            at[key] = random.choice(_VALUES)
            break
        at = at[key]
    return json.dumps(tree).encode()
