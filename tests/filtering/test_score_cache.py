import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.embeddings.dataset import get_part_name
from prolip.filtering.criteria import CRITERIA, get_criterion
from prolip.filtering.score_cache import cache_scores, find_first_best
from prolip.filtering.threshold import to_sort_keys
from tests.filtering import made_embeddings as made


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-1.0, 0.5, 2.0, np.nan])), max_size=15))
def test_find_first_best_matches_loop(rows):
    rows = sorted(rows, key=lambda pair: pair[0])
    indices = np.array([index for index, _ in rows], np.int64)
    scores = np.array([score for _, score in rows], np.float32)
    expected = []
    for index in sorted(set(indices.tolist())):
        candidates = [i for i, (n, _) in enumerate(rows) if n == index]
        expected.append(max(candidates, key=lambda i: (-np.inf if np.isnan(scores[i]) else scores[i], -i)))
    assert find_first_best(indices, to_sort_keys(scores)).tolist() == expected


@pytest.fixture
def embeddings(tmp_path):
    images, texts = made.gaussians(6, 1), made.gaussians(6, 2)
    parts = [made.pairs(images[:4], texts[:4]), made.pairs(images[4:], texts[4:], first=4)]
    parts[0].append(made.row(3, "text", made.gaussians(1, 9)[0], "another caption of 3"))
    return made.write(tmp_path / "e", parts)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda one: one.name)
def test_iter_best_ranks_a_sample_by_its_best_caption(embeddings, tmp_path, criterion):
    scores = cache_scores(embeddings, tmp_path / "s", criterion=criterion)
    rows = [one for part in scores.parts for one in scores.read_part(part).to_pylist()]
    found = [value for best in scores.iter_best(criterion) for value in best.score.tolist()]
    by_index = {}
    for one in rows:
        value = criterion.sign * one[criterion.column]
        by_index[one["index"]] = max(value, by_index.get(one["index"], -np.inf))
    assert found == pytest.approx([by_index[index] for index in range(6)])


def test_cache_scores_computes_only_missing_parts(embeddings, tmp_path):
    folder = tmp_path / "s"
    cache_scores(embeddings, folder)
    first, second = (folder / get_part_name(part) for part in (0, 1))
    stamp, content = first.stat().st_mtime_ns, second.read_bytes()
    second.unlink()
    temporary = folder / f".{get_part_name(1)}.99999999.1"
    temporary.write_bytes(b"half")
    cache_scores(embeddings, folder)
    assert first.stat().st_mtime_ns == stamp
    assert second.read_bytes() == content
    assert not temporary.exists()


def test_score_folder_reads_as_one_parquet_table(embeddings, tmp_path):
    cache_scores(embeddings, tmp_path / "s")
    assert pq.read_table(tmp_path / "s")["index"].to_pylist() == [0, 1, 2, 3, 3, 4, 5]


def test_cache_scores_rejects_other_embeddings(embeddings, tmp_path):
    cache_scores(embeddings, tmp_path / "s")
    z = made.gaussians(2)
    others = made.write(tmp_path / "o", [made.pairs(z[:1], z[1:])], variances="trace")
    with pytest.raises(ValueError, match=r"parts, variances"):
        cache_scores(others, tmp_path / "s")


def test_iter_best_reports_a_damaged_part(embeddings, tmp_path):
    scores = cache_scores(embeddings, tmp_path / "s")
    (tmp_path / "s" / get_part_name(1)).write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"part-000000001.parquet can't be read"):
        list(scores.iter_best(get_criterion("csd")))


def test_cache_scores_rejects_another_version(tmp_path):
    z = made.gaussians(2)
    embeddings = made.write(tmp_path / "e", [made.pairs(z[:1], z[1:])])
    cache_scores(embeddings, tmp_path / "s")
    file = tmp_path / "s" / "_scores.json"
    file.write_text(file.read_text().replace('"version": 6', '"version": 3'))
    with pytest.raises(ValueError, match="scores of version 3, not 6"):
        cache_scores(embeddings, tmp_path / "s")
