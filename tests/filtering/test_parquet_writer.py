import pyarrow.parquet as pq

from prolip.filtering.criteria import get_criterion
from prolip.filtering.parquet_writer import write_parquet
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made


def test_the_rows_that_are_kept_with_all_that_is_known_of_them(tmp_path):
    images, texts = made.gaussians(10, 1), made.gaussians(10, 2)
    parts = [
        made.pairs(images[:4], texts[:4], right=[True] * 4),
        made.pairs(images[4:], texts[4:], first=4, right=[False] * 6),
    ]
    scores = cache_scores(made.write(tmp_path / "e", parts, {"correct": "bool"}), tmp_path / "s")
    judge = get_criterion("cosine")
    chosen = Selection(
        scores, judge, find_threshold(lambda: (best.score for best in scores.iter_best(judge)), 0.3)
    )
    found = pq.read_table(write_parquet(tmp_path / "subset.parquet", chosen)).to_pylist()
    rows = [{"part": part, **row} for part in (0, 1) for row in scores.read_part(part).to_pylist()]
    best = sorted(rows, key=lambda row: -row["cosine"])[:3]
    expected = sorted(best, key=lambda row: row["number"])
    for row in expected:
        del row["image_row"], row["text_row"]
    assert found == expected
    assert list(found[0])[:3] == ["part", "id", "number"]
