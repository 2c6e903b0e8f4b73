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
def test_of_each_number_the_first_best_row(rows):
    rows = sorted(rows, key=lambda pair: pair[0])
    numbers = np.array([number for number, _ in rows], np.int64)
    scores = np.array([score for _, score in rows], np.float32)
    expected = []
    for number in sorted(set(numbers.tolist())):
        places = [i for i, (n, _) in enumerate(rows) if n == number]
        expected.append(max(places, key=lambda i: (-np.inf if np.isnan(scores[i]) else scores[i], -i)))
    assert find_first_best(numbers, to_sort_keys(scores)).tolist() == expected


@pytest.fixture
def embeddings(tmp_path):
    images, texts = made.gaussians(6, 1), made.gaussians(6, 2)
    parts = [made.pairs(images[:4], texts[:4]), made.pairs(images[4:], texts[4:], first=4)]
    parts[0].append(made.row(3, "text", made.gaussians(1, 9)[0], "another caption of 3"))
    return made.write(tmp_path / "e", parts)


@pytest.mark.parametrize("judge", CRITERIA, ids=lambda one: one.name)
def test_a_sample_counts_by_the_caption_that_fits_best(embeddings, tmp_path, judge):
    scores = cache_scores(embeddings, tmp_path / "s")
    rows = [one for number in scores.parts for one in scores.read_part(number).to_pylist()]
    found = [value for best in scores.iter_best(judge) for value in best.score.tolist()]
    by_number = {}
    for one in rows:
        value = judge.sign * one[judge.column]
        by_number[one["number"]] = max(value, by_number.get(one["number"], -np.inf))
    assert found == pytest.approx([by_number[number] for number in range(6)])


def test_what_is_there_is_not_made_again_and_what_is_missing_is(embeddings, tmp_path):
    folder = tmp_path / "s"
    cache_scores(embeddings, folder)
    first, second = (folder / get_part_name(number) for number in (0, 1))
    stamp, content = first.stat().st_mtime_ns, second.read_bytes()
    second.unlink()
    left = folder / f".{get_part_name(1)}.99999999.1"
    left.write_bytes(b"half")
    cache_scores(embeddings, folder)
    assert first.stat().st_mtime_ns == stamp
    assert second.read_bytes() == content
    assert not left.exists()


def test_the_folder_is_a_table_to_other_programs(embeddings, tmp_path):
    cache_scores(embeddings, tmp_path / "s")
    assert pq.read_table(tmp_path / "s")["number"].to_pylist() == [0, 1, 2, 3, 3, 4, 5]


def test_scores_of_other_embeddings_are_refused(embeddings, tmp_path):
    cache_scores(embeddings, tmp_path / "s")
    z = made.gaussians(2)
    others = made.write(tmp_path / "o", [made.pairs(z[:1], z[1:])], variances="trace")
    with pytest.raises(ValueError, match=r"parts, variances"):
        cache_scores(others, tmp_path / "s")


def test_a_damaged_part_is_told(embeddings, tmp_path):
    scores = cache_scores(embeddings, tmp_path / "s")
    (tmp_path / "s" / get_part_name(1)).write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"part-000000001.parquet can't be read"):
        list(scores.iter_best(get_criterion("csd")))


def test_cache_scores_rejects_another_version(tmp_path):
    z = made.gaussians(2)
    embeddings = made.write(tmp_path / "e", [made.pairs(z[:1], z[1:])])
    cache_scores(embeddings, tmp_path / "s")
    file = tmp_path / "s" / "_scores.json"
    file.write_text(file.read_text().replace('"version": 4', '"version": 3'))
    with pytest.raises(ValueError, match="scores of version 3, not 4"):
        cache_scores(embeddings, tmp_path / "s")
