"""Our reader of tar archives and Python's see the same members."""

import io
import tarfile
from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.data.formats.lc0_files import ArchiveReader

NAMES = ["LICENSE", "a/training.1.gz", "b" * 120 + "/" + "c" * 90 + ".gz", "d" * 300 + ".gz", "empty.gz"]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_of_the_standard_library(tmp_path: Path, form: int):
    path = tmp_path / "x.tar"
    names = [name for name in NAMES if form != tarfile.USTAR_FORMAT or len(name) < 250]
    with tarfile.open(path, "w", format=form) as tar:
        directory = tarfile.TarInfo("a")
        directory.type = tarfile.DIRTYPE
        tar.addfile(directory)
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = 0 if name == "empty.gz" else 511 + number
            info.mtime = 1.5
            tar.addfile(info, io.BytesIO(bytes([number]) * info.size))
    with tarfile.open(path) as tar:
        wanted = [(info.name, info.size, tar.extractfile(info)) for info in tar if info.isfile()]
        wanted_contents = [file.read() for _, _, file in wanted if file is not None]
    with path.open("rb") as stream:
        reader = ArchiveReader(stream, "x.tar")
        members = list(reader.members())  # passed over
        stream.seek(0)
        reader = ArchiveReader(stream, "x.tar")
        contents = [reader.content(member) for member in reader.members()]
    assert [member.size for member in members] == [size for _, size, _ in wanted]
    assert contents == wanted_contents
    if form != tarfile.PAX_FORMAT:  # whose long names are cut in messages
        assert [member.name for member in members] == [name for name, _, _ in wanted]


def test_headers_that_claim_too_much_are_refused_before_anything_is_read():
    info = tarfile.TarInfo("x" * 40)
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 32
    header = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(DataError, match="a name of 4,294,967,296"):
        list(ArchiveReader(io.BytesIO(header), "x.tar").members())
