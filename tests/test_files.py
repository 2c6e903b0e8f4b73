import pytest

from prolip.files import write_whole


def test_it_makes_folders_and_leaves_nothing_else(tmp_path):
    path = write_whole(tmp_path / "a" / "b.txt", lambda aside: aside.write_text("new"))
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old")

    def half(aside):
        aside.write_text("ha")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
