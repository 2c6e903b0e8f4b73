import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from prolip.data.scenes.write import Plan
from prolip.data.scenes.write import write as write_scenes
from prolip.embed.run import embed
from prolip.search.filter import run, stored
from prolip.search.filter.run import filter_pairs
from prolip.search.filter.select import Fate
from tests.embed.shards import write_shards
from tests.search.filter import made


@pytest.fixture(scope="module")
def polluted(tmp_path_factory):
    """Embeddings of scenes by a model that has learned them, three in ten with a false caption."""
    folder = tmp_path_factory.mktemp("polluted")
    write_scenes(folder / "d", Plan(size=48, train=300, test=1, false=0.3))
    return embed("scenes-tiny", str(folder / "d" / "train"), folder / "e", part_size=128, progress=False)


def filtered(polluted, out, **options):
    return filter_pairs(polluted.folder, out, **{"keep": 0.7, "truth": "right", "progress": False, **options})


@pytest.mark.parametrize("by", ["csd", "cosine", "inclusion"])
def test_false_captions_are_found(polluted, tmp_path, by):
    found = filtered(polluted, tmp_path, by=by)
    assert found.account.kept == 210
    assert found.account.truth.chance_precision == pytest.approx(0.7)
    assert found.account.truth.precision > 0.93
    rows = pq.read_table(tmp_path / "subset.parquet").to_pylist()
    assert sum(row["right"] for row in rows) / 210 == pytest.approx(found.account.truth.precision)
    assert json.loads((tmp_path / "filter.json").read_text()) == found.summary


def test_the_summary_counts_everything(polluted, tmp_path):
    found = filtered(polluted, tmp_path, duplicates="both", alike=0.999)
    fates = found.account.fates
    assert (
        found.summary["fates"]["kept"] == fates[Fate.KEPT] == len(pq.read_table(tmp_path / "subset.parquet"))
    )
    assert fates[Fate.KEPT] + fates[Fate.DUPLICATE] == 210
    assert fates[Fate.DUPLICATE] == found.selection.twins.count > 0
    assert sum(fates.values()) == 300
    rows = pq.read_table(tmp_path / "scores" / "part-000000000.parquet")["csd"].to_pylist()
    assert found.summary["cut"] in [
        value
        for part in found.selection.scores.parts
        for value in found.selection.scores.part(part)["csd"].to_pylist()
    ]
    assert len(rows) == 128


def test_another_score_reads_no_embeddings_again(polluted, tmp_path, monkeypatch):
    filtered(polluted, tmp_path)
    monkeypatch.setattr(stored, "scored", None)  # not to be called
    assert filtered(polluted, tmp_path, by="cosine").account.kept == 210


def test_raw_data_is_embedded_first_and_bad_samples_are_told(nano, tmp_path):
    data = write_shards(tmp_path / "d", [6, 5], bad=[3])
    found = filter_pairs(data, tmp_path / "out", keep=0.4, model=nano, bad_limit=0.2, progress=False)
    assert (tmp_path / "out" / "embeddings" / "prolip.json").exists()
    assert found.summary["bad"] == {"unreadable image": 1}
    assert found.account.total == 10
    assert found.account.kept == 4
    ids = np.load(tmp_path / "out" / "ids.npy")
    assert len(ids) == 4, "samples have uids, so ids are written"
    assert {path.name for path in found.paths} == {"ids.npy", "subset.parquet", "filter.json"}
    assert found.summary["written"] == ["ids.npy", "subset.parquet"]


def test_only_what_is_asked_for_is_written(nano, tmp_path):
    data = write_shards(tmp_path / "d", [6])
    found = filter_pairs(
        data, tmp_path / "o", keep=0.5, model=nano, to=["shards"], shard_size=2, progress=False
    )
    assert [path.name for path in sorted((tmp_path / "o" / "shards").glob("*.tar"))] == [
        "00000.tar",
        "00001.tar",
    ]
    assert not (tmp_path / "o" / "subset.parquet").exists()
    assert tmp_path / "o" / "shards" in found.paths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0.0}, "keep must be a share"),
        ({"by": "beauty"}, "by 'beauty' is not one of"),
        ({"to": ["csv"]}, "to 'csv' is not one of"),
        ({"duplicates": "all"}, "duplicates 'all' is not one of"),
        ({"truth": "wrong"}, "there is no column 'wrong' to compare with; there is id"),
        ({"shard_size": 0}, "shard_size must be"),
        ({"alike": 0.0}, "alike must be a cosine"),
        ({"alike": 1.1}, "alike must be a cosine"),
    ],
)
def test_what_can_not_be_done_is_told(polluted, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        filtered(polluted, tmp_path, **options)


def test_raw_data_needs_a_model(tmp_path):
    with pytest.raises(ValueError, match="is no folder of embeddings, so that a model is needed"):
        filter_pairs(write_shards(tmp_path / "d", [2]), tmp_path / "o", keep=0.5)


def test_a_score_that_the_embeddings_do_not_have_is_told(tmp_path):
    z = made.gaussians(4)
    embeddings = made.write(tmp_path / "e", [made.pairs(z[:2], z[2:])], variances="trace")
    with pytest.raises(ValueError, match=r"not one of 2 samples of .* has a score by inclusion: it needs"):
        run.filter_pairs(embeddings.folder, tmp_path / "o", keep=0.5, by="inclusion")
