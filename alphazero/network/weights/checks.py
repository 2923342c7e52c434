"""Checks of files that may be hostile: a .pt or .safetensors before it is opened, tensors before use.

torch.load(weights_only=True) runs no code, but it trusts sizes: it allocates what a compressed member
claims, and reads past the end of a storage that is shorter than announced. A .pt is a zip archive of a
pickle, which describes the tensors, and of a member for the bytes of each one. The archive must be as
torch.save writes it: members stored, not compressed, together no larger than the file, in one directory at
its end (so that two readers of zip cannot see two archives), and a small pickle that names tensors only
(pickle_outline.py), each on a member of the announced size.

The `*_fault` functions return the fault without the file's name; the reader of the file raises its kind of
error.
"""

from __future__ import annotations

import math
import reprlib
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from alphazero.base.errors import WeightsError
from alphazero.base.text import quoted, reason, shortened
from alphazero.network.weights.pickle_outline import MAX_DIMENSIONS, PickleError, storages_of

# 256 residual blocks have 4,100 tensors of 100 bytes each in the header.
MAX_SAFETENSORS_HEADER_BYTES = 4 << 20


def shown(value: object) -> str:
    """A value from a file for one line of an error: short, and without line breaks."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    try:
        return " ".join(reprlib.repr(value).split())
    except (ValueError, RecursionError):  # numbers of thousands of digits
        return quoted(value)


def shown_name(name: str) -> str:
    """The name of a tensor as it stands, unless it would not fit into a line."""
    return name if name.isprintable() and len(name) <= 100 else shown(name)


def safetensors_header_fault(path: Path) -> str | None:
    """What is wrong with the size of the header, which the library would read as a whole. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(8)
    size = int.from_bytes(start, "little")
    if len(start) == 8 and size <= MAX_SAFETENSORS_HEADER_BYTES:
        return None
    return f"a header of {size} bytes: expected at most {MAX_SAFETENSORS_HEADER_BYTES}"


def layout_fault(tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor that is not its own bytes one after the other: a small file can show a huge one."""
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            return f"{shown_name(name)}: expected a plain tensor"
        if tensor.dim() > MAX_DIMENSIONS:
            return f"{shown_name(name)}: {tensor.dim()} dimensions: expected at most {MAX_DIMENSIONS}"
        held, needed = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
        if not tensor.is_contiguous() or held != needed:
            return (
                f"{shown_name(name)}: shape {list(tensor.shape)} with strides {list(tensor.stride())} on "
                f"{held} bytes: expected {needed} bytes, contiguous"
            )
    return None


def values_fault(tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor of another type than fp32 and int64, or with numbers that are not finite."""
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float32, torch.int64):
            return f"{shown_name(name)}: {tensor.dtype}, expected torch.float32"
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        # One pass without a copy; a NaN is both the least and the greatest.
        least, greatest = torch.aminmax(tensor)
        if not (math.isfinite(least) and math.isfinite(greatest)):
            bad = int(tensor.numel() - torch.isfinite(tensor).sum())
            return f"{shown_name(name)}: {bad} of {tensor.numel()} numbers are not finite"
    return None


def variances_fault(tensors: Mapping[str, Tensor]) -> str | None:
    """The first running variance of a BatchNorm that is none."""
    for name, tensor in tensors.items():
        if name.endswith(".running_var") and tensor.numel() and float(tensor.min()) <= 0:
            return f"{shown_name(name)}: {float(tensor.min())}: expected variances above 0"
    return None


def one_line(error: BaseException) -> str:
    """The first line of an error's text, cut where it is long."""
    lines = str(error).strip().splitlines()
    return shortened(lines[0]) if lines else type(error).__name__


# 256 residual blocks with squeeze-excitation have 4,100 tensors: 450 KB of pickle.
MAX_MEMBERS = 10_000
MAX_DIRECTORY_BYTES = 2 << 20
MAX_PICKLE_BYTES = 2 << 20
# PKWARE appnote.txt 4.3.14 to 4.3.16: the 64-bit end record, where it lies, the 32-bit end record.
END_64, LOCATOR, END = struct.Struct("<4sQHHLLQQQQ"), struct.Struct("<4sLQL"), struct.Struct("<4sHHHHLLH")


