"""The encoder for mteb: its embeddings without mteb, and a small task with the library where it is installed."""

import numpy as np
import pytest
import torch

from prolip.data import open_data
from prolip.extras import MissingExtraError
from prolip.integrations import MtebEncoder

TEXTS = ["a red circle", "a blue star above a green square", "a thing"]


def test_encode_gives_means_batch_by_batch(scenes_tiny, images):
    encoder = MtebEncoder(scenes_tiny)
    batches = [{"text": TEXTS[:2]}, {"text": TEXTS[2:]}]
    np.testing.assert_allclose(encoder.encode(batches), scenes_tiny.embed_texts(TEXTS).mean, atol=1e-6)
    pictures = encoder.encode([{"image": images}])
    np.testing.assert_allclose(pictures, scenes_tiny.embed_images(images).mean, atol=1e-6)
    assert encoder.encode([]).shape == (0, 64)


def test_encode_of_images_with_texts_is_between_both(scenes_tiny, images):
    (row,) = MtebEncoder(scenes_tiny).encode([{"image": images[:1], "text": TEXTS[:1]}])
    image, text = scenes_tiny.embed_images(images[:1]).mean[0], scenes_tiny.embed_texts(TEXTS[:1]).mean[0]
    np.testing.assert_allclose(np.linalg.norm(row), 1.0, atol=1e-6)
    np.testing.assert_allclose(row @ image.numpy(), row @ text.numpy(), atol=1e-6)


def test_encode_refuses_other_modalities(scenes_tiny):
    with pytest.raises(ValueError, match="neither texts nor images, only audio"):
        MtebEncoder(scenes_tiny).encode([{"audio": [1]}])


def test_similarities_are_cosines(scenes_tiny):
    encoder = MtebEncoder(scenes_tiny)
    a, b = np.array([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    expected = torch.tensor([[0.0, 1.0], [0.5**0.5, 0.5**0.5]])
    torch.testing.assert_close(encoder.similarity(a, b), expected)
    torch.testing.assert_close(encoder.similarity_pairwise(a, b), expected.diagonal())


def test_description_without_mteb_says_how_to_install_it(scenes_tiny, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mteb", None)
    monkeypatch.setitem(__import__("sys").modules, "mteb.models", None)
    with pytest.raises(MissingExtraError, match="pip install 'mteb>=2'"):
        _ = MtebEncoder(scenes_tiny).mteb_model_meta


def test_mteb_evaluates_the_model():
    """A retrieval task of scenes, made here: mteb downloads nothing. Its recall is that of the cosines of means."""
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from mteb.models.models_protocols import EncoderProtocol

    from tests.integrations.mteb_task import make_task

    source = open_data("scenes:simple,size=48,length=12")
    samples = [source.read(i) for i in range(len(source))]
    images, captions = [sample.image for sample in samples], [sample.captions[0] for sample in samples]
    encoder = MtebEncoder("scenes-tiny", device="cpu")
    assert isinstance(encoder, EncoderProtocol)
    result = mteb.evaluate(encoder, make_task(images, captions), cache=None)
    (scores,) = result.task_results[0].scores["test"]
    cosines = encoder.model.embed_texts(captions).mean @ encoder.model.embed_images(images).mean.mT
    recall = (cosines.argmax(1) == torch.arange(len(images))).float().mean().item()
    assert recall > 0.3
    assert scores["recall_at_1"] == pytest.approx(recall, abs=1e-4)
    assert result.model_name == "prolip/scenes-tiny"
