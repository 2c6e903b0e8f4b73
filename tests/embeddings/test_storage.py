"""Local folders and object stores: complete files by name. (file:// is read like an object store.)"""

import pytest

from prolip.embeddings.storage import LocalStorage, ObjectStorage, open_storage


@pytest.fixture(params=["local", "object"])
def storage(request, tmp_path):
    where = tmp_path / "some where"
    return open_storage(where if request.param == "local" else where.as_uri())


def test_open_storage_of_paths_and_uris(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage("~/x") == LocalStorage(tmp_path / "x")
    assert open_storage("s3://bucket/x/") == ObjectStorage("s3://bucket/x")
    assert open_storage(tmp_path) == LocalStorage(tmp_path)
    assert open_storage(ObjectStorage("gs://a")) == ObjectStorage("gs://a")
    monkeypatch.chdir(tmp_path)
    assert str(open_storage("x")) == str(tmp_path / "x")


def test_storage_str_hides_passwords():
    assert str(open_storage("s3://key:secret@bucket/x")) == "s3://***@bucket/x"


def test_storage_write_list_read_remove(storage):
    assert storage.list_names() == set()
    storage.write("a.txt", lambda file: file.write(b"one"))
    storage.write("a.txt", lambda file: file.write(b"two"))
    storage.write("b.txt", lambda file: file.write(b"three"))
    assert storage.list_names() == {"a.txt", "b.txt"}
    assert storage.read("a.txt") == b"two"
    with storage.open_input("b.txt") as file:
        file.seek(2)
        assert file.read(2) == b"re"
        assert file.size() == 5
    storage.remove("a.txt")
    storage.remove("a.txt")
    assert storage.list_names() == {"b.txt"}


def test_storage_read_of_missing_file_raises(storage):
    storage.write("a.txt", lambda file: file.write(b"one"))
    with pytest.raises(FileNotFoundError):
        storage.read("b.txt")


def test_storage_write_is_atomic(storage):
    storage.write("a.txt", lambda file: file.write(b"one"))

    def fails(file):
        file.write(b"half")
        raise OSError("no space left on device")

    for name in ("a.txt", "b.txt"):
        with pytest.raises(OSError, match="no space"):
            storage.write(name, fails)
    assert storage.list_names() == {"a.txt"}
    assert storage.read("a.txt") == b"one"


def test_open_storage_rejects_names_that_are_not_utf8(tmp_path):
    with pytest.raises(ValueError, match="must be valid UTF-8"):
        open_storage(str(tmp_path) + "/\udcff")
