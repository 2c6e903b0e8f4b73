"""Folders and object stores: files by name, whole or not there. (file:// takes the way of an object store.)"""

import pytest

from prolip.embeddings.storage import Bucket, Folder, place_of


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path):
    where = tmp_path / "some where"
    return place_of(where if request.param == "folder" else where.as_uri())


def test_what_a_user_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place_of("~/x") == Folder(tmp_path / "x")
    assert place_of("s3://bucket/x/") == Bucket("s3://bucket/x")
    assert place_of(tmp_path) == Folder(tmp_path)
    assert place_of(Bucket("gs://a")) == Bucket("gs://a")
    monkeypatch.chdir(tmp_path)
    assert str(place_of("x")) == str(tmp_path / "x")


def test_a_password_is_not_told():
    assert str(place_of("s3://key:secret@bucket/x")) == "s3://***@bucket/x"


def test_there_and_back(place):
    assert place.names() == set()
    place.write("a.txt", lambda file: file.write(b"one"))
    place.write("a.txt", lambda file: file.write(b"two"))
    place.write("b.txt", lambda file: file.write(b"three"))
    assert place.names() == {"a.txt", "b.txt"}
    assert place.read("a.txt") == b"two"
    with place.opened("b.txt") as file:
        file.seek(2)
        assert file.read(2) == b"re"
        assert file.size() == 5
    place.remove("a.txt")
    place.remove("a.txt")
    assert place.names() == {"b.txt"}


def test_what_is_not_there(place):
    place.write("a.txt", lambda file: file.write(b"one"))
    with pytest.raises(FileNotFoundError):
        place.read("b.txt")


def test_half_a_file_is_none(place):
    place.write("a.txt", lambda file: file.write(b"one"))

    def fails(file):
        file.write(b"half")
        raise OSError("no space left on device")

    for name in ("a.txt", "b.txt"):
        with pytest.raises(OSError, match="no space"):
            place.write(name, fails)
    assert place.names() == {"a.txt"}
    assert place.read("a.txt") == b"one"


def test_a_name_that_is_no_utf8(tmp_path):
    with pytest.raises(ValueError, match="must be UTF-8"):
        place_of(str(tmp_path) + "/\udcff")