def check_pt_archive(path: Path) -> None:
    """Raise WeightsError unless torch.load can read `path` in memory that the file's size bounds."""
    try:
        with path.open("rb") as file:
            _check_end(path, file)
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(path, members)
                sizes = {member.filename: member.file_size for member in members}
                folder = members[0].filename.partition("/")[0] if members else ""
                if not 0 < sizes.get(f"{folder}/data.pkl", 0) <= MAX_PICKLE_BYTES:
                    raise WeightsError(f"{path}: expected a data.pkl of at most {MAX_PICKLE_BYTES} bytes")
                content = archive.read(f"{folder}/data.pkl")
    except (zipfile.BadZipFile, RuntimeError, EOFError, ValueError, struct.error) as error:  # e.g. encrypted
        raise WeightsError(f"{path}: damaged or truncated: {reason(error)}") from None
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror or error}") from None
    data = f"{folder}/data/"
    _check_storages(
        path, content, {name[len(data) :]: size for name, size in sizes.items() if name.startswith(data)}
    )


def _check_end(path: Path, file: IO[bytes]) -> None:
    """The archive's directory: one, at the end, where both of its end records say."""
    size = file.seek(0, 2)
    tail_size = min(size, END_64.size + LOCATOR.size + END.size)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    fault = f"{path}: damaged or truncated: no directory of a zip archive at the end"
    if tail_size < END.size:
        raise WeightsError(fault)
    signature, _, _, _, _, bytes_32, start_32, comment = END.unpack(tail[-END.size :])
    if signature != b"PK\x05\x06" or comment:
        raise WeightsError(fault)
    end = size - END.size
    directory_bytes, start = bytes_32, start_32
    if tail[-END.size - LOCATOR.size :][:4] == b"PK\x06\x07":
        if tail_size < END_64.size + LOCATOR.size + END.size:
            raise WeightsError(fault)
        end -= LOCATOR.size + END_64.size
        place = LOCATOR.unpack(tail[END_64.size : END_64.size + LOCATOR.size])[2]
        record = END_64.unpack(tail[: END_64.size])
        directory_bytes, start = record[8], record[9]
        if record[0] != b"PK\x06\x06" or place != end:
            raise WeightsError(fault)
    if start + directory_bytes != end:
        raise WeightsError(fault)
    if directory_bytes > MAX_DIRECTORY_BYTES:
        raise WeightsError(f"{path}: a directory of {directory_bytes} bytes: no network has as many tensors")


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_MEMBERS:
        raise WeightsError(f"{path}: {len(members)} members: expected at most {MAX_MEMBERS}")
    if len({member.filename.lower() for member in members}) != len(members):
        raise WeightsError(f"{path}: members of the same name")
    for member in members:
        if not member.filename.isascii() or member.orig_filename != member.filename:
            raise WeightsError(f"{path}: {quoted(member.filename)}: expected a name that torch.save gives")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise WeightsError(
                f"{path}: {quoted(member.filename)}: {member.compress_size} bytes that unpack to "
                f"{member.file_size}: expected members that are not compressed, as torch.save writes them"
            )
    total = sum(member.file_size for member in members)
    if total > path.stat().st_size:
        raise WeightsError(
            f"{path}: members of {total} bytes in a file of {path.stat().st_size}: they share their bytes"
        )


def _check_storages(path: Path, content: bytes, sizes: dict[str, int]) -> None:
    """Every storage has a member with the bytes it announces."""
    try:
        storages = storages_of(content)
    except PickleError as error:
        raise WeightsError(f"{path}: {error}") from None
    for storage in storages:
        if sizes.get(storage.key, -1) != storage.size_bytes:
            raise WeightsError(
                f"{path}: data/{shown_name(storage.key)}: {sizes.get(storage.key, 0)} bytes, "
                f"expected {shown(storage.size_bytes)}"
            )
