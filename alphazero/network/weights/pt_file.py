"""Reads a .pt of torch.save: plain values and tensors, in time and memory that the file's size bounds.

torch.load(weights_only=True) runs no code, but it trusts sizes: it allocates what a compressed member claims,
and reads past the end of a storage that is shorter than announced. A child process with limits would import
torch a second time, which takes seconds. So this is a reader of its own, in Python: of a pickle's steps it
has those that torch.save writes for tensors, and it builds nothing but tensors on the archive's members.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from alphazero.base.errors import WeightsError
from alphazero.base.files import open_regular
from alphazero.base.text import quoted, reason

# 256 residual blocks with squeeze-excitation have 4,100 tensors: 450 KB of pickle.
MAX_PICKLE_BYTES = 2 << 20
MAX_NUMBER_AS_KEY = 1 << 20  # larger ones can be chosen to have one hash
_STEPS = (
    *(pickle.PROTO, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT),
    *(pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT, pickle.BINUNICODE, pickle.EMPTY_DICT),
    *(pickle.EMPTY_LIST, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.APPEND, pickle.APPENDS, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.GLOBAL, pickle.BINPERSID, pickle.REDUCE),
)
_DTYPES = {
    **{"DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16},
    **{"BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32},
    **{"ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8},
    **{"BoolStorage": torch.bool},
}


def read_pt_content(path: Path) -> object:
    """What was given to torch.save, on the CPU. Raises WeightsError."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                    raise WeightsError(
                        f"{path}: {quoted(member.filename)} is compressed; torch.save stores it"
                    )
            total, size = sum(member.file_size for member in members), path.stat().st_size
            if total > size:
                raise WeightsError(f"{path}: members of {total} bytes in {size}: they share their bytes")
            folder = members[0].filename.partition("/")[0] if members else ""
            if archive.getinfo(f"{folder}/data.pkl").file_size > MAX_PICKLE_BYTES:
                raise WeightsError(f"{path}: expected a data.pkl of at most {MAX_PICKLE_BYTES} bytes")
            content = archive.read(f"{folder}/data.pkl")
            return _Reader(content, lambda key: archive.read(f"{folder}/data/{key}")).load()
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror or error}") from None
    except pickle.UnpicklingError as error:
        raise WeightsError(f"{path}: {reason(error)}") from None
    except WeightsError:
        raise
    except Exception as error:  # a damaged file makes the readers of zip and pickle stumble in any way
        text = f"damaged or truncated: {reason(error)}; expected what torch.save writes"
        raise WeightsError(f"{path}: {text}") from None


class _Reader(pickle._Unpickler):  # in Python: its memo takes no more memory than what is put there
    """Follows the steps of torch.save; the names in the pickle only stand for what is built here."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, content: bytes, member: Callable[[str], bytes]) -> None:
        """member: the bytes of a storage by its key."""
        super().__init__(io.BytesIO(content))
        self._member = member
        self._storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return lambda: OrderedDict()  # takes no content
        raise pickle.UnpicklingError("holds Python objects, not plain weights; it was not opened")

    def persistent_load(self, pid: Any) -> Tensor:  # noqa: ANN401
        match pid:
            case ("storage", torch.dtype() as dtype, str(key), str(), int(numel)):
                pass
            case _:
                raise pickle.UnpicklingError("something else than a storage as a tensor's")
        if key not in self._storages:
            content = bytearray(self._member(key))
            # No buffer of no bytes is one to torch.
            storage = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
            self._storages[key] = storage
        storage = self._storages[key]
        if (storage.dtype, len(storage)) != (dtype, numel):
            raise pickle.UnpicklingError(
                f"data/{quoted(key)}: {len(storage)} of {storage.dtype}, expected {quoted(numel)} of {dtype}"
            )
        return storage

    def _set_items(self, items: list[Any]) -> None:
        """Into the dict on top. A tuple as a key could take for ever to hash."""
        table = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str and not (type(key) is int and 0 <= key < MAX_NUMBER_AS_KEY):
                raise pickle.UnpicklingError("a key of another kind than text or a small whole number")
            if not isinstance(table, dict):
                raise pickle.UnpicklingError("a key and value for something else than a dict")
            table[key] = value

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    def load_build(self) -> None:
        """Leave out the `_metadata` of a module's state."""
        self.stack.pop()
        if not isinstance(self.stack[-1], OrderedDict):
            raise pickle.UnpicklingError("attributes of something else than a module's state")

    dispatch: ClassVar[Any] = {
        **{step[0]: pickle._Unpickler.dispatch[step[0]] for step in _STEPS},
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.BUILD[0]: load_build,
    }


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: object) -> Tensor:  # noqa: ANN401
    """A whole storage in a shape: a part of one, or a view with strides, can show more than a file holds."""
    if not isinstance(storage, Tensor):
        raise pickle.UnpicklingError("a tensor without a storage")
    tensor = storage.as_strided(size, stride, offset)
    if not tensor.is_contiguous() or tensor.numel() != len(storage):
        raise pickle.UnpicklingError(
            f"{tensor.numel()} numbers of a storage of {len(storage)}: expected all of them, contiguous"
        )
    return tensor
