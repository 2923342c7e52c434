"""What a pickle of tensors would build, followed step by step without building it.

A pickle of a few hundred bytes can be a tuple of 2^60 parts, each the same one, which takes for ever to hash
as a key, or ask for a memo of gigabytes. Only the steps that torch.save writes are followed. Keys are text or
small whole numbers, a tuple, list or dict has one place and limited depth, places of the memo are fewer than
the steps, and a tensor keeps to its storage: reading takes time and memory in proportion to the file.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass

from alphazero.base.text import quoted, reason

# 256 residual blocks with squeeze-excitation have 4,100 tensors: 100,000 steps.
MAX_STEPS = 500_000
MAX_DEPTH = 16
MAX_DIMENSIONS = 16
ITEM_BYTES = {
    **{"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2},
    **{"Char": 1, "Byte": 1, "Bool": 1},
}
# All that a pickle of tensors names; torch would also call what makes tensors of any size from a number.
NAMES = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2"} | {
    f"torch {dtype}Storage" for dtype in ITEM_BYTES
}
PYTHON_OBJECTS = "holds Python objects, not plain weights; it was not opened"
_NAMING = ("GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "OBJ", "NEWOBJ", "NEWOBJ_EX")
_VALUES = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class PickleError(Exception):
    """What is wrong, without the file's name."""


@dataclass(frozen=True)
class Storage:
    """The bytes of tensors: a member of the archive."""

    key: str
    size_bytes: int
    numel: int


@dataclass(frozen=True)
class _Name:
    """A class or function."""

    text: str


@dataclass
class _Container:
    """kind: tuple, list, dict, or OrderedDict. depth: of what it holds, and one. items: of a tuple."""

    kind: str
    depth: int = 1
    items: tuple[object, ...] = ()


_TENSOR = object()


