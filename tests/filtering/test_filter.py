import shlex
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from prolip.data.open import open_data
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.filtering import filter, score_cache
from prolip.filtering.filter import filter_pairs
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import SampleOutcome
from prolip.filtering.summary import FilterSummary
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset as write_scenes
from tests.data.tar_files import tar_bytes
from tests.embeddings.shards import files, uid, write_shards
from tests.filtering import made_embeddings as made


@pytest.fixture(scope="module")
def polluted(tmp_path_factory):
    """Embeddings of scenes by a model that has learned them, three in ten with a false caption."""
    folder = tmp_path_factory.mktemp("polluted")
    write_scenes(folder / "d", SceneDatasetSpec(image_size=48, num_train=300, num_test=1, false_fraction=0.3))
    return embed("scenes-tiny", str(folder / "d" / "train"), folder / "e", part_size=128, progress=False)


def filtered(polluted, out, **options):
    return filter_pairs(
        polluted.folder,
        out,
        **{"keep_fraction": 0.7, "ground_truth": "correct", "progress": False, **options},
    )


@pytest.mark.parametrize("by", ["csd", "cosine", "inclusion"])
def test_filter_pairs_drops_false_captions(polluted, tmp_path, by):
    found = filtered(polluted, tmp_path, rank_by=by)
    assert found.counts.kept == 210
    assert found.counts.ground_truth.chance_precision == pytest.approx(0.7)
    assert found.counts.ground_truth.precision > 0.93
    rows = pq.read_table(tmp_path / "subset.parquet").to_pylist()
    assert sum(row["correct"] for row in rows) / 210 == pytest.approx(found.counts.ground_truth.precision)
    text = (tmp_path / "filter.json").read_text()
    assert FilterSummary.from_json(text, "filter.json") == found.summary


def test_filter_pairs_summary_counts_every_sample(polluted, tmp_path):
    found = filtered(polluted, tmp_path, duplicates="both", duplicate_cosine=0.999)
    fates = found.counts.outcomes
    assert (
        found.summary.outcomes["kept"]
        == fates[SampleOutcome.KEPT]
        == len(pq.read_table(tmp_path / "subset.parquet"))
    )
    assert fates[SampleOutcome.KEPT] + fates[SampleOutcome.DUPLICATE] == 210
    assert fates[SampleOutcome.DUPLICATE] == found.selection.duplicates.count > 0
    assert sum(fates.values()) == 300
    rows = pq.read_table(tmp_path / "scores" / "part-000000000.parquet")["csd"].to_pylist()
    assert found.summary.threshold in [
        value
        for part in found.selection.scores.parts
        for value in found.selection.scores.read_part(part)["csd"].to_pylist()
    ]
    assert len(rows) == 128


def test_filter_pairs_reads_cached_scores_for_another_criterion(polluted, tmp_path, monkeypatch):
    filtered(polluted, tmp_path)
    monkeypatch.setattr(score_cache, "compute_scores", None)  # not to be called
    assert filtered(polluted, tmp_path, rank_by="cosine").counts.kept == 210


def test_filter_pairs_embeds_raw_data_and_counts_bad_samples(nano_path, tmp_path):
    data = write_shards(tmp_path / "d", [6, 5], bad=[3])
    found = filter_pairs(
        data, tmp_path / "out", keep_fraction=0.4, model=nano_path, max_bad_fraction=0.2, progress=False
    )
    assert (tmp_path / "out" / "embeddings" / "prolip.json").exists()
    assert found.summary.errors == {"unreadable image": 1}
    assert found.counts.total == 10
    assert found.counts.kept == 4
    ids = np.load(tmp_path / "out" / "ids.npy")
    assert len(ids) == 4, "samples have uids, so ids are written"
    assert {path.name for path in found.paths} == {
        "ids.npy", "subset.parquet", "dropped.parquet", "filter.json",
    }  # fmt: skip
    assert found.summary.written == ("ids.npy", "subset.parquet", "dropped.parquet")


def test_filter_pairs_writes_each_sample_either_as_kept_or_as_dropped(polluted, tmp_path):
    found = filtered(polluted, tmp_path, duplicates="both", duplicate_cosine=0.999)
    kept, dropped = (
        pq.read_table(tmp_path / name).to_pylist() for name in ("subset.parquet", "dropped.parquet")
    )
    indices = [[row["index"] for row in rows] for rows in (kept, dropped)]
    assert sorted(indices[0] + indices[1]) == list(range(300))
    assert Counter(row["outcome"] for row in dropped) + Counter(kept=len(kept)) == Counter(
        found.summary.outcomes
    )
    for row in dropped:
        assert (row["csd"] > found.summary.threshold) == (row["outcome"] == "below the threshold")
        assert {name for name in row if name != "outcome"} == set(kept[0])


