"""Times what DeepSpeed's ranks exchange: its collectives are called deep within its passes and its step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

# A block of this kind stands around each exchange between ranks.
Timed = Callable[[], AbstractContextManager[None]]
NOT_TIMED: Timed = nullcontext

# Of DeepSpeed's TorchBackend (0.19.8): those that ZeRO calls.
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "broadcast",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
)


def time_collectives(timed: Timed) -> None:
    """Have `timed` around every collective that DeepSpeed calls from now on, instead of an earlier one.

    A collective that DeepSpeed runs on a stream of its own, beside the passes, is seen only while it is
    handed over: what the passes hide costs nothing.
    """
    from deepspeed.comm import comm

    for name in COLLECTIVES:
        original = getattr(type(comm.cdb), name)
        setattr(comm.cdb, name, partial(_call, timed, partial(original, comm.cdb)))


def _call(timed: Timed, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    with timed():
        return original(*args, **kwargs)
