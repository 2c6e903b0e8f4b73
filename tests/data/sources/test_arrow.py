"""Parquet and save_to_disk folders against the rows that were written; damage by its sentence, never a crash."""

import json
import os
import pickle
import sys
import timeit
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from prolip.data.sample import BadSampleError  # noqa: E402
from prolip.data.sources.arrow import ArrowDataset, ParquetTable  # noqa: E402
from prolip.extras import MissingExtraError  # noqa: E402

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def rows(count, start=0):
    numbers = range(start, start + count)
    return {
        "image": [f"picture {i}".encode() for i in numbers],
        "caption": [f"caption {i}" for i in numbers],
        "number": list(numbers),
    }


def write_parquet(path, columns, group=3):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(
        columns if isinstance(columns, pa.Table) else pa.table(columns), path, row_group_size=group
    )
    return path


def write_stream(path, table, batch):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)


def save_to_disk(folder, tables, batch=3, indices=None, **state):
    """By hand, what `datasets` lays down."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [f"data-{i:05d}-of-{len(tables):05d}.arrow" for i in range(len(tables))]
    for name, table in zip(files, tables, strict=True):
        write_stream(folder / name, table if isinstance(table, pa.Table) else pa.table(table), batch)
    state = {
        "_data_files": [{"filename": name} for name in files],
        "_fingerprint": "0123456789abcdef",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
        **state,
    }
    if indices is not None:
        write_stream(folder / "indices.arrow", pa.table({"indices": pa.array(indices, pa.uint64())}), 2)
        state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    return folder


def opened(kind, folder, columns, group=3, **options):
    """The same rows in either format."""
    if kind == "parquet":
        return ParquetTable(write_parquet(folder / "t.parquet", columns, group), **options)
    return ArrowDataset(save_to_disk(folder, [columns], group), **options)


def bad(source, index):
    with pytest.raises(BadSampleError) as caught:
        source.read(index)
    return caught.value.record


both = pytest.mark.parametrize("kind", ["parquet", "arrow"])


# What both give


@both
def test_every_row_in_any_order(tmp_path, kind):
    source = opened(kind, tmp_path, rows(10))
    np.testing.assert_array_equal(source.chunks, [3, 3, 3, 1])
    assert source.chunks.dtype == np.int64
    for i in np.random.default_rng(0).permutation(10):
        sample = source.read(int(i))
        assert sample.image == f"picture {i}".encode()
        assert sample.captions == (f"caption {i}",)
        assert sample.extra == {"number": i}
        assert sample.location.endswith(f": row {i + 1}")


@both
@pytest.mark.parametrize(
    "kind_of_text", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_captions_of_all_types(tmp_path, kind, kind_of_text):
    columns = {"jpg": [b"x"], "txt": pa.array(["one"]).cast(kind_of_text)}
    assert opened(kind, tmp_path, columns).read(0).captions == ("one",)


@both
def test_lists_of_captions_and_several_columns(tmp_path, kind):
    columns = {"image": [b"x", b"y"], "captions": [["one", None, " two "], []], "alt": ["three", None]}
    assert opened(kind, tmp_path, columns).read(0).captions == ("one", "two")
    source = opened(kind, tmp_path, columns, captions=("alt", "captions"))
    assert source.read(0).captions == ("three", "one", "two")
    assert bad(source, 1).reason == "no caption"


@both
def test_of_a_map_the_values_are_captions(tmp_path, kind):
    texts = pa.array([b"a cat", b"\xff", b"eine Katze", b"\xff"]).view(pa.string())
    keys = pa.array(["en", "de", "de", "fr"])
    columns = {"image": [b"x", b"y"], "caption": pa.MapArray.from_arrays([0, 1, 3], keys, texts)}
    source = opened(kind, tmp_path, columns)
    assert [source.read(i).captions for i in (0, 1)] == [("a cat",), ("eine Katze",)]
    source = opened(kind, tmp_path, {**columns, "text": ["one", "two"]}, captions=("text",))
    assert source.read(0).extra == {"caption": [("en", "a cat")]}
    assert source.read(1).extra == {"caption": [("de", "\udcff"), ("de", "eine Katze")]}


@both
def test_without_captions(tmp_path, kind):
    assert opened(kind, tmp_path, {"image": [b"x"]}, captions=()).read(0).captions == ()


@both
@pytest.mark.parametrize("kind_of_text", [pa.string(), pa.large_string()])
def test_an_image_can_be_a_path_beside_the_file(tmp_path, kind, kind_of_text):
    (tmp_path / "a.jpg").write_bytes(b"x")
    columns = {
        "path": pa.array(["a.jpg", "b.jpg", None, "http://a/b.jpg"], kind_of_text),
        "text": list("abcd"),
    }
    source = opened(kind, tmp_path, columns)
    assert source.read(0).image == tmp_path / "a.jpg"
    assert [bad(source, i).reason for i in (1, 2, 3)] == ["missing file", "no image", "no image"]


@both
@pytest.mark.parametrize(
    "binary",
    [pa.large_binary(), pa.binary_view(), pa.binary(3), pa.dictionary(pa.int32(), pa.binary())],
)
def test_images_are_bytes_of_all_types(tmp_path, kind, binary):
    images = pa.array([b"cat", b"dog"], binary)
    source = opened(kind, tmp_path, {"image": images, "text": ["one", "two"]})
    assert [source.read(i).image for i in (0, 1)] == [b"cat", b"dog"]


@both
@pytest.mark.parametrize("text", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_paths_are_texts_of_all_types(tmp_path, kind, text):
    (tmp_path / "a.jpg").write_bytes(b"x")
    source = opened(kind, tmp_path, {"path": pa.array(["a.jpg"], text), "text": ["one"]})
    assert source.read(0).image == tmp_path / "a.jpg"


@both
@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary()])
def test_images_of_hugging_face_are_structs(tmp_path, kind, binary):
    (tmp_path / "a.jpg").write_bytes(b"from the file")
    values = [
        {"bytes": b"inside", "path": "nothere.jpg"},
        {"bytes": None, "path": "a.jpg"},
        {"bytes": None, "path": None},
        {"bytes": b"", "path": None},
        None,
    ]
    struct = pa.struct([("bytes", binary), ("path", pa.string())])
    source = opened(kind, tmp_path, {"image": pa.array(values, struct), "text": list("abcde")})
    assert source.read(0).image == b"inside"
    assert source.read(1).image == tmp_path / "a.jpg"
    assert [bad(source, i).reason for i in (2, 3, 4)] == ["no image", "empty image", "no image"]


@both
def test_nulls_and_blanks_have_reasons(tmp_path, kind):
    source = opened(kind, tmp_path, {"image": [None, b"x", b"x", b""], "caption": ["a", None, " ", "b"]})
    reasons = [bad(source, i).reason for i in range(4)]
    assert reasons == ["no image", "no caption", "empty caption", "empty image"]
    assert bad(source, 1).location.endswith(": row 2")


@both
def test_text_that_is_not_utf8_spoils_its_own_sample_only(tmp_path, kind):
    broken = pa.array([b"\xff\xfe", b"fine"]).view(pa.string())
    lists = pa.ListArray.from_arrays([0, 2, 2], broken)
    source = opened(
        kind, tmp_path, pa.table({"image": [b"x", b"y"], "caption": broken, "other": broken[::-1]})
    )
    assert bad(source, 0).reason == "unreadable caption"
    assert source.read(1).captions == ("fine",)
    assert source.read(1).extra == {"other": "\udcff\udcfe"}
    source = opened(kind, tmp_path, pa.table({"image": [b"x", b"y"], "captions": lists}))
    assert source.read(0).captions == ("fine",)
    source = opened(kind, tmp_path, pa.table({"image": broken, "text": ["x", "y"]}))
    assert bad(source, 0).reason == "missing file"


def test_text_in_a_dictionary_that_is_not_utf8_spoils_its_own_sample_only(tmp_path):
    codes = pa.DictionaryArray.from_arrays(
        pa.array([1, 0]), pa.array([b"\xff\xfe", b"fine"]).view(pa.string())
    )
    source = ArrowDataset(save_to_disk(tmp_path, [pa.table({"image": [b"x", b"y"], "caption": codes})]))
    assert source.read(0).captions == ("fine",)
    assert bad(source, 1).reason == "unreadable caption"


@both
def test_values_that_python_has_no_type_for_do_not_spoil_a_sample(tmp_path, kind):
    times = pa.array([1], pa.timestamp("ns"))
    sample = opened(kind, tmp_path, {"image": [b"x"], "text": ["one"], "when": times}).read(0)
    assert sample.extra["when"].value == 1


@both
def test_a_table_without_rows(tmp_path, kind):
    source = opened(kind, tmp_path, {"image": pa.array([], pa.binary()), "text": pa.array([], pa.string())})
    assert len(source) == source.chunks.sum() == 0
    with pytest.raises(IndexError):
        source.read(0)


@both
@pytest.mark.parametrize("index", [-1, 10])
def test_read_refuses_indices_out_of_range(tmp_path, kind, index):
    with pytest.raises(IndexError, match="10 samples"):
        opened(kind, tmp_path, rows(10)).read(index)


@both
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [b"x"], "caption": ["one"]}, "no column image.*columns are x, caption"),
        ({"image": [b"x"], "y": ["one"]}, "no column caption.*columns are image, y"),
        ({"image": [1], "caption": ["one"]}, "'image' has type int64.*must be bytes"),
        ({"image": [[1, 2]], "caption": ["one"]}, "'image' has type list"),
        ({"image": [{"data": b"x"}], "caption": ["one"]}, "'image' has type struct"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path, kind, columns, message):
    with pytest.raises(ValueError, match=message):
        opened(kind, tmp_path, columns)


@both
def test_number_as_caption_is_an_unreadable_caption(tmp_path, kind):
    assert bad(opened(kind, tmp_path, {"image": [b"x"], "text": [3]}), 0).reason == "unreadable caption"


def caption_in_another_process(source, index):
    return source.read(index).captions[0]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_copies_in_other_processes_read_the_same(tmp_path, start):
    sources = [opened(kind, tmp_path, rows(10)) for kind in ("parquet", "arrow")]
    with ProcessPoolExecutor(1, mp_context=get_context(start)) as pool:
        for source in sources:
            source.read(0)
            assert pool.submit(caption_in_another_process, source, 7).result(timeout=60) == "caption 7"


@both
def test_a_copy_does_not_carry_loaded_rows(tmp_path, kind):
    source = opened(kind, tmp_path, {"image": [bytes(100_000)], "caption": ["one"]})
    source.read(0)
    assert len(pickle.dumps(source)) < 5000


@both
def test_fingerprint_depends_on_rows_and_columns(tmp_path, kind):
    first = opened(kind, tmp_path / "a", rows(10)).fingerprint()
    assert opened(kind, tmp_path / "b", rows(10)).fingerprint() == first
    assert opened(kind, tmp_path / "c", rows(11)).fingerprint() != first
    assert opened(kind, tmp_path / "d", rows(10), captions=()).fingerprint() != first


@both
def test_pyarrow_is_asked_for_by_name(tmp_path, kind, monkeypatch):
    opened(kind, tmp_path, rows(1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match="pyarrow"):
        ParquetTable(tmp_path / "t.parquet") if kind == "parquet" else ArrowDataset(tmp_path)


@both
def test_flipped_bytes_give_bad_samples_or_a_clear_error(tmp_path, kind):
    images = [{"bytes": b"picture", "path": "a.jpg"}] * 6
    table = pa.table(
        {"image": pa.array(images, STRUCT), "caption": [["one", "two"]] * 6, "n": [True, None] * 3}
    )
    opened(kind, tmp_path, table)
    path = next(file for file in tmp_path.iterdir() if file.suffix in (".parquet", ".arrow"))
    raw = path.read_bytes()
    random = np.random.default_rng(0)
    outcomes = set()
    for _ in range(200):
        damaged = np.frombuffer(raw, np.uint8).copy()
        damaged[random.integers(len(raw), size=2)] = random.choice([0, 0x7F, 0xFF], size=2)
        path.unlink()  # not overwritten: it may still be mapped
        path.write_bytes(damaged.tobytes())
        try:
            source = ParquetTable(path) if kind == "parquet" else ArrowDataset(tmp_path)
        except ValueError:
            outcomes.add("not opened")
            continue
        for index in range(min(len(source), 6)):
            try:
                source.read(index)
                outcomes.add("read")
            except BadSampleError as error:
                outcomes.add(error.record.reason)
    assert {"not opened", "read", "unreadable row"} <= outcomes


# ParquetTable


def test_files_of_a_folder_or_a_glob_come_by_name(tmp_path):
    for name, start in (("b", 4), ("a", 0), ("c", 8)):
        write_parquet(tmp_path / f"{name}.parquet", rows(4, start))
    (tmp_path / ".hidden.parquet").write_bytes(b"")
    (tmp_path / "notes.txt").touch()
    source = ParquetTable(tmp_path)
    np.testing.assert_array_equal(source.chunks, [3, 1] * 3)
    assert [source.read(i).extra["number"] for i in range(12)] == list(range(12))
    assert source.read(7).location == f"{tmp_path / 'b.parquet'}: row 4"
    assert len(ParquetTable(f"{tmp_path}/[ab].parquet")) == 8
    assert ParquetTable(tmp_path).fingerprint() != ParquetTable(f"{tmp_path}/[ab].parquet").fingerprint()


def test_uppercase_extensions_are_found_in_a_folder(tmp_path):
    write_parquet(tmp_path / "a.PARQUET", rows(2))
    write_parquet(tmp_path / "b.parquet", rows(2, 2))
    assert [ParquetTable(tmp_path).read(i).extra["number"] for i in range(4)] == [0, 1, 2, 3]


def test_fingerprint_differs_for_files_of_the_same_size(tmp_path):
    fingerprints = []
    for caption in ("one", "two"):
        path = tmp_path / caption / "t.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"image": [b"x"], "caption": [caption]}), path, compression="none")
        fingerprints.append((path.stat().st_size, ParquetTable(path).fingerprint()))
    (size, first), (other_size, second) = fingerprints
    assert size == other_size
    assert first != second


def test_files_that_are_not_there(tmp_path):
    for missing in ("a.parquet", "*.parquet"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            ParquetTable(tmp_path / missing)
    with pytest.raises(ValueError, match=r".parquet"):
        ParquetTable(tmp_path)


def test_all_files_have_the_columns(tmp_path):
    write_parquet(tmp_path / "a.parquet", rows(2))
    write_parquet(tmp_path / "b.parquet", {"image": [b"x"], "text": ["one"]})
    with pytest.raises(ValueError, match=r"b.parquet has no column 'caption'"):
        ParquetTable(tmp_path)


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:-20], lambda raw: b"junk" * 50,
                                    lambda raw: raw[:-60] + bytes(52) + raw[-8:]])  # fmt: skip
def test_a_damaged_file_is_named_when_it_is_opened(tmp_path, damage):
    path = write_parquet(tmp_path / "t.parquet", rows(10))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"t.parquet"):
        ParquetTable(path)


def test_damaged_row_group_makes_its_rows_bad_and_no_other(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "t.parquet", rows(6))
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + b"\xff" * 60 + raw[64:])
    source = ParquetTable(path)
    assert source.read(3).captions == ("caption 3",)
    loads = []
    load = source._load
    monkeypatch.setattr(source, "_load", lambda part: loads.append(part) or load(part))
    for i in range(3):
        assert bad(source, i).reason == "unreadable row"
    assert len(loads) == 1


def test_flipped_bit_in_a_caption_is_found_by_checksums(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(rows(3)), path, compression="none", use_dictionary=False, write_statistics=False,
                   write_page_checksum=True)  # fmt: skip
    raw = path.read_bytes()
    assert raw.count(b"caption 1") == 1
    path.write_bytes(raw.replace(b"caption 1", b"caption 9"))
    assert bad(ParquetTable(path), 1).reason == "unreadable row"


def test_replaced_file_gives_bad_samples(tmp_path):
    source = ParquetTable(write_parquet(tmp_path / "t.parquet", rows(6)))
    write_parquet(tmp_path / "t.parquet", rows(2))
    assert bad(source, 0).reason == "unreadable row"


def test_a_file_that_vanished_is_an_error_of_the_disk(tmp_path):
    source = ParquetTable(write_parquet(tmp_path / "t.parquet", rows(6)))
    (tmp_path / "t.parquet").unlink()
    with pytest.raises(OSError, match=r"t.parquet"):
        source.read(0)


def loads_of(source, monkeypatch, indices):
    """The row groups that are loaded for these samples, one after another."""
    loads = []
    load = source._load
    monkeypatch.setattr(source, "_load", lambda part: loads.append(part.row_group) or load(part))
    for index in indices:
        source.read(index)
    return loads


WALK = (0, 2, 4, 6, 1, 3, 8, 0, 5)
"""In pairs of rows, groups 0 1 2 3 0 1 4 0 2. Where four have room, 4 takes the place of 2, used longest ago."""


@pytest.mark.parametrize(("room", "wanted"), [(4, [0, 1, 2, 3, 4, 2]), (100, [0, 1, 2, 3, 4]),
                                              (0, [0, 1, 2, 3, 0, 1, 4, 0, 2])])  # fmt: skip
def test_the_last_row_groups_stay_loaded_as_far_as_there_is_memory(tmp_path, monkeypatch, room, wanted):
    path = write_parquet(
        tmp_path / "t.parquet", {"image": [bytes(1000)] * 12, "caption": ["one"] * 12}, group=2
    )
    monkeypatch.setattr(ParquetTable, "max_bytes", room * 2 * 1000 + 999)
    assert loads_of(ParquetTable(path), monkeypatch, WALK) == wanted


@both
def test_not_too_many_parts_stay_loaded(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("prolip.data.sources.arrow.ArrowSource.max_parts", 4)
    if kind == "parquet":
        source = ParquetTable(write_parquet(tmp_path / "t.parquet", rows(12), group=2))
        assert loads_of(source, monkeypatch, WALK) == [0, 1, 2, 3, 4, 2]
    else:
        source = ArrowDataset(save_to_disk(tmp_path, [rows(2)] * 6))
        assert len(loads_of(source, monkeypatch, WALK)) == 6


def test_paths_are_relative_to_the_folder_that_is_given(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").write_bytes(b"x")
    path = write_parquet(tmp_path / "t.parquet", {"path": ["a.jpg"], "text": ["one"]})
    assert ParquetTable(path, folder=tmp_path / "pictures").read(0).image == tmp_path / "pictures" / "a.jpg"


# Hugging Face


def test_several_files_are_one_data_set(tmp_path):
    source = ArrowDataset(save_to_disk(tmp_path, [rows(4), rows(5, 4)]))
    np.testing.assert_array_equal(source.chunks, [3, 1, 3, 2])
    assert [source.read(i).extra["number"] for i in range(9)] == list(range(9))


def test_the_order_is_that_of_the_indices(tmp_path):
    wanted = [8, 0, 3, 3, 7]
    source = ArrowDataset(save_to_disk(tmp_path, [rows(4), rows(5, 4)], indices=wanted))
    assert [source.read(i).extra["number"] for i in range(5)] == wanted
    assert [source.read(i).key for i in range(5)] == list("01234")
    np.testing.assert_array_equal(source.chunks, [5])
    other = ArrowDataset(save_to_disk(tmp_path / "b", [rows(4), rows(5, 4)], indices=wanted[::-1]))
    assert other.fingerprint() != source.fingerprint()


def test_indices_may_be_absent_or_none(tmp_path):
    assert len(ArrowDataset(save_to_disk(tmp_path, [rows(4)], _indices_data_files=None))) == 4


def test_indices_beyond_the_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"indices.arrow.*below 4"):
        ArrowDataset(save_to_disk(tmp_path, [rows(4)], indices=[0, 4]))


def test_splits(tmp_path):
    save_to_disk(tmp_path / "train", [rows(4)])
    save_to_disk(tmp_path / "test", [rows(2)])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert len(ArrowDataset(tmp_path, split="test")) == 2
    with pytest.raises(ValueError, match=rf"train, test.*{tmp_path}/train"):
        ArrowDataset(tmp_path)
    with pytest.raises(ValueError, match=r"'valid'.*train, test"):
        ArrowDataset(tmp_path, split="valid")
    with pytest.raises(ValueError, match="no splits"):
        ArrowDataset(tmp_path / "train", split="train")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert len(ArrowDataset(tmp_path)) == 4


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("{", "not JSON"),
        ("{}", "names no files under '_data_files'"),
        ('{"_data_files": 3}', "list of objects with a 'filename'"),
        ('{"_data_files": [{}]}', "list of objects with a 'filename'"),
        ('{"_data_files": [{"filename": 3}]}', "list of objects with a 'filename'"),
    ],
)
def test_a_state_that_makes_no_sense(tmp_path, state, message):
    save_to_disk(tmp_path, [rows(2)])
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(ValueError, match=rf"state.json.*{message}"):
        ArrowDataset(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ArrowDataset(tmp_path / "a")
    with pytest.raises(ValueError, match=r"no state.json"):
        ArrowDataset(tmp_path)
    save_to_disk(tmp_path, [rows(2)])
    (tmp_path / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(FileNotFoundError, match=r"data-00000-of-00001.arrow"):
        ArrowDataset(tmp_path)
    (tmp_path / "dataset_dict.json").write_text('{"splits": []}')
    with pytest.raises(ValueError, match="list of names of splits"):
        ArrowDataset(tmp_path)


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:-200], lambda raw: b"junk" * 50])
def test_a_damaged_stream_is_named_when_it_is_opened(tmp_path, damage):
    path = save_to_disk(tmp_path, [rows(10)]) / "data-00000-of-00001.arrow"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"data-00000-of-00001.arrow can't be read"):
        ArrowDataset(tmp_path)


@pytest.mark.parametrize("ends", [[0, 100, 2**30], [0, 2**30, 2**30 + 100], [0, 100, -5]])
def test_buffers_outside_the_file_are_not_read(tmp_path, ends):
    """An Arrow file says where each value ends. Believed blindly, a flipped bit there ends the process."""
    save_to_disk(tmp_path, [{"image": [b"a" * 100, b"b" * 100], "caption": ["one", "two"]}])
    path = tmp_path / "data-00000-of-00001.arrow"
    raw = path.read_bytes()
    true = np.array([0, 100, 200], np.int32).tobytes()
    assert raw.count(true) == 1
    path.write_bytes(raw.replace(true, np.array(ends, np.int32).tobytes()))
    assert bad(ArrowDataset(tmp_path), 1).reason == "unreadable row"


def caption_after_a_cut(source, path, size):
    source.read(0)
    os.truncate(path, size)
    return bad(source, 2)


@pytest.mark.parametrize("size", [0, 10_000])
def test_truncated_file_is_not_read(tmp_path, size):
    """In a process of its own: it would end by SIGBUS."""
    columns = {"image": [bytes(100_000)] * 3, "caption": ["one"] * 3}
    source = ArrowDataset(save_to_disk(tmp_path, [columns]))
    path = tmp_path / "data-00000-of-00001.arrow"
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        found = pool.submit(caption_after_a_cut, source, path, size).result(timeout=60)
    assert (found.reason, found.detail) == ("unreadable row", f"{path} has changed since it was opened")


def test_a_file_that_is_deleted_stays_mapped(tmp_path):
    source = ArrowDataset(save_to_disk(tmp_path, [rows(4)]))
    source.read(0)
    (tmp_path / "data-00000-of-00001.arrow").unlink()
    assert source.read(3).captions == ("caption 3",)


def test_a_row_is_found_as_quickly_among_many_record_batches(tmp_path):
    def seconds(batch):
        source = ArrowDataset(save_to_disk(tmp_path / str(batch), [rows(10_000)], batch))
        return min(timeit.repeat(lambda: source.read(9_999), number=20, repeat=10))

    assert seconds(batch=1) < 5 * seconds(batch=1000)


def test_indices_are_whole_numbers(tmp_path):
    folder = save_to_disk(tmp_path, [rows(4)], indices=[1, 2])
    write_stream(folder / "indices.arrow", pa.table({"indices": pa.array([1.0, 2.5])}), 2)
    with pytest.raises(ValueError, match="below 4"):
        ArrowDataset(folder)