def test_filter_pairs_writes_only_requested_outputs(nano_path, tmp_path):
    data = write_shards(tmp_path / "d", [6])
    found = filter_pairs(
        data,
        tmp_path / "o",
        keep_fraction=0.5,
        model=nano_path,
        outputs=["shards"],
        shard_size=2,
        progress=False,
    )
    assert [path.name for path in sorted((tmp_path / "o" / "shards").glob("*.tar"))] == [
        "00000.tar",
        "00001.tar",
    ]
    assert not (tmp_path / "o" / "subset.parquet").exists()
    assert not (tmp_path / "o" / "dropped.parquet").exists()
    assert tmp_path / "o" / "shards" in found.paths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_fraction": 0.0}, "keep_fraction .* 0.0"),
        ({"rank_by": "beauty"}, "rank_by 'beauty'"),
        ({"outputs": ["csv"]}, "outputs 'csv'"),
        ({"duplicates": "all"}, "duplicates 'all'"),
        ({"ground_truth": "wrong"}, "'wrong'.* id"),
        ({"shard_size": 0}, "shard_size"),
        ({"duplicate_cosine": 0.0}, "duplicate_cosine"),
        ({"duplicate_cosine": 1.1}, "duplicate_cosine"),
    ],
)
def test_filter_pairs_rejects_invalid_options(polluted, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        filtered(polluted, tmp_path, **options)


def test_filter_pairs_needs_a_model_for_raw_data(tmp_path):
    with pytest.raises(ValueError, match="--model"):
        filter_pairs(write_shards(tmp_path / "d", [2]), tmp_path / "o", keep_fraction=0.5)


def test_filter_pairs_rejects_criterion_without_scores(tmp_path):
    z = made.gaussians(4)
    embeddings = made.write(tmp_path / "e", [made.pairs(z[:2], z[2:])], variances="trace")
    with pytest.raises(ValueError, match=r"2 samples of .* inclusion: it needs"):
        filter.filter_pairs(embeddings.folder, tmp_path / "o", keep_fraction=0.5, rank_by="inclusion")


def test_filter_pairs_scores_a_repaired_shard_again(nano_path, tmp_path):
    write_shards(tmp_path / "d", [6])
    shard = tmp_path / "d" / "00000.tar"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2 + 100])
    data, out = f"pipe:cat {shlex.quote(str(shard))}", tmp_path / "o"
    options = {
        "keep_fraction": 1.0,
        "model": nano_path,
        "max_bad_fraction": 0.5,
        "outputs": ("shards", "parquet"),
        "progress": False,
    }
    assert filter_pairs(data, out, **options).counts.kept < 6
    shard.write_bytes(content)
    with pytest.raises(ValueError, match="shards of another selection"):
        filter_pairs(data, out, **options)
    again = filter_pairs(data, out, **{**options, "outputs": ("parquet",)})
    assert again.counts.kept == 6
    fresh = filter_pairs(data, tmp_path / "fresh", **{**options, "outputs": ("parquet",)})
    ours, theirs = (pq.read_table(tmp_path / name / "subset.parquet") for name in ("o", "fresh"))
    assert ours.equals(theirs)
    assert fresh.counts.kept == 6


def test_filter_pairs_rejects_shards_of_another_selection_before_writing(nano_path, tmp_path):
    data = write_shards(tmp_path / "d", [6])
    options = {"model": nano_path, "outputs": ("parquet", "shards"), "progress": False}
    filter_pairs(data, tmp_path / "o", keep_fraction=0.5, **options)
    before = (tmp_path / "o" / "subset.parquet").read_bytes()
    with pytest.raises(ValueError, match="shards of another selection"):
        filter_pairs(data, tmp_path / "o", keep_fraction=1.0, **options)
    assert (tmp_path / "o" / "subset.parquet").read_bytes() == before


def test_filter_pairs_runs_a_command_of_a_header_only_if_told(nano_path, tmp_path, monkeypatch):
    """A folder of embeddings from others must not run what its header says."""
    write_shards(tmp_path / "d", [4])
    mark = tmp_path / "was_run"
    data = f"pipe:touch {shlex.quote(str(mark))}; cat {shlex.quote(str(tmp_path))}/d/00000.tar"
    folder = embed(nano_path, data, tmp_path / "e", progress=False).folder
    options = {"keep_fraction": 1.0, "outputs": ("shards",), "progress": False}
    mark.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    with pytest.raises(
        ValueError, match=rf"prolip.json contains a command.*'pipe:touch {mark}.*--trust-pipe"
    ):
        filter_pairs(folder, tmp_path / "o", **options)
    assert not mark.exists()
    assert filter_pairs(folder, tmp_path / "p", **{**options, "outputs": ("parquet",)}).counts.kept == 4
    assert not mark.exists()
    filter_pairs(folder, tmp_path / "trusted", **options, trust_pipe=True)
    assert mark.exists()
    monkeypatch.undo()
    filter_pairs(folder, tmp_path / "own", **options)
    assert len(open_data(tmp_path / "own" / "shards")) == 4


