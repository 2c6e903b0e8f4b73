"""Embedding data sets: parts, footers, errors and damage."""

import json
import random
import shlex
from contextlib import suppress

import pyarrow.parquet as pq
import pytest
import torch

from prolip.data.sources.columns import DamagedFileError
from prolip.embeddings.dataset import EmbeddingDataset, PartFooter, get_part_name, read_footers
from prolip.embeddings.embed import embed
from prolip.embeddings.schema import read_gaussians
from prolip.storage.folders import LocalStorage
from tests.embeddings.shards import write_shards


@pytest.fixture
def stored(nano, tmp_path):
    data = write_shards(tmp_path / "shards", [5, 4], bad={2})
    return embed(nano, data, tmp_path / "out", part_size=4, max_bad_fraction=0.5, progress=False)


def test_dataset_open_and_iterate(stored):
    again = EmbeddingDataset.open(stored.folder)
    assert again == stored
    assert again.part_indices == (0, 1, 2)
    assert len(again) == 2 * 8
    numbers = [row for _, block in again.iter_parts("image", ["index"]) for row in block["index"].to_pylist()]
    assert numbers == [0, 1, 3, 4, 5, 6, 7, 8]
    assert [block.schema.names for _, block in again.iter_parts("text", ["caption"])] == [["caption"]] * 3


def test_iter_parts_of_both_modalities_equals_read_part(stored):
    for number, block in stored.iter_parts():
        assert block.equals(stored.read_part(number))
    images = [read_gaussians(block) for _, block in stored.iter_parts("image")]
    texts = [read_gaussians(block) for _, block in stored.iter_parts("text")]
    first = read_gaussians(stored.read_part(0))
    assert torch.equal(first.mean, torch.cat([images[0].mean, texts[0].mean]))


def test_dataset_errors_and_counts(stored):
    ((part, number, bad),) = stored.iter_errors()
    assert (part, number, bad.reason) == (0, 2, "unreadable image")
    assert [(stored.footer(part).num_samples, len(stored.footer(part).errors)) for part in stored.part_indices] == [
        (4, 1), (4, 0), (1, 0)
    ]  # fmt: skip
    assert (stored.count_errors().tried, stored.count_errors().bad) == (9, 1)


def test_open_rejects_missing_parts(stored):
    (stored.folder / get_part_name(1)).unlink()
    with pytest.raises(ValueError, match="1 of 3 parts are missing, the first is part 1"):
        EmbeddingDataset.open(stored.folder)
    assert EmbeddingDataset.open(stored.folder, complete=False).missing_parts == [1]


def test_open_of_a_header_with_any_number_of_parts_ends(stored):
    """A damaged header of 10^18 parts: no list of them is made."""
    path = stored.folder / "prolip.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "parts": 10**18}))
    present = len(stored.part_indices)
    with pytest.raises(
        ValueError, match=f"{10**18 - present} of {10**18} parts are missing.* part {present}"
    ):
        EmbeddingDataset.open(stored.folder)


def test_read_part_rejects_unknown_columns(stored):
    with pytest.raises(ValueError, match="no column height; it has id, index"):
        stored.read_part(0, ["height"])


def test_read_part_detects_damage(stored):
    path = stored.folder / get_part_name(0)
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(3)
    assert column.path_in_schema.startswith("mean")
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged .*Remove it, and `prolip embed`"):
        stored.read_part(0)
    path.write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"can't be read\. It is damaged"):
        list(EmbeddingDataset.open(stored.folder).iter_errors())


def test_read_part_rejects_a_part_of_another_dataset(stored, nano, tmp_path):
    other = embed(nano, write_shards(tmp_path / "more", [4]), tmp_path / "other", part_size=4, progress=False)
    (stored.folder / get_part_name(0)).write_bytes((other.folder / get_part_name(0)).read_bytes())
    with pytest.raises(ValueError, match="its header differs"):
        stored.read_part(0)


def test_open_source(nano, tmp_path):
    data = "scenes:simple,length=3,size=32"
    stored = embed(nano, data, tmp_path / "out", progress=False)
    assert stored.open_source().read(1).captions[0] == stored.read_part(0).filter(
        stored.read_part(0)["index"].to_numpy() == 1)["caption"][0].as_py()  # fmt: skip


