import pyarrow.parquet as pq

from prolip.filtering.criteria import get_criterion
from prolip.filtering.parquet_writer import write_parquet
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made


def test_write_parquet_writes_kept_rows_with_all_columns(tmp_path):
    images, texts = made.gaussians(10, 1), made.gaussians(10, 2)
    parts = [
        made.pairs(images[:4], texts[:4], correct=[True] * 4),
        made.pairs(images[4:], texts[4:], first=4, correct=[False] * 6),
    ]
    scores = cache_scores(made.write(tmp_path / "e", parts, {"correct": "bool"}), tmp_path / "s")
    criterion = get_criterion("cosine")
    chosen = Selection(
        scores, criterion, find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), 0.3)
    )
    found = pq.read_table(write_parquet(tmp_path / "subset.parquet", chosen)).to_pylist()
    rows = [{"part": part, **row} for part in (0, 1) for row in scores.read_part(part).to_pylist()]
    best = sorted(rows, key=lambda row: -row["cosine"])[:3]
    expected = sorted(best, key=lambda row: row["index"])
    for row in expected:
        del row["image_row"], row["text_row"]
    assert found == expected
    assert list(found[0])[:3] == ["part", "id", "index"]