def test_filter_pairs_needs_the_data_to_write_shards_of_a_stream_with_password(nano_path, tmp_path):
    write_shards(tmp_path / "d", [4])
    data = f"pipe:TOKEN=geheim cat {shlex.quote(str(tmp_path))}/d/00000.tar"
    done = filter_pairs(
        data, tmp_path / "o", keep_fraction=0.5, model=nano_path, outputs=("shards",), progress=False
    )
    assert len(open_data(tmp_path / "o" / "shards")) == 2
    with pytest.raises(ValueError, match=r"password.*--model"):
        filter_pairs(
            done.embeddings.folder, tmp_path / "p", keep_fraction=0.5, outputs=("shards",), progress=False
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "m"),
        ("captions", ["txt"]),
        ("variances", "trace"),
        ("precision", "float16"),
        ("device", "cpu"),
    ],
)
def test_filter_pairs_rejects_embedding_options_for_embeddings(nano_path, tmp_path, name, value):
    stored = embed(nano_path, write_shards(tmp_path / "d", [4]), tmp_path / "e", progress=False)
    with pytest.raises(ValueError, match=f"leave out {name}"):
        filter_pairs(stored.folder, tmp_path / "o", keep_fraction=0.5, **{name: value})


def test_filter_pairs_rejects_inclusion_of_traces_before_embedding(nano_path, tmp_path):
    data = write_shards(tmp_path / "d", [4])
    with pytest.raises(ValueError, match="leave out variances"):
        filter_pairs(
            data, tmp_path / "o", keep_fraction=0.5, rank_by="inclusion", model=nano_path, variances="trace"
        )
    assert not (tmp_path / "o").exists()


def test_filter_pairs_reports_data_without_a_good_sample(nano_path, tmp_path):
    data = write_shards(tmp_path / "d", [3], bad={0, 1, 2})
    with pytest.raises(ValueError, match=r"no sample of .* could be embedded: see .*\.csv"):
        filter_pairs(
            data, tmp_path / "o", keep_fraction=0.5, model=nano_path, max_bad_fraction=1, progress=False
        )


def test_filter_pairs_skips_ids_if_a_uid_is_invalid(nano_path, tmp_path, caplog):
    members = [(name, content.replace(uid(1).encode(), b"short")) for name, content in files(range(4))]
    (tmp_path / "a.tar").write_bytes(tar_bytes(members))
    done = filter_pairs(
        tmp_path / "a.tar", tmp_path / "o", keep_fraction=1.0, model=nano_path, progress=False
    )
    assert [path.name for path in done.paths] == ["subset.parquet", "dropped.parquet", "filter.json"]
    assert "the uid 'short'" in caplog.text


def test_filter_pairs_renames_extra_columns_with_reserved_names(nano_path, tmp_path):
    metadata = b'{"part": "p", "csd": "c", "csd_": "d", "image_row": 5}'
    members = [(name, metadata if name.endswith("json") else content) for name, content in files(range(3))]
    (tmp_path / "a.tar").write_bytes(tar_bytes(members))
    filter_pairs(tmp_path / "a.tar", tmp_path / "o", keep_fraction=1.0, model=nano_path, progress=False)
    rows = pq.read_table(tmp_path / "o" / "subset.parquet")
    assert rows["part_"].to_pylist() == ["p"] * 3
    assert rows["csd__"].to_pylist() == ["c"] * 3
    assert rows["csd_"].to_pylist() == ["d"] * 3
    assert rows["image_row_"].to_pylist() == [5] * 3


def test_filter_pairs_rejects_object_storage_as_output(nano_path, tmp_path):
    with pytest.raises(ValueError, match="s3://bucket/out"):
        filter_pairs(str(tmp_path), "s3://bucket/out", keep_fraction=0.5, model=nano_path)


def test_filter_pairs_rejects_shards_of_a_source_in_memory(nano_path, tmp_path):
    source = open_data(write_shards(tmp_path / "d", [4]))
    with pytest.raises(ValueError, match="path of the data"):
        filter_pairs(source, tmp_path / "o", keep_fraction=0.5, model=nano_path, outputs=("shards",))
    assert (
        filter_pairs(source, tmp_path / "o", keep_fraction=0.5, model=nano_path, progress=False).counts.kept
        == 2
    )


def test_cache_scores_rejects_other_columns(nano_path, tmp_path):
    stored = embed(nano_path, write_shards(tmp_path / "d", [4]), tmp_path / "e", progress=False)
    filter_pairs(stored.folder, tmp_path / "o", keep_fraction=0.5, progress=False)
    fewer = replace(stored.header, columns={})
    with pytest.raises(ValueError, match=r"holds the scores of other embeddings \(columns differ\)"):
        cache_scores(EmbeddingDataset(stored.storage, fewer), tmp_path / "o" / "scores")
