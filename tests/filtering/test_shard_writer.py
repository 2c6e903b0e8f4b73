import pytest

from prolip.data.open import open_data
from prolip.embeddings.embed import embed
from prolip.filtering import shard_writer
from prolip.filtering.shard_writer import claim_folder, write_shards
from tests.data.tar_files import tar_bytes
from tests.embeddings.shards import files
from tests.embeddings.shards import write_shards as write_data
from tests.filtering.test_kept_samples import chosen, kept_ids, read_all_samples


@pytest.fixture
def made(nano, tmp_path):
    embeddings = embed(nano, write_data(tmp_path / "d", [6, 6]), tmp_path / "e", part_size=5, progress=False)
    return embeddings, chosen(embeddings, tmp_path / "s", keep_fraction=7 / 12)


def write(made, folder, **options):
    embeddings, selection = made
    claim_folder(folder, options or {"rank_by": "csd"})
    return write_shards(folder, selection, embeddings, data=embeddings.header.data, num_kept=7, shard_size=3)


def test_write_shards_writes_only_kept_samples(made, tmp_path):
    paths = write(made, tmp_path / "new")
    assert [path.name for path in paths] == ["00000.tar", "00001.tar", "00002.tar"]
    old, new = read_all_samples(tmp_path / "d"), read_all_samples(tmp_path / "new")
    assert list(new) == kept_ids(made[1])
    assert all(members == old[key] for key, members in new.items())
    opened, source = open_data(tmp_path / "new"), open_data(tmp_path / "d")
    indices = [n for part in made[1].iter_parts() for n in part.kept_rows["index"].to_pylist()]
    assert len(opened) == 7
    for position, index in enumerate(indices):
        ours, theirs = opened.read(position), source.read(index)
        assert (ours.key, ours.image, ours.captions) == (theirs.key, theirs.image, theirs.captions)
        assert dict(ours.extra) == dict(theirs.extra)


def test_write_shards_resumes(made, tmp_path, monkeypatch):
    complete = [path.read_bytes() for path in write(made, tmp_path / "complete")]
    real, read = shard_writer.iter_kept_samples, []

    def failing(*arguments, **options):
        for index, sample in enumerate(real(*arguments, **options)):
            if index == 4:
                raise KeyboardInterrupt
            yield sample

    monkeypatch.setattr(shard_writer, "iter_kept_samples", failing)
    with pytest.raises(KeyboardInterrupt):
        write(made, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").glob("*.tar")] == ["00000.tar"]

    def counted(*arguments, **options):
        for sample in real(*arguments, **options):
            read.append(sample[0])
            yield sample

    monkeypatch.setattr(shard_writer, "iter_kept_samples", counted)
    assert [path.read_bytes() for path in write(made, tmp_path / "new")] == complete
    assert read == kept_ids(made[1])[3:], "finished shards are not read again"


def test_claim_folder_rejects_another_selection(made, tmp_path):
    write(made, tmp_path / "new")
    with pytest.raises(ValueError, match="holds the shards of another selection"):
        write(made, tmp_path / "new", rank_by="cosine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        write(made, tmp_path / "mine")


def test_write_shards_makes_keys_unique(nano, tmp_path):
    """Every shard counts from 0, as many data sets do."""
    (tmp_path / "d").mkdir()
    for shard in range(3):
        (tmp_path / "d" / f"{shard}.tar").write_bytes(tar_bytes(list(files(range(2)))))
    embeddings = embed(nano, str(tmp_path / "d"), tmp_path / "e", progress=False)
    selection = chosen(embeddings, tmp_path / "s", keep_fraction=1.0)
    write_shards(
        tmp_path / "new", selection, embeddings, data=embeddings.header.data, num_kept=6, shard_size=6
    )
    opened = open_data(tmp_path / "new")
    assert [opened.read(n).key for n in range(6)] == [
        "000000", "000001", "000000-1", "000001-1", "000000-2", "000001-2",
    ]  # fmt: skip