class _Outline:
    """The stacks and the memo, as torch's reader has them."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.below: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.storages: dict[str, Storage] = {}

    def step(self, number: int, name: str, argument: object) -> None:
        """One opcode. Raises PickleError, or IndexError for too few values."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            if not isinstance(argument, int) or argument > number:
                raise PickleError(f"place {argument} of the memo at step {number}")
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._get(argument)
        elif name == "GLOBAL":
            self.stack.append(_Name(str(argument)))
        elif name == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            self.stack.append(_Container(name.removeprefix("EMPTY_").lower()))
        elif name in _TUPLES:
            self._put_tuple([self.stack.pop() for _ in range(_TUPLES[name])][::-1])
        elif name == "TUPLE":
            self._put_tuple(self._above_mark())
        elif name in ("APPEND", "APPENDS"):
            self._add([self.stack.pop()] if name == "APPEND" else self._above_mark(), "list")
        elif name in ("SETITEM", "SETITEMS"):
            self._set([self.stack.pop(), self.stack.pop()][::-1] if name == "SETITEM" else self._above_mark())
        elif name == "BINPERSID":
            self._put_storage()
        elif name == "REDUCE":
            self._call()
        elif name == "BUILD":
            self._set_attributes()
        elif name not in ("PROTO", "STOP"):
            raise PickleError(f"step {name}: expected what torch.save writes")

    def _get(self, place: object) -> None:
        if not isinstance(place, int) or place not in self.memo:
            raise PickleError(f"place {place} of the memo is empty")
        if isinstance(self.memo[place], _Container):
            raise PickleError("one tuple, list or dict in two places: expected one place for each")
        self.stack.append(self.memo[place])

    def _above_mark(self) -> list[object]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def _put_tuple(self, items: list[object]) -> None:
        self.stack.append(_Container("tuple", 1 + _depth(items), tuple(items)))
        _check_depth(self.stack[-1])

    def _add(self, items: list[object], *kinds: str) -> None:
        """Into the container on top."""
        container = self.stack[-1]
        if not isinstance(container, _Container) or container.kind not in kinds:
            raise PickleError(f"values for something else than {' or '.join(kinds)}")
        container.depth = max(container.depth, 1 + _depth(items))
        _check_depth(container)

    def _set(self, items: list[object]) -> None:
        if len(items) % 2:
            raise PickleError("a key without a value")
        for key in items[::2]:
            # Numbers close to each other do not collide in a dict, as chosen larger ones do.
            if not isinstance(key, str) and not (type(key) is int and 0 <= key < MAX_STEPS):
                raise PickleError(f"a key that is {_what(key)}: expected text or a small whole number")
        self._add(items[1::2], "dict", "OrderedDict")

    def _set_attributes(self) -> None:
        """`_metadata` of a module's state."""
        state = self.stack.pop()
        if not isinstance(state, _Container) or state.kind != "dict":
            raise PickleError(f"attributes that are {_what(state)}: expected a dict")
        self._add([state], "OrderedDict")

    def _put_storage(self) -> None:
        pid = self.stack.pop()
        match pid.items if isinstance(pid, _Container) else ():
            case ("storage", _Name(text=text), str(key), str(), int(numel)) if text in NAMES:
                item_bytes = ITEM_BYTES.get(text.removeprefix("torch ").removesuffix("Storage"), 0)
            case _:
                raise PickleError(f"{_what(pid)}: expected a storage")
        storage = Storage(key, numel * item_bytes, numel)
        if not item_bytes or numel < 0 or self.storages.setdefault(key, storage) != storage:
            raise PickleError(f"data/{quoted(key)}: expected one storage of one size")
        self.stack.append(storage)

    def _call(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        items = arguments.items if isinstance(arguments, _Container) and arguments.kind == "tuple" else None
        match called, items:
            case _Name(text="collections OrderedDict"), ():
                self.stack.append(_Container("OrderedDict"))
            case _Name(text="torch._utils _rebuild_tensor_v2"), (
                Storage() as storage,
                int(offset),
                _Container(kind="tuple", items=size),
                _Container(kind="tuple", items=stride),
                bool(),
                _Container(kind="OrderedDict"),
            ):
                _check_place(storage, offset, size, stride)
                self.stack.append(_TENSOR)
            case _:
                raise PickleError("a call other than those of tensors")


def _depth(items: list[object]) -> int:
    return max((item.depth for item in items if isinstance(item, _Container)), default=0)


def _check_depth(container: object) -> None:
    if isinstance(container, _Container) and container.depth > MAX_DEPTH:
        raise PickleError(f"values nested more than {MAX_DEPTH} deep")


def _what(value: object) -> str:
    """A value for a line of an error."""
    if isinstance(value, _Container):
        return f"a {value.kind}"
    return quoted(value) if isinstance(value, str) else f"{type(value).__name__}".lstrip("_")


def _check_place(storage: Storage, offset: int, size: tuple[object, ...], stride: tuple[object, ...]) -> None:
    """A tensor may not reach beyond its storage, which torch would make larger for it."""
    if len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
        raise PickleError(f"a tensor of {len(size)} sizes and {len(stride)} strides")
    last = offset
    for count, distance in zip(size, stride, strict=True):
        if type(count) is not int or type(distance) is not int or min(count, distance, offset) < 0:
            raise PickleError("a tensor of sizes that are no counts")
        last += (count - 1) * distance
    if 0 in size:
        last = offset - 1
    if not last < storage.numel:
        raise PickleError(
            f"a tensor of shape {quoted(list(size))} with strides {quoted(list(stride))} from "
            f"{quoted(offset)}: expected one within its storage of {storage.numel}"
        )


def storages_of(content: bytes) -> list[Storage]:
    """The storages that the tensors of a pickle lie on. Raises PickleError."""
    outline = _Outline()
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if number > MAX_STEPS:
                raise PickleError(f"data.pkl has over {MAX_STEPS} steps: no network has")
            if opcode.name in _NAMING and not (opcode.name == "GLOBAL" and argument in NAMES):
                raise PickleError(PYTHON_OBJECTS)
            outline.step(number, opcode.name, argument)
    except IndexError:
        raise PickleError("damaged or truncated: data.pkl has a step without its values") from None
    except (ValueError, EOFError, OverflowError, UnicodeError) as error:
        raise PickleError(f"damaged or truncated: {reason(error)}") from None
    return list(outline.storages.values())
