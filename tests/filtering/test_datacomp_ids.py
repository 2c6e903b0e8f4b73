import numpy as np
import pyarrow as pa
import pytest

from prolip.filtering.criteria import get_criterion
from prolip.filtering.datacomp_ids import has_uids, parse_uids, write_datacomp_ids
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import SampleOutcome, Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made

UIDS = [f"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}" for n in range(1, 13)]


def datacomp(uids):
    """The ids as DataComp's own tools write them."""
    pairs = np.array([(int(uid[:16], 16), int(uid[16:32], 16)) for uid in uids], np.dtype("u8,u8"))
    pairs.sort()
    return pairs


def selection(tmp_path, keep_fraction=0.5, columns=(), **values):
    images, texts = made.gaussians(12, 1), made.gaussians(12, 2)
    parts = [
        made.pairs(images[:5], texts[:5], **{k: v[:5] for k, v in values.items()}),
        made.pairs(images[5:], texts[5:], 5, **{k: v[5:] for k, v in values.items()}),
    ]
    scores = cache_scores(made.write(tmp_path / "e", parts, columns), tmp_path / "s")
    criterion = get_criterion("csd")
    return Selection(
        scores,
        criterion,
        find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), keep_fraction),
    )


def test_write_datacomp_ids_matches_datacomp(tmp_path):
    chosen = selection(tmp_path, columns={"uid": "string"}, uid=UIDS)
    assert has_uids(chosen)
    found = np.load(write_datacomp_ids(tmp_path / "ids.npy", chosen))
    outcome = np.concatenate([part.outcome for part in chosen.iter_parts()])
    expected = datacomp([uid for uid, one in zip(UIDS, outcome, strict=True) if one == SampleOutcome.KEPT])
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    assert len(found) == 6


def test_keys_of_32_digits_are_uids(tmp_path):
    chosen = selection(tmp_path, keep_fraction=1.0, id=UIDS)
    assert has_uids(chosen)
    assert np.load(write_datacomp_ids(tmp_path / "ids.npy", chosen)).tolist() == datacomp(UIDS).tolist()


def test_write_datacomp_ids_rejects_other_keys(tmp_path):
    chosen = selection(tmp_path)
    assert not has_uids(chosen)
    with pytest.raises(ValueError, match=r"the id 'key\d+' is not a uid of 32 hexadecimal digits"):
        write_datacomp_ids(tmp_path / "ids.npy", chosen)
    assert not (tmp_path / "ids.npy").exists()


def test_has_uids_rejects_numbers(tmp_path):
    assert not has_uids(selection(tmp_path, columns={"uid": "int64"}, uid=list(range(12))))


@pytest.mark.parametrize("text", ["0" * 31, "0" * 33, "g" * 32, " " + "0" * 31, "0" * 32 + "\n", "", None])
def test_parse_uids_rejects(text):
    with pytest.raises(ValueError, match="is not a uid"):
        parse_uids(pa.chunked_array([pa.array([UIDS[0], text], pa.string())]), "uid")


def test_parse_uids_accepts_uppercase_slices_and_chunks():
    uids = ["F" * 32, "0" * 32, UIDS[3].upper(), UIDS[4]]
    chunked = pa.chunked_array(
        [pa.array(["x", *uids[:2]])[1:], pa.array([], pa.string()), pa.array(uids[2:])]
    )
    assert sorted(parse_uids(chunked, "uid").tolist()) == datacomp(uids).tolist()
    assert len(parse_uids(chunked.slice(0, 0), "uid")) == 0
