"""Tests of the calibration that a database or a model folder keeps."""

import json
import math
from dataclasses import replace

import pytest
import torch

from prolip.retrieval.calibration import (
    CALIBRATION_FILE,
    NUM_THRESHOLDS,
    Calibration,
    ProbabilityErrors,
    read_calibration,
)

ERRORS = ProbabilityErrors(ece=0.1, brier=0.2, log_loss=0.3)


def make_calibration(**changes):
    values = {
        "identity": "0123456789abcdef", "data": "held-out", "fingerprint": "ff", "labels": "pairs", "num_images": 50,
        "num_pairs": 200, "texts_per_image": 4.0, "prior": 0.02, "scale": 2.0, "bias": 5.0, "errors_before": None,
        "errors_after": ERRORS,
        "thresholds": tuple(-k / 10 if k <= 98 else None for k in range(1, NUM_THRESHOLDS + 1)),
    }  # fmt: skip
    return Calibration(**(values | changes))


def test_json_there_and_back(tmp_path):
    calibration = make_calibration(errors_before=ERRORS)
    calibration.write(tmp_path / "new")
    assert read_calibration(tmp_path / "new") == calibration
    assert read_calibration(tmp_path / "new", calibration.identity) == calibration
    assert [path.name for path in (tmp_path / "new").iterdir()] == [CALIBRATION_FILE]
    assert read_calibration(tmp_path) is None


def test_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    make_calibration().write(tmp_path)

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        make_calibration(scale=3.0).write(tmp_path)
    monkeypatch.undo()
    assert read_calibration(tmp_path).scale == 2.0
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]


def test_calibration_of_another_model_is_refused(tmp_path):
    make_calibration().write(tmp_path)
    with pytest.raises(ValueError, match=r"another model \(0123456789abcdef, not fedc"):
        read_calibration(tmp_path, "fedcba9876543210")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:50], "damaged"),
        (lambda text: "[]", "must be an object"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version 2, but this prolip reads version 1"),
        (lambda text: text.replace('"scale": 2.0', '"scale": NaN'), "scale"),
        (lambda text: text.replace('"scale": 2.0', '"scale": -2.0'), "scale must be positive"),
        (lambda text: text.replace('"scale": 2.0', '"scale": "2"'), "scale must be a number"),
        (lambda text: text.replace('"prior": 0.02', '"prior": 1.0'), "prior"),
        (lambda text: text.replace('"pairs"', '"couples"'), "labels"),
        (lambda text: text.replace("-0.1,", ""), "thresholds must be 99"),
        (lambda text: text.replace("-0.1,", "Infinity,"), "thresholds"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path, change, message):
    (tmp_path / CALIBRATION_FILE).write_text(change(make_calibration().to_json()))
    with pytest.raises(ValueError, match=message) as caught:
        read_calibration(tmp_path)
    assert str(tmp_path / CALIBRATION_FILE) in str(caught.value)
    assert "prolip calibrate" in str(caught.value)


def test_probability_is_that_of_bayes():
    """p(match | s) = pi L / (pi L + 1 - pi) with the likelihood ratio L = exp(scale s + bias)."""
    calibration, logits = make_calibration(), torch.tensor([-4.0, -2.5, 0.0])
    for prior in (1e-6, 0.1, 0.9):
        for s, found in zip(logits, calibration.match_logits(logits, prior).sigmoid(), strict=True):
            ratio = math.exp(2.0 * s + 5.0)
            assert found == pytest.approx(prior * ratio / (prior * ratio + 1 - prior))
    with pytest.raises(ValueError, match="prior"):
        calibration.match_logits(logits, 0.0)


def test_prior_is_one_match_in_the_database():
    calibration = make_calibration()
    assert calibration.get_prior("text", 2000) == 1 / 2000
    assert calibration.get_prior("image", 2000) == 4 / 2000
    assert calibration.get_prior("text", 0) == calibration.get_prior("image", 5) == 0.5
    judged = replace(calibration, labels="judgements", prior=0.3, thresholds=())
    assert judged.get_prior("text", 10**9) == 0.3


def test_threshold_of_a_coverage_is_rounded_up_to_a_percent():
    calibration = make_calibration()
    assert calibration.get_threshold(0.9) == -9.0
    assert calibration.get_threshold(0.901) == -9.1
    assert calibration.get_threshold(0.07) == -0.7
    for coverage in (0.985, 0.995):
        with pytest.raises(ValueError, match=r"50 held-out images: at most 0\.98"):
            calibration.get_threshold(coverage)
    with pytest.raises(ValueError, match="judgements, which have no thresholds"):
        make_calibration(thresholds=()).get_threshold(0.9)


def test_json_has_no_date_and_is_deterministic():
    assert make_calibration().to_json() == make_calibration().to_json()
    assert set(json.loads(make_calibration().to_json())) == set(vars(make_calibration()))