def test_open_source_rejects_changed_data(nano, tmp_path):
    stored = embed(nano, write_shards(tmp_path / "d", [3]), tmp_path / "e", progress=False)
    assert [stored.open_source().read(n).key for n in range(3)] == ["000000", "000001", "000002"]
    write_shards(tmp_path / "d", [2])
    with pytest.raises(ValueError, match=r"has changed since it was embedded"):
        stored.open_source()


def test_open_source_rejects_streams(nano, tmp_path):
    write_shards(tmp_path / "d", [3])
    data = f"pipe:cat {shlex.quote(str(tmp_path))}/d/00000.tar"
    with pytest.raises(ValueError, match="is a stream"):
        embed(nano, data, tmp_path / "e", progress=False).open_source()


def test_part_under_the_name_of_another_is_rejected(stored):
    (stored.folder / get_part_name(1)).write_bytes((stored.folder / get_part_name(0)).read_bytes())
    for look in (lambda: stored.read_part(1), lambda: EmbeddingDataset.open(stored.folder).footer(1)):
        with pytest.raises(ValueError, match="is part 0, not 1"):
            look()


def test_open_of_missing_folder_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no embeddings"):
        EmbeddingDataset.open(tmp_path / "none")


def test_read_footers_matches_the_parts(stored):
    found = read_footers(stored.storage, stored.header, stored.part_indices)
    assert list(found) == [0, 1, 2]
    for number, footer in found.items():
        assert footer.rows == len(stored.read_part(number))
        assert footer.size == (stored.folder / get_part_name(number)).stat().st_size
    assert [footer.num_samples for footer in found.values()] == [4, 4, 1]
    assert list(found[0].errors) == [2]
    assert len({footer.digest for footer in found.values()}) == 3
    assert (found[0].count_errors().tried, found[0].count_errors().bad) == (4, 1)


def test_read_footers_returns_the_error_of_a_damaged_part(stored):
    (stored.folder / get_part_name(1)).write_bytes(b"nothing")
    found = read_footers(stored.storage, stored.header, stored.part_indices)
    assert [type(footer) for footer in found.values()] == [PartFooter, DamagedFileError, PartFooter]
    with pytest.raises(DamagedFileError, match=get_part_name(1)):
        EmbeddingDataset.open(stored.folder).footer(1)


def test_read_footers_rejects_other_files(stored):
    (stored.folder / get_part_name(1)).write_bytes((stored.folder / get_part_name(0)).read_bytes())
    with pytest.raises(ValueError, match="is part 0, not 1"):
        read_footers(stored.storage, stored.header, stored.part_indices)


def test_footers_are_read_once(stored, monkeypatch):
    again, names, open_input = EmbeddingDataset.open(stored.folder), [], LocalStorage.open_input
    monkeypatch.setattr(
        LocalStorage, "open_input", lambda self, name: (names.append(name), open_input(self, name))[1]
    )
    assert (
        len(again),
        again.count_errors().tried,
        len(list(again.iter_errors())),
        sum(again.count_invalid_values().values()),
    ) == (
        16,
        9,
        1,
        0,
    )
    assert again.size_in_bytes() > 1000
    assert sorted(names) == [get_part_name(number) for number in range(3)]


def test_any_flipped_bit_of_a_footer_is_an_error_or_harmless(nano, tmp_path):
    """The law: no damaged footer gives other rows, counts or errors. With it, rows have checksums of their own."""
    data = write_shards(tmp_path / "shards", [5], bad={2})
    options = {"variances": "trace", "precision": "float16", "max_bad_fraction": 0.5, "progress": False}
    folder = embed(nano, data, tmp_path / "out", **options).folder
    path = folder / get_part_name(0)
    content = path.read_bytes()
    stored = EmbeddingDataset.open(folder)
    rows, footer = stored.read_part(0), stored.footer(0)
    draw = random.Random(0)
    footer_size = int.from_bytes(content[-8:-4], "little") + 8
    for _ in range(200):
        changed = bytearray(content)
        changed[-1 - draw.randrange(footer_size)] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        stored = EmbeddingDataset.open(folder)
        with suppress(ValueError):
            assert stored.read_part(0).equals(rows)
        with suppress(ValueError):
            assert stored.footer(0) == footer
