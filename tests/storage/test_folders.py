"""The laws of storage, for local folders, file://, memory:// and s3:// on this machine: complete files by name."""

import os
import pickle
import subprocess
import sys
from uuid import uuid4

import pytest

from prolip.storage import Address, LocalStorage, ObjectStorage, open_storage, parse_address

pa = pytest.importorskip("pyarrow")


@pytest.fixture(params=["path", "file", "memory", "s3"])
def storage(request, tmp_path):
    where = tmp_path / "some where"
    if request.param == "s3":
        request.getfixturevalue("s3_server").objects["bucket/other"] = b"not listed"
    return open_storage(
        {
            "path": where,
            "file": where.as_uri(),
            "memory": f"memory://{uuid4()}/some where/",
            "s3": "s3://bucket/some where/",
        }[request.param]
    )


def write(storage, name, content):
    storage.write(name, lambda file: file.write(content))


def test_open_storage_of_paths_and_addresses(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage("~/x") == LocalStorage(tmp_path / "x")
    assert open_storage(f"file://{tmp_path}/x") == LocalStorage(tmp_path / "x")
    assert open_storage("S3://bucket/x/") == ObjectStorage(Address("s3", "bucket/x"))
    assert open_storage(tmp_path) == LocalStorage(tmp_path)
    assert open_storage("gcs://a") == ObjectStorage(Address("gs", "a"))
    assert open_storage(open_storage("gs://a")) == ObjectStorage(Address("gs", "a"))
    assert open_storage("abfs://box/a") == open_storage("az://box/a")
    monkeypatch.chdir(tmp_path)
    assert str(open_storage("x")) == str(tmp_path / "x")


def test_storage_str_can_be_opened_again(storage):
    write(storage, "a", b"one")
    assert open_storage(str(storage)).read("a") == b"one"


def test_storage_does_not_take_credentials_of_an_object_store():
    with pytest.raises(ValueError, match="AWS_SECRET_ACCESS_KEY") as caught:
        open_storage("s3://key:hidden@bucket/x")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("address", ["https://host/x", "hf://datasets/a/b/c", "pipe:cat x", "s4://bucket/x"])
def test_storage_is_not_at_an_address_of_streams(address):
    with pytest.raises(ValueError, match="one of file, s3, gs, az, memory"):
        open_storage(address)


def test_storage_write_list_read_remove(storage):
    assert storage.list_names() == set()
    write(storage, "a.txt", b"one")
    write(storage, "a.txt", b"two")
    write(storage, "b ?#%20.txt", b"three")
    assert storage.list_names() == {"a.txt", "b ?#%20.txt"}
    assert storage.read("a.txt") == b"two"
    with storage.open_input("b ?#%20.txt") as file:
        file.seek(2)
        assert file.read(2) == b"re"
        assert file.size() == 5
    storage.remove("a.txt")
    storage.remove("a.txt")
    assert storage.list_names() == {"b ?#%20.txt"}


def test_storage_read_of_missing_file_raises(storage):
    write(storage, "a.txt", b"one")
    with pytest.raises(FileNotFoundError):
        storage.read("b.txt")


def test_storage_write_is_atomic(storage):
    write(storage, "a.txt", b"one")

    def fails(file):
        file.write(b"half")
        assert storage.list_names() - {"a.txt"} <= hidden_names(storage)
        assert storage.read("a.txt") == b"one"
        raise OSError("no space left on device")

    for name in ("a.txt", "b.txt"):
        with pytest.raises(OSError, match="no space"):
            storage.write(name, fails)
    assert storage.list_names() == {"a.txt"}
    assert storage.read("a.txt") == b"one"


def test_a_refused_upload_is_an_error_and_leaves_nothing(s3_server):
    storage = open_storage("s3://bucket/x")
    with pytest.raises(OSError, match="forbidden") as caught:
        write(storage, "forbidden", b"one")
    assert "hidden" not in str(caught.value)
    assert storage.list_names() == set()
    assert s3_server.objects == {}


def hidden_names(storage):
    """Names of temporary files."""
    return {name for name in storage.list_names() if name.startswith(".")}


def test_storage_is_sent_to_other_processes_without_credentials(storage):
    write(storage, "a.txt", b"one")
    message = pickle.dumps(storage)
    assert b"hidden" not in message
    assert pickle.loads(message).read("a.txt") == b"one"
    assert "hidden" not in repr(storage) + str(storage)


def test_storage_holds_parquet(storage):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"x": list(range(1000)), "y": ["a"] * 1000})
    storage.write("t.parquet", lambda file: parquet.write_table(table, file))
    with storage.open_input("t.parquet") as file:
        assert parquet.ParquetFile(file).read(["x"])["x"].to_pylist() == list(range(1000))


def test_azure_storage_needs_the_name_of_the_account(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        open_storage("abfs://box/x").list_names()


def test_a_store_that_pyarrow_does_not_support_is_an_error(monkeypatch):
    from prolip.storage import file_systems

    def missing(*args):
        raise ImportError("cannot import name 'GcsFileSystem'")

    monkeypatch.setattr(file_systems, "_make_gs", missing)
    with pytest.raises(ValueError, match="no support for gs"):
        file_systems.open_file_system(parse_address(f"gs://{uuid4()}/x", "folder"))


def test_open_storage_rejects_names_that_are_not_utf8(tmp_path):
    with pytest.raises(ValueError, match="must be valid UTF-8"):
        open_storage(str(tmp_path) + "/\udcff")


def test_open_storage_says_how_a_path_is_read_as_utf8(tmp_path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "import sys; from prolip.storage.folders import open_storage; open_storage(sys.argv[1])"
    command = [sys.executable, "-c", code, f"{tmp_path}/\u00fcbung \u2603"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "names as ascii: set PYTHONUTF8=1" in result.stderr
    del environment["PYTHONUTF8"], environment["PYTHONCOERCECLOCALE"]  # Python takes C for C.UTF-8
    assert subprocess.run(command, env=environment).returncode == 0
