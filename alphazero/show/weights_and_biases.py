"""Weights & Biases: one run there for each run here, resumes included, with its files in the run's directory.

Each step is sent once, also where a resumed run repeats it; steps that a killed process did not send are sent
from metrics.jsonl. An offline run is a file: a header and a LevelDB log in blocks of 32 KiB, whose records of
crc, length and kind hold protobuf messages or parts of one
(https://github.com/google/leveldb/blob/main/doc/log_format.md).
"""

from __future__ import annotations

import contextlib
import html
import importlib.util
import json
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import write_json
from alphazero.run.directory import RunDirectory
from alphazero.settings.sections import RunConfig
from alphazero.show.curves import TRAIN, Curves, Point, Viewer

HEADER_BYTES, BLOCK_BYTES = 7, 1 << 15
RECORD_HEADER = struct.Struct("<IHB")
FULL, LAST = 1, 4  # kinds of record that end a message


def offline_rows(directory: Path) -> Iterator[dict[str, Any]]:
    """The rows of all offline runs below `directory`, in the order of their starts."""
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(directory.glob("wandb/offline-run-*/run-*.wandb")):
        for message in _messages(path.read_bytes()):
            try:
                record = Record.FromString(message)
            except DecodeError:
                break  # where the process was killed
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _messages(content: bytes) -> Iterator[bytes]:
    """The whole messages of a file."""
    parts: list[bytes] = []
    at = HEADER_BYTES
    while at + RECORD_HEADER.size <= len(content):
        left_in_block = BLOCK_BYTES - at % BLOCK_BYTES
        if left_in_block < RECORD_HEADER.size:
            at += left_in_block
            continue
        _, length, kind = RECORD_HEADER.unpack_from(content, at)
        at += RECORD_HEADER.size
        if not kind or at + length > len(content):
            return
        parts.append(content[at : at + length])
        at += length
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []


ID_FILE = "wandb.json"
ID_BYTES = 4
STEP_AXIS = "step"
Say = Callable[[str], None]


def require_package(config: RunConfig) -> None:
    """Raise ConfigError where a run uses Weights & Biases and the package is not installed."""
    if not config.wandb:
        return
    # A directory of this name, as the package itself leaves them, passes for an empty package.
    spec = importlib.util.find_spec("wandb")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "--wandb: the package wandb is not installed; expected pip install wandb, or --no-wandb",
            found_by_all_ranks=True,
        )


class WandbViewer(Viewer):
    """Sends a row for each step, or keeps it in the run's directory where WANDB_MODE is offline."""

    def __init__(
        self, run: RunDirectory, config: RunConfig, settings: Mapping[str, Any], curves: Curves, say: Say
    ) -> None:
        """settings: all of the run's, by section. say prints where the figures can be seen."""
        super().__init__(curves)
        require_package(config)
        import wandb

        self._rows: dict[int, dict[str, Any]] = {}
        try:
            self._run: Any = wandb.init(
                project=config.wandb_project,
                entity=config.wandb_team or None,
                group=config.wandb_group or None,
                name=run.path.name,
                id=_id_of(run),
                dir=str(run.path),
                resume="allow",
                config=dict(settings),
                # Their lines would break a log of JSON objects and the progress bar.
                settings=wandb.Settings(console="off", silent=True),
            )
        except (wandb.Error, OSError) as error:
            raise ConfigError(
                f"--wandb: {' '.join(str(error).split())}; expected `wandb login`, or WANDB_MODE=offline"
            ) from error
        # Their count of rows is not the step.
        self._run.define_metric(STEP_AXIS, hidden=True)
        self._run.define_metric("*", step_metric=STEP_AXIS)
        self.last_step = self._last_step(run)
        self._say_where(say)

    def points(self, points: Sequence[Point]) -> None:
        """Put them into the rows of their steps; a row is sent when the losses of a later step come."""
        for point in points:
            if point.group == TRAIN:
                self._send(point.step - 1)
            self._row_of(point.step)[point.curve] = point.value

    def note(self, name: str, step: int, text: str) -> None:
        """Put a text into the row of its step."""
        import wandb

        self._row_of(step)[name] = wandb.Html(f"<pre>{html.escape(text)}</pre>")

    def flush(self) -> None:
        """Do nothing: the next start sends what a killed process did not (see `last_step`)."""

    def rewind(self, step: int) -> None:
        """Discard rows that were not sent; those sent stay."""
        super().rewind(step)
        self._rows = {}

    def close(self, failed: bool = False) -> None:
        """Send what is complete, and finish their run."""
        self._send(max((step for step, row in self._rows.items() if _has_losses(row)), default=-1))
        self._run.finish(exit_code=int(failed))

    def _row_of(self, step: int) -> dict[str, Any]:
        """The row of a step; for one that was sent, a row that is discarded."""
        return self._rows.setdefault(step, {}) if step > self.last_step else {}

    def _send(self, last: int) -> None:
        """The rows up to step `last`."""
        for step in sorted(self._rows):
            if step <= last:
                self._run.log({STEP_AXIS: step, **self._rows.pop(step)})
                self.last_step = step

    def _last_step(self, run: RunDirectory) -> int:
        """The last step that was sent; -1 where there is none."""
        if self._run.settings.mode == "offline":
            return max((int(row.get(STEP_AXIS, -1)) for row in offline_rows(run.path)), default=-1)
        return int(self._run.summary.get(STEP_AXIS, -1)) if self._run.resumed else -1

    def _say_where(self, say: Say) -> None:
        if url := self._run.url:
            say(f"Weights & Biases: {url}")
            return
        directory = Path(self._run.dir).parent
        with contextlib.suppress(ValueError):
            directory = directory.relative_to(Path.cwd())
        say(f"Weights & Biases is offline; send later with: wandb sync {directory}")


def _has_losses(row: Mapping[str, Any]) -> bool:
    return any(name.startswith(f"{TRAIN}/") for name in row)


def _id_of(run: RunDirectory) -> str:
    """The id of the run there, kept in the run's directory so that a resumed run continues it."""
    path = run.path / ID_FILE
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        chosen = secrets.token_hex(ID_BYTES)
        write_json(path, {"id": chosen})
        return chosen
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({type(error).__name__}); expected the id that --wandb writes, or no "
            "such file: then a new run is made at Weights & Biases"
        ) from error
