"""Folders of embeddings, read part after part."""

import shlex

import pyarrow.parquet as pq
import pytest
import torch

from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embed import embed
from prolip.embeddings.footers import part_name
from prolip.embeddings.schema import gaussian_of
from tests.embeddings.shards import write_shards


@pytest.fixture
def stored(nano, tmp_path):
    data = write_shards(tmp_path / "shards", [5, 4], bad={2})
    return embed(nano, data, tmp_path / "out", part_size=4, bad_limit=0.5, progress=False)


def test_all_parts_again(stored):
    again = Embeddings.open(stored.folder)
    assert again == stored
    assert again.numbers == (0, 1, 2)
    assert len(again) == 2 * 8
    numbers = [row for _, block in again.blocks("image", ["number"]) for row in block["number"].to_pylist()]
    assert numbers == [0, 1, 3, 4, 5, 6, 7, 8]
    assert [block.schema.names for _, block in again.blocks("text", ["caption"])] == [["caption"]] * 3


def test_blocks_of_both_are_the_parts(stored):
    for number, block in stored.blocks():
        assert block.equals(stored.part(number))
    images = [gaussian_of(block) for _, block in stored.blocks("image")]
    texts = [gaussian_of(block) for _, block in stored.blocks("text")]
    first = gaussian_of(stored.part(0))
    assert torch.equal(first.mean, torch.cat([images[0].mean, texts[0].mean]))


def test_what_was_left_out(stored):
    ((part, number, bad),) = stored.bads()
    assert (part, number, bad.reason) == (0, 2, "unreadable image")
    assert [(stored.footer(part).tried, len(stored.footer(part).bads)) for part in stored.numbers] == [
        (4, 1), (4, 0), (1, 0)
    ]  # fmt: skip
    assert (stored.tally().tried, stored.tally().bad) == (9, 1)


def test_a_missing_part_is_told(stored):
    (stored.folder / part_name(1)).unlink()
    with pytest.raises(ValueError, match="lacks 1 of 3 parts, the first of them part 1"):
        Embeddings.open(stored.folder)
    assert Embeddings.open(stored.folder, whole=False).missing == [1]


def test_unknown_columns_are_named(stored):
    with pytest.raises(ValueError, match="no column height; it has id, number"):
        stored.part(0, ["height"])


def test_damage_is_told(stored):
    path = stored.folder / part_name(0)
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(3)
    assert column.path_in_schema.startswith("mean")
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"can't be read, it is damaged .*; remove it, and `prolip embed` makes it again"
    ):
        stored.part(0)
    path.write_bytes(content[:100])
    with pytest.raises(ValueError, match="can't be read, it is damaged"):
        list(Embeddings.open(stored.folder).bads())


def test_a_part_of_another_folder_is_told(stored, nano, tmp_path):
    other = embed(nano, write_shards(tmp_path / "more", [4]), tmp_path / "other", part_size=4, progress=False)
    (stored.folder / part_name(0)).write_bytes((other.folder / part_name(0)).read_bytes())
    with pytest.raises(ValueError, match="not of these embeddings"):
        stored.part(0)


def test_the_data_again(nano, tmp_path):
    data = "scenes:simple,length=3,size=32"
    stored = embed(nano, data, tmp_path / "out", progress=False)
    assert stored.source().read(1).captions[0] == stored.part(0).filter(
        stored.part(0)["number"].to_numpy() == 1)["caption"][0].as_py()  # fmt: skip


def test_data_that_has_changed_is_not_the_data(nano, tmp_path):
    stored = embed(nano, write_shards(tmp_path / "d", [3]), tmp_path / "e", progress=False)
    assert [stored.source().read(n).key for n in range(3)] == ["000000", "000001", "000002"]
    write_shards(tmp_path / "d", [2])
    with pytest.raises(ValueError, match="has changed since it was embedded: embed it again"):
        stored.source()


def test_a_stream_can_not_be_read_at_a_place(nano, tmp_path):
    write_shards(tmp_path / "d", [3])
    data = f"pipe:cat {shlex.quote(str(tmp_path))}/d/00000.tar"
    with pytest.raises(ValueError, match="is a stream"):
        embed(nano, data, tmp_path / "e", progress=False).source()


def test_a_part_at_the_place_of_another_is_told(stored):
    (stored.folder / part_name(1)).write_bytes((stored.folder / part_name(0)).read_bytes())
    for look in (lambda: stored.part(1), lambda: Embeddings.open(stored.folder).footer(1)):
        with pytest.raises(ValueError, match="is part 0, not 1"):
            look()


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no embeddings"):
        Embeddings.open(tmp_path / "none")
