"""Messages between ranks outside gradients: numbers, records, files, tensors, and faults.

Between processes go JSON, Arrow and tensors, never pickle: what a rank receives can be wrong, but it cannot
run code. Every method is collective: all ranks of the job call it, in the same order.

By checksums of tensors ranks find out whether they hold the same bits, and which do not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist

from alphazero.base.errors import ERRORS_BY_KIND, AlphaZeroError, DivergedRanksError, TrainingError

# Odd, so that multiplication modulo 2**64 loses no bit; Knuth's MMIX multiplier.
HASH_MULTIPLIER = 6364136223846793005


def checksums(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, int]:
    """`checksum` of every tensor, all brought from the device at once."""
    names, sums = [], []
    for name, tensor in named:
        names.append(name)
        sums.append(checksum(tensor))
    return dict(zip(names, torch.stack(sums).tolist(), strict=True)) if sums else {}


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """i64 [], a sum over the bits of `tensor`, each element weighed by its place; equal bits, equal sum.

    Integer sums wrap and commute, so the result does not depend on the order of a parallel sum. Where the
    device's memory is full, the CPU adds them up.
    """
    try:
        return _sum_of_bits(tensor.detach())
    except torch.OutOfMemoryError:
        return _sum_of_bits(tensor.detach().cpu()).to(tensor.device)


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.contiguous().flatten()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    bits = flat.view(integer).to(torch.int64)
    weights = (2 * torch.arange(bits.numel(), device=bits.device) + 1) * HASH_MULTIPLIER
    return (bits * weights).sum()


def odd_ranks(values: Sequence[Hashable]) -> list[int]:
    """Ranks whose value is not the one most have; all ranks where no value is the most common one."""
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return []
    if counts[0][1] == counts[1][1]:
        return list(range(len(values)))
    return [rank for rank, value in enumerate(values) if value != counts[0][0]]


T = TypeVar("T")

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

# Types that tensors of checkpoints have, by the names they cross under.
DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


# The longest message: a shard of games or the lanes.
LONGEST_BYTES = 16 << 30

# A rank waits in a message while another one plays its last games, measures the network or brings a
# checkpoint, which may take any time; the supervisor, which sees what each one does, ends a job that stands
# still much earlier. This is for jobs without one. A rank that is gone is noticed at once, by its connection.
MESSAGE_TIMEOUT = timedelta(hours=2)


class Exchange:
    """Small messages over gloo, beside the gradients, so that asking never waits for a GPU."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo", timeout=MESSAGE_TIMEOUT)
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def numbers(self, value: int) -> list[int]:
        """Every rank's `value`, by rank: one small message, fit for every step."""
        return [int(number) for number in self._gather(torch.tensor([value]))]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, as a new float64 CPU tensor of the same shape."""
        total = values.detach().to("cpu", torch.float64, copy=True)
        dist.all_reduce(total, group=self._group)
        return total

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        dist.barrier(group=self._group)

    def meet(self, timeout_s: float) -> None:
        """barrier() of bounded length. Raises TrainingError where a rank does not come in time."""
        try:
            dist.monitored_barrier(group=self._group, timeout=timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise TrainingError(f"ranks did not meet within {timeout_s:.0f} s: {error}") from error

    def gather(self, value: Json) -> list[Any]:
        """Every rank's `value`, by rank, as JSON gives it back: tuples come as lists."""
        return [_decoded(content) for content in self.gather_bytes(json.dumps(value).encode())]

    def from_rank(self, rank: int, value: Json) -> Any:  # noqa: ANN401 - as JSON gives it back
        """`value` of rank `rank` on all ranks, as JSON gives it back; that of the others is not looked at."""
        content = json.dumps(value).encode() if self.rank == rank else b""
        return _decoded(self.bytes_from(rank, content))

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """Every rank's `content`, by rank."""
        headers = self._gather(torch.tensor([len(content)]))
        lengths = [_checked_length(rank, header) for rank, header in enumerate(headers)]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(content)] = _to_tensor(content)
        if not len(padded):
            return [b""] * self.world_size
        messages = zip(self._gather(padded), lengths, strict=True)
        return [message[:length].numpy().tobytes() for message, length in messages]

    def bytes_from(self, rank: int, content: bytes) -> bytes:
        """`content` of rank `rank` on all ranks; that of the others is not looked at."""
        header = torch.tensor([len(content)])
        dist.broadcast(header, src=rank, group=self._group)
        length = _checked_length(rank, header)
        message = _to_tensor(content) if self.rank == rank else torch.empty(length, dtype=torch.uint8)
        if length:
            dist.broadcast(message, src=rank, group=self._group)
        return message.numpy().tobytes()

    def tensors_from(self, rank: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The CPU tensors that rank `rank` has, on all ranks, one at a time."""
        received = {}
        layouts: Json = {name: [str(own.dtype), list(own.shape)] for name, own in tensors.items()}
        for name, (dtype, shape) in self.from_rank(rank, layouts).items():
            if dtype not in DTYPES:
                raise TrainingError(
                    f"tensor {name} between ranks is {dtype!r}; expected one of {', '.join(DTYPES)}"
                )
            is_mine = self.rank == rank
            tensor = tensors[name].contiguous() if is_mine else torch.empty(shape, dtype=DTYPES[dtype])
            dist.broadcast(tensor, src=rank, group=self._group)
            received[name] = tensor
        return received

    def raise_any(self, fault: AlphaZeroError | None) -> None:
        """Raise the fault of the lowest rank that has one on all ranks alike; return where none has any.

        Where rank 0, which shows it, has none itself, the text names its rank.
        """
        at_fault = [rank for rank, has_one in enumerate(self.numbers(int(fault is not None))) if has_one]
        if not at_fault:
            return
        record = self.from_rank(at_fault[0], None if fault is None else fault_record(fault))
        if at_fault[0]:
            record["text"] += f" (on rank {at_fault[0]})"
            record["ranks"] = record["ranks"] or at_fault
        raise fault_of(record) from fault

    def on_each(self, action: Callable[[], T]) -> T:
        """Do `action`, which every rank does; an AlphaZeroError of any of them is raised on all ranks."""
        fault: AlphaZeroError | None = None
        try:
            result = action()
        except AlphaZeroError as error:
            fault = error
        self.raise_any(fault)
        return result

    def on_main(self, action: Callable[[], Json]) -> Any:  # noqa: ANN401 - as JSON gives it back
        """What `action` gives on rank 0, on all ranks; its AlphaZeroError is raised on all ranks."""
        return self.from_rank(0, self.on_each(lambda: action() if self.rank == 0 else None))

    def require_equal(self, named: Iterable[tuple[str, torch.Tensor]], when: str) -> int:
        """The checksum all ranks have of `named`.

        Raises DivergedRanksError on all of them where they differ: it names the tensor and the ranks that
        most do not agree with; where no two agree more than others, all of them.
        """
        mine = checksums(named)
        theirs = self.gather(mine)
        for name in mine:
            if odd := odd_ranks([sums.get(name) for sums in theirs]):
                ranks = ", ".join(map(str, odd))
                raise DivergedRanksError(
                    f"{when}: {name} differs between ranks (rank {ranks}): their memory or arithmetic is "
                    f"at fault; expected equal weights on all {self.world_size}",
                    ranks=odd,
                    found_by_all_ranks=True,
                )
        total = 0
        for value in mine.values():
            total = (total * 31 + value) % 2**64
        return total

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        tensors = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(tensors, tensor, group=self._group)
        return tensors


def fault_record(fault: AlphaZeroError) -> dict[str, Json]:
    """A fault as it crosses between processes."""
    return {"kind": fault.kind, "text": str(fault), "ranks": list(fault.ranks)}


def fault_of(record: Mapping[str, Any]) -> AlphaZeroError:
    """The fault of `fault_record`, as every rank raises it."""
    kind = ERRORS_BY_KIND.get(record["kind"], AlphaZeroError)
    return kind(str(record["text"]), ranks=[int(rank) for rank in record["ranks"]], found_by_all_ranks=True)


def _decoded(content: bytes) -> Any:  # noqa: ANN401 - as JSON gives it back
    try:
        return json.loads(content)
    except ValueError as error:
        raise TrainingError(f"a message between ranks is damaged: {error}; expected JSON") from error


def _checked_length(rank: int, header: torch.Tensor) -> int:
    """The length that `rank` announced. Raises TrainingError for an absurd one."""
    length = int(header)
    if not 0 <= length <= LONGEST_BYTES:
        raise TrainingError(
            f"rank {rank} announced a message of {length} bytes; expected at most {LONGEST_BYTES:,}: "
            "the ranks are out of step",
            ranks=[rank],
        )
    return length


def _to_tensor(content: bytes) -> torch.Tensor:
    """u8 [len(content)], a copy (frombuffer takes no empty buffer)."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0).byte()
