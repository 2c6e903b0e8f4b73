import math

import pytest
import torch

from prolip.filtering import scores
from prolip.filtering.scores import compute_scores, get_score_columns
from prolip.gaussian import Gaussian
from prolip.measures.public import csd, log_inclusion
from tests.filtering.made_embeddings import gaussians, pairs, row, write


def score_rows(tmp_path, rows, **options):
    embeddings = write(tmp_path / "e", [rows], **options)
    table = compute_scores(embeddings.read_part(0))
    assert table.schema.names == get_score_columns(embeddings.header)
    return table.to_pylist()


def test_compute_scores_matches_measures(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "BLOCK", 3)
    images, texts = gaussians(8, 1), gaussians(8, 2)
    found = score_rows(tmp_path, pairs(images, texts))
    assert [one["index"] for one in found] == list(range(8))
    assert [one["caption"] for one in found] == [f"caption {n}" for n in range(8)]
    cosine = (images.mean.double() * texts.mean.double()).sum(-1)
    expected = {
        "csd": csd(images.to(torch.float64), texts.to(torch.float64)),
        "cosine": cosine / images.mean.double().norm(dim=1) / texts.mean.double().norm(dim=1),
        "image_uncertainty": images.uncertainty,
        "text_uncertainty": texts.uncertainty,
        "log_inclusion": log_inclusion(images.to(torch.float64), texts.to(torch.float64)),
    }
    for name, values in expected.items():
        assert [one[name] for one in found] == pytest.approx(values.tolist(), rel=1e-5, abs=1e-6), name


def test_compute_scores_has_one_row_per_caption_or_unpaired_sample(tmp_path):
    z = gaussians(7)
    rows = [
        row(2, "image", z[0], "first of two", correct=True),
        row(5, "image", z[1], None, correct=False),
        row(9, "image", z[2], "one"),
        row(1, "text", z[3], "alone"),
        row(2, "text", z[4], "first of two"),
        row(2, "text", z[5], "second of two"),
        row(9, "text", z[6], "one"),
    ]
    found = score_rows(tmp_path, rows, columns={"correct": "bool"})
    found_rows = [
        (one["index"], one["caption"], one["image_row"], one["text_row"], one["correct"]) for one in found
    ]
    assert found_rows == [
        (1, "alone", None, 3, None),
        (2, "first of two", 0, 4, True),
        (2, "second of two", 0, 5, True),
        (5, None, 1, None, False),
        (9, "one", 2, 6, None),
    ]
    assert [one["csd"] is None for one in found] == [True, False, False, True, False]
    assert [one["image_uncertainty"] is None for one in found] == [True, False, False, False, False]
    assert [one["text_uncertainty"] is None for one in found] == [False, False, False, True, False]
    assert found[2]["csd"] == pytest.approx(csd(z[0], z[5]).item(), rel=1e-5)
    assert found[1]["pixel_digest"] == f"{2:016x}"


def test_compute_scores_without_variances_has_no_inclusion(tmp_path):
    z = gaussians(4)
    trace = score_rows(tmp_path / "trace", pairs(z[:2], z[2:]), variances="trace")
    points = Gaussian.point(z.mean)
    point = score_rows(tmp_path / "point", pairs(points[:2], points[2:]))
    for found in (trace, point):
        assert [one["log_inclusion"] for one in found] == [None, None]
        assert all(math.isfinite(one["csd"]) for one in found)


def test_compute_scores_renames_extra_columns_with_reserved_names(tmp_path):
    z = gaussians(2)
    rows = [{**one, "csd": "theirs"} for one in pairs(z[:1], z[1:])]
    (found,) = score_rows(tmp_path, rows, columns={"csd": "string"})
    assert found["csd_"] == "theirs"
    assert found["csd"] == pytest.approx(csd(z[0], z[1]).item(), rel=1e-5)
