"""What killed writers leave behind."""

import pytest

from alphazero.base.errors import DataError
from alphazero.base.files import (
    CHUNK_BYTES,
    complete_lines,
    cut_unfinished_line,
    given_path,
    read_at_most,
    remove_unfinished,
)


def test_an_unfinished_last_line_is_cut_and_never_read(tmp_path):
    path = tmp_path / "lines"
    long = "x" * (CHUNK_BYTES + 1)
    for content, kept in (
        ("", ""),
        ("begun", ""),
        ("one\n", "one\n"),
        ("one\ntwo\nthr", "one\ntwo\n"),
        (f"one\n{long}", "one\n"),
        (long, ""),
    ):
        path.write_text(content)
        assert "".join(f"{line}\n" for line in complete_lines(path)) == kept
        cut_unfinished_line(path)
        assert path.read_text() == kept


def test_files_that_are_not_there_have_no_lines(tmp_path):
    cut_unfinished_line(tmp_path / "none")
    assert complete_lines(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_a_file_is_read_up_to_a_size_and_not_beyond(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 1000)
    assert read_at_most(tmp_path / "file", 1000) == b"x" * 1000
    with pytest.raises(ValueError, match="over 999 bytes"):
        read_at_most(tmp_path / "file", 999)


def test_unfinished_files_go_and_all_else_stays(tmp_path):
    (tmp_path / ".a.pt.12.tmp").write_text("half")
    (tmp_path / "elsewhere").write_text("another's")
    (tmp_path / ".link.12.tmp").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".folder.12.tmp").mkdir()
    (tmp_path / ".folder.12.tmp" / "thesis").write_text("another's")
    for name in ("a.pt", ".hidden", ".notes.tmp"):
        (tmp_path / name).write_text("whole")
    kept = {path.name for path in tmp_path.iterdir()} - {".a.pt.12.tmp"}
    remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert (tmp_path / ".folder.12.tmp" / "thesis").exists()


def test_folders_and_links_of_others_stay_although_they_end_alike(tmp_path):
    work, treasure = tmp_path / "work", tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "thesis.tex").write_text("all of it")
    (work / ".cache.tmp").mkdir(parents=True)
    (work / ".cache.tmp" / "thesis.tex").write_text("all of it")
    (work / ".notes.tmp").write_text("mine")
    (work / ".step-00000003.tmp").symlink_to(treasure)
    (work / ".manifest.json.12.tmp").symlink_to(treasure / "thesis.tex")
    before = sorted(work.rglob("*"))
    remove_unfinished(work)
    assert sorted(work.rglob("*")) == before
    assert (treasure / "thesis.tex").exists()


@pytest.mark.parametrize("text", ["", "a\0b"])
def test_no_path_is_not_the_current_directory(text):
    with pytest.raises(DataError, match=r"^--data '.*': "):
        given_path(text, "--data")
