"""Training data that is damaged or of another kind: a line names file, record and value; nothing is left."""

import gzip
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from alphazero.base.errors import DataError
from alphazero.data.formats import lc0_files as source
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.lc0 import LC0
from tests.support.data.lc0_records import Records, as_v7, write

NAN = float("nan")


def set_field(name: str, value: float, record: int = 3) -> Callable[[Records], None]:
    def change(records: Records) -> None:
        records[name][record] = value

    return change


def set_probability(value: float, *, legal: bool = True) -> Callable[[Records], None]:
    def change(records: Records) -> None:
        chosen = np.flatnonzero((records["probabilities"][3] >= 0) == legal)[0]
        records["probabilities"][3, chosen] = value

    return change


def empty_planes(records: Records) -> None:
    records["planes"][0] = 0


def two_pieces_on_a_square(records: Records) -> None:
    records["planes"][0, 0] |= records["planes"][0, 5]


def no_king(records: Records) -> None:
    records["planes"][0, 5] = 0


def another_position(records: Records) -> None:
    records["planes"][3] = records["planes"][31]


def another_result(records: Records) -> None:
    records["result_q"][3], records["result_d"][3] = 1, 0


def another_history(records: Records) -> None:
    records["planes"][5, 13:25] = records["planes"][5, 0:12]


FAULTS: dict[str, tuple[Callable[[Records], None], str]] = {
    "version": (set_field("version", 5, 0), "record 0: version 5; expected 6 or 7 (older ones hold"),
    "later version": (set_field("version", 8, 0), "record 0: version 8; expected 6 or 7"),
    "mixed versions": (set_field("version", 7), "record 3: version 7; expected 6 as the records before"),
    "input format": (set_field("input_format", 3), "record 3: input format 3; expected 1"),
    "castling": (set_field("castling", 2), "record 3: castling_us_ooo 2; expected 0 or 1"),
    "rights": (set_field("castling", 0), "record 3: castling rights are not those of the game"),
    "side": (set_field("black_to_move", 0), "record 3: "),
    "rule50": (set_field("rule50", 77), "record 3: rule50 77; expected"),
    "bits": (set_field("invariance_info", 128), "record 3: invariance_info 128; expected bits 3 to 6"),
    "nan": (set_field("root_q", NAN), "record 3: root_q nan; expected -1 to 1"),
    "infinite": (set_field("best_m", np.inf), "record 3: best_m inf; expected a finite number"),
    "value": (set_field("best_q", 1.5), "record 3: best_q 1.5; expected -1 to 1"),
    "draws": (set_field("played_d", -0.5), "record 3: played_d -0.5; expected 0 to 1"),
    "result": (set_field("result_q", 0.5), "record 3: result_q 0.5; expected -1, 0 or 1"),
    "draw": (set_field("result_d", 0.5), "record 3: result_d 0.5; expected"),
    "other result": (another_result, "record 3: result_q 1; expected the result of the"),
    "no index": (set_field("played_idx", 1858), "record 3: played_idx 1858; expected below 1858"),
    "none": (set_field("best_idx", 65535), "record 3: best_idx 65535; expected below 1858"),
    "illegal": (set_field("played_idx", 1857), "record 3: played_idx 1857; expected a legal move"),
    "nan share": (set_probability(NAN), "nan; expected -1 or 0 to 1"),
    "large share": (set_probability(1.5), "1.5; expected -1 or 0 to 1"),
    "negative share": (set_probability(-0.25), "-0.25; expected -1 or 0 to 1"),
    "illegal share": (set_probability(0.0, legal=False), "0; expected -1 for a move that is not legal"),
    "missing share": (set_probability(-1.0), "legal moves; expected all"),
    "sum": (set_probability(1.0), "probabilities with a sum of"),
    "empty": (empty_planes, "record 0: planes 0-11 are empty; expected a position"),
    "square": (two_pieces_on_a_square, "record 0: planes 0-11 have two pieces on a square"),
    "no king": (no_king, "record 0: "),
    "jump": (another_position, "record 3: planes do not follow from the move played in record 2"),
    "history": (another_history, "record 5: planes of the position 1 plies before are not those"),
    "repetition": (
        lambda records: records["planes"].__setitem__((3, 12), 5),
        "record 3: plane 12 (repetitions) is neither empty nor full",
    ),
}


