"""Predictions image by image, with their confidence."""

import csv

import pytest
import torch

from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.embedder import Embedder, encode_images
from prolip.evaluation import zeroshot
from prolip.evaluation.configs import ZeroShotConfig
from prolip.evaluation.predictions import COLUMNS
from prolip.measures.nearest import similarity
from prolip.mixture import pool
from prolip.model.create import create
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.source import make_tokenizer
from prolip.scenes.writer import write_dataset
from prolip.zeroshot.prompts import embed_class_prompts


@pytest.fixture(scope="module")
def model():
    return create("nano", make_tokenizer()).eval()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes")
    write_dataset(out, SceneDatasetSpec(image_size=32, num_train=1, num_test=24))
    return open_labeled(out / "wds_scenes-shape_test")


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_rows_match_the_model_predictions(model, data, tmp_path, by):
    result = zeroshot.evaluate_zeroshot(
        Embedder(model=model), data, ZeroShotConfig(rank_by=by), predictions_csv=tmp_path / "a.csv"
    )
    rows = read(tmp_path / "a.csv")
    encoded = encode_images(model, data.source)
    classes = pool(embed_class_prompts(model, data.class_names, data.templates))
    scores, labels = similarity(encoded.images, classes, by), data.labels(encoded.metadata)
    assert tuple(rows[0]) == COLUMNS
    assert [row["key"] for row in rows] == [fact.key for fact in encoded.metadata]
    assert [row["true_class"] for row in rows] == [data.class_names[label] for label in labels]
    assert [row["predicted_class"] for row in rows] == [
        data.class_names[answer] for answer in scores.argmax(1)
    ]
    assert sum(int(row["correct"]) for row in rows) == round(result.top1.value * len(rows))
    scale, bias, *_ = Embedder(model=model).logit_parameters
    expected = torch.sigmoid(scale * scores.amax(1).double() + bias)
    assert [float(row["match"]) for row in rows] == pytest.approx(expected.tolist(), rel=1e-4)
    softmax = torch.softmax(scale * scores.double(), 1).amax(1)
    assert [float(row["max_softmax"]) for row in rows] == pytest.approx(softmax.tolist(), rel=1e-4)
    uncertainty = encoded.images.uncertainty.tolist()
    assert [float(row["uncertainty"]) for row in rows] == pytest.approx(uncertainty, rel=1e-4)
    scale = result.calibration.softmax.fitted.scale
    trust = torch.softmax(scale * scores.double(), 1).amax(1)
    assert [float(row["confidence"]) for row in rows] == pytest.approx(trust.tolist(), rel=1e-3)


def test_without_uncertainty_its_cell_is_empty(data, tmp_path, model, monkeypatch):
    from prolip.gaussian import Gaussian

    image, text = model.encode_image, model.encode_text
    monkeypatch.setattr(model, "encode_image", lambda pixels: Gaussian.point(image(pixels).mean))
    monkeypatch.setattr(model, "encode_text", lambda ids: Gaussian.point(text(ids).mean))
    zeroshot.evaluate_zeroshot(Embedder(model=model), data, predictions_csv=tmp_path / "a.csv")
    assert {row["uncertainty"] for row in read(tmp_path / "a.csv")} == {""}


def test_most_confident_errors(model, data, tmp_path):
    result = zeroshot.evaluate_zeroshot(Embedder(model=model), data, predictions_csv=tmp_path / "a.csv")
    wrong = sorted(
        (row for row in read(tmp_path / "a.csv") if row["correct"] == "0"),
        key=lambda r: -float(r["confidence"]),
    )
    shown = result.most_confident_errors
    assert [entry.confidence for entry in shown] == pytest.approx(
        [float(row["confidence"]) for row in wrong[:12]], rel=1e-4
    )
    for entry in shown:
        assert entry.true_class != entry.predicted_class
        assert data.source.read(entry.index).key == entry.key
        assert data.class_names[int(data.source.read(entry.index).extra["cls"])] == entry.true_class
