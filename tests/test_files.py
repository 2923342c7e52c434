"""What killed writers leave behind."""

from alphazero.files import CHUNK_BYTES, complete_lines, cut_unfinished_line, remove_unfinished


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


def test_unfinished_files_and_directories_go_and_others_stay(tmp_path):
    (tmp_path / ".a.pt.12.tmp").write_text("half")
    (tmp_path / ".step-00000003.tmp").mkdir()
    (tmp_path / ".step-00000003.tmp" / "weights").write_text("half")
    for name in ("a.pt", ".hidden", ".step-00000006.before.tmp"):
        (tmp_path / name).write_text("whole")
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".hidden",
        ".step-00000006.before.tmp",
        "a.pt",
    ]