def refused(path: Path, tmp_path: Path) -> str:
    """What an import says; it leaves nothing behind."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError) as caught:
        import_games([path], kind=LC0, store=tmp_path / "store", workers=1)
    assert sorted(tmp_path.rglob("*")) == before
    said = str(caught.value)
    assert "\n" not in said
    assert said.count("record 3:") <= 1
    assert str(path) in said
    return said


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_record_is_named(recorded: list[Records], tmp_path: Path, name: str):
    change, expected = FAULTS[name]
    records = recorded[4].copy()  # drawn, so that another result can be told
    change(records)
    assert expected in refused(write(tmp_path / "game.gz", records), tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "begins with nothing; expected gzip data"),
        (b"[Event", "begins with 5b457665; expected gzip data"),
        (gzip.compress(b"", mtime=0), "file of 0 bytes; expected records"),
        (gzip.compress(b"\x06\0", mtime=0), "file of 2 bytes; expected records"),
        (gzip.compress(b"\x06\0\0\0" + bytes(8351), mtime=0), "file of 8355 bytes; expected records of 8356"),
        (gzip.compress(b"\x07\0\0\0" + bytes(8352), mtime=0), "file of 8356 bytes; expected records of 8396"),
        (gzip.compress(b"x" * 40000, mtime=0), "record 0: version 2021161080; expected 6 or 7"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "damaged gzip data"),
        (gzip.compress(b"\x03\0\0\0" + bytes(8272), mtime=0), "version 3; expected 6 or 7"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes, expected: str):
    path = tmp_path / "game.gz"
    path.write_bytes(content)
    assert expected in refused(path, tmp_path)


def test_bytes_behind_the_last_record_are_named(recorded: list[Records], tmp_path: Path):
    path = tmp_path / "game.gz"
    path.write_bytes(gzip.compress(recorded[0].tobytes() + b"x"))
    size = len(recorded[0]) * 8356 + 1
    assert f"file of {size} bytes" in refused(path, tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[:-8] + bytes(8), lambda data: data + b"rest"])
def test_gzip_data_that_is_damaged_behind_the_records_is_named(
    recorded: list[Records], tmp_path: Path, damage: Callable[[bytes], bytes]
):
    path = write(tmp_path / "game.gz", recorded[0])
    path.write_bytes(damage(path.read_bytes()))
    assert "damaged gzip data" in refused(path, tmp_path)


def test_a_truncated_file_is_named(recorded: list[Records], tmp_path: Path):
    path = write(tmp_path / "game.gz", recorded[0])
    path.write_bytes(path.read_bytes()[:-500])
    assert "it breaks off" in refused(path, tmp_path)


def test_v7_numbers_are_checked(recorded: list[Records], tmp_path: Path):
    records = as_v7(recorded[0])
    records["d_st"][2] = NAN
    assert "record 2: d_st nan" in refused(write(tmp_path / "game.gz", records), tmp_path)


def test_a_bomb_is_not_unpacked(recorded: list[Records], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Records that are sound so far do not help: a game may not be that long."""
    monkeypatch.setattr(source, "LARGEST_GAME_BYTES", 1 << 18)
    path = write(tmp_path / "game.gz", recorded[4])
    assert "more than 262,144 bytes" in refused(path, tmp_path)
    size = 0
    with pytest.raises(DataError, match="more than"):
        for piece in source.records_in(gzip.compress(bytes(64 << 20)), "game.gz"):
            size += len(piece)
    assert size <= 1 << 18


def make_archive(path: Path, info: tarfile.TarInfo, data: bytes = b"") -> Path:
    info.size = len(data)
    with tarfile.open(path, "w") as tar:
        tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(tarfile.SYMTYPE, "is a link"), (tarfile.LNKTYPE, "is a link"), (tarfile.CHRTYPE, "is a device")],
)
def test_archives_hold_files_alone(tmp_path: Path, kind: bytes, expected: str):
    info = tarfile.TarInfo("training.1.gz")
    info.type, info.linkname = kind, "/etc/passwd"
    assert expected in refused(make_archive(tmp_path / "games.tar", info), tmp_path)


@pytest.mark.parametrize("name", ["../training.1.gz", "a/../../training.1.gz", "/training.1.gz"])
def test_names_that_lead_out_of_an_archive_are_refused(tmp_path: Path, name: str):
    path = make_archive(tmp_path / "games.tar", tarfile.TarInfo(name), b"x")
    assert "below the archive" in refused(path, tmp_path)


def test_a_fault_in_an_archive_names_the_member(recorded: list[Records], tmp_path: Path):
    records = recorded[0].copy()
    records["root_q"][1] = 2
    data = gzip.compress(records.tobytes())
    path = make_archive(tmp_path / "games.tar", tarfile.TarInfo("training.5.gz"), data)
    assert re.search(r"games\.tar: training\.5\.gz: record 1: root_q 2;", refused(path, tmp_path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "no member ends in .gz"),
        (b"x" * 512, "no header of a tar archive at byte 0"),
        (b"x" * 100, "cut off within"),
    ],
)
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes, expected: str):
    path = tmp_path / "games.tar"
    path.write_bytes(content)
    assert expected in refused(path, tmp_path)


def test_a_cut_off_archive_is_named(recorded: list[Records], tmp_path: Path):
    data = gzip.compress(recorded[0].tobytes())
    path = make_archive(tmp_path / "games.tar", tarfile.TarInfo("training.5.gz"), data)
    path.write_bytes(path.read_bytes()[: 512 + len(data) // 2])
    assert "within 'training.5.gz'" in refused(path, tmp_path)
