import tarfile

from prolip.data.sources.tar import TarShards
from prolip.data.sources.tar_writer import write_tar

SAMPLES = [("a", {"jpg": b"one", "txt": b"a thing"}), ("b", {"jpg": b"two", "txt": b"a star", "json": b"{}"})]


def test_what_is_written_is_read(tmp_path):
    write_tar(tmp_path / "x.tar", SAMPLES)
    source = TarShards(str(tmp_path / "x.tar"))
    found = [(source.read(i).key, source.read(i).image, source.read(i).captions) for i in range(len(source))]
    assert found == [("a", b"one", ("a thing",)), ("b", b"two", ("a star",))]


def test_the_same_samples_give_the_same_bytes_without_time_or_owner(tmp_path):
    for name in ("x.tar", "y.tar"):
        write_tar(tmp_path / name, SAMPLES)
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert {(entry.mtime, entry.uid, entry.uname) for entry in tar} == {(0, 0, "")}


def test_a_name_that_is_too_long_for_old_tars(tmp_path):
    key = "k" * 300
    write_tar(tmp_path / "a.tar", [(key, {"jpg": b"x", "txt": b"y"})])
    assert TarShards(str(tmp_path / "a.tar")).read(0).key == key
