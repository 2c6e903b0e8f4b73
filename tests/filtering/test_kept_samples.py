import csv
import io
import json
import os
import shlex

import pytest
from PIL import Image

from prolip.embeddings.embed import embed
from prolip.filtering.criteria import get_criterion
from prolip.filtering.kept_samples import iter_kept_samples
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import Selection
from prolip.filtering.threshold import find_threshold
from tests.data.tar_files import samples_by_tarfile, tar_bytes
from tests.embeddings.shards import caption, files, make_png, write_shards


def chosen(embeddings, folder, keep_fraction=0.5):
    scores, criterion = cache_scores(embeddings, folder), get_criterion("csd")
    return Selection(
        scores,
        criterion,
        find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), keep_fraction),
    )


def kept_ids(selection):
    return [one for part in selection.iter_parts(["id"]) for one in part.kept_rows["id"].to_pylist()]


def read_all_samples(folder):
    """All samples of shards, by key."""
    return {
        key: dict(files)
        for path in sorted(folder.glob("*.tar"))
        for key, files in samples_by_tarfile(path.read_bytes())
    }


@pytest.mark.parametrize("part_size", [3, 100])
def test_iter_kept_samples_copies_tar_members(nano, tmp_path, part_size):
    data = write_shards(tmp_path / "d", [5, 1, 7], bad=[2])
    embeddings = embed(nano, data, tmp_path / "e", part_size=part_size, max_bad_fraction=0.2, progress=False)
    selection = chosen(embeddings, tmp_path / "s")
    found, original = (
        list(iter_kept_samples(selection, embeddings, embeddings.header.data)),
        read_all_samples(tmp_path / "d"),
    )
    assert [key for key, _ in found] == kept_ids(selection)
    assert len(found) == 6
    assert all(members == original[key] for key, members in found)
    assert list(iter_kept_samples(selection, embeddings, embeddings.header.data, skip=4)) == found[4:]


def test_iter_kept_samples_of_a_stream(nano, tmp_path):
    write_shards(tmp_path / "d", [5, 4])
    data = f"pipe:cat {shlex.quote(str(tmp_path))}/d/0000{{0,1}}.tar"
    embeddings = embed(nano, data, tmp_path / "e", progress=False)
    selection = chosen(embeddings, tmp_path / "s")
    found, original = (
        list(iter_kept_samples(selection, embeddings, embeddings.header.data)),
        read_all_samples(tmp_path / "d"),
    )
    assert [key for key, _ in found] == kept_ids(selection)
    assert all(members == original[key] for key, members in found)


def test_iter_kept_samples_rejects_data_of_another_size(nano, tmp_path):
    embeddings = embed(nano, write_shards(tmp_path / "d", [8]), tmp_path / "e", progress=False)
    selection = chosen(embeddings, tmp_path / "s")
    write_shards(tmp_path / "d", [4])
    with pytest.raises(ValueError, match="changed since it was embedded"):
        iter_kept_samples(selection, embeddings, embeddings.header.data)


def test_iter_kept_samples_rejects_changed_keys(nano, tmp_path):
    embeddings = embed(nano, write_shards(tmp_path / "d", [8]), tmp_path / "e", progress=False)
    selection = chosen(embeddings, tmp_path / "s")
    renamed = [(f"9{name[1:]}", content) for name, content in files(range(8))]
    shard = tmp_path / "d" / "00000.tar"
    before = shard.stat()
    shard.write_bytes(tar_bytes(renamed))
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ValueError, match=r"00000.tar has changed .* 00000\d"):
        list(iter_kept_samples(selection, embeddings, embeddings.header.data))


def test_iter_kept_samples_reports_a_truncated_stream(nano, tmp_path):
    write_shards(tmp_path / "d", [8])
    path = tmp_path / "d" / "00000.tar"
    embeddings = embed(nano, f"pipe:cat {shlex.quote(str(path))}", tmp_path / "e", progress=False)
    selection = chosen(embeddings, tmp_path / "s", keep_fraction=1.0)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"00000.tar can't be read again: the tar ends within"):
        list(iter_kept_samples(selection, embeddings, embeddings.header.data))


@pytest.fixture
def table(tmp_path):
    """A table of images in three formats, with an extra column."""
    names = [f"{n}.{extension}" for n, extension in enumerate(["png", "jpg", "bmp"])]
    for index, name in enumerate(names):
        Image.open(io.BytesIO(make_png(index))).save(tmp_path / name)
    with open(tmp_path / "t.csv", "w", newline="") as file:
        rows = [
            ("image", "caption", "licence"),
            *((name, caption(n), "free") for n, name in enumerate(names)),
        ]
        csv.writer(file).writerows(rows)
    return tmp_path / "t.csv"


def test_iter_kept_samples_of_a_table_gives_image_text_and_json(nano, tmp_path, table):
    embeddings = embed(nano, str(table), tmp_path / "e", progress=False)
    found = dict(
        iter_kept_samples(
            chosen(embeddings, tmp_path / "s", keep_fraction=1.0), embeddings, embeddings.header.data
        )
    )
    assert [sorted(members) for members in found.values()] == [
        ["json", "png", "txt"],
        ["jpg", "json", "txt"],
        ["json", "png", "txt"],
    ]
    for index, (members, extension) in enumerate(zip(found.values(), ["png", "jpg", None], strict=True)):
        metadata = json.loads(members["json"])
        assert members["txt"].decode() == caption(index).strip()
        assert metadata["captions"] == [caption(index).strip()]
        assert metadata["licence"] == "free"
        assert metadata["csd"] > 0
        if extension:
            assert members[extension] == (tmp_path / f"{index}.{extension}").read_bytes()
    bitmap = Image.open(io.BytesIO(found["000000000002"]["png"]))
    assert bitmap.tobytes() == Image.open(tmp_path / "2.bmp").tobytes()


def test_iter_kept_samples_reports_a_missing_image(nano, tmp_path, table):
    embeddings = embed(nano, str(table), tmp_path / "e", progress=False)
    selection = chosen(embeddings, tmp_path / "s", keep_fraction=1.0)
    (tmp_path / "1.jpg").unlink()
    with pytest.raises(ValueError, match=r"read again .*1\.jpg"):
        list(iter_kept_samples(selection, embeddings, embeddings.header.data))
