"""SentenceTransformer with a ProLIP model, against `embed_texts` and `embed_images`."""

import json

import numpy as np
import pytest
import torch

import prolip
from prolip import cli

library = pytest.importorskip("sentence_transformers")
from prolip.integrations import GaussianEncoder  # noqa: E402

TEXTS = ["a red circle", "a blue star above a green square", "", "a thing"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    cli.main(["convert", "scenes-tiny", "--to", "sentence-transformers", "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def opened(folder):
    return library.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def test_encode_gives_means(opened, scenes_tiny, images):
    texts, pictures = scenes_tiny.embed_texts(TEXTS), scenes_tiny.embed_images(images)
    np.testing.assert_allclose(opened.encode(TEXTS), texts.mean, atol=1e-6)
    np.testing.assert_allclose(opened.encode(TEXTS, batch_size=2), texts.mean, atol=1e-6)
    np.testing.assert_allclose(opened.encode(images), pictures.mean, atol=1e-6)
    np.testing.assert_allclose(opened.encode(TEXTS[0]), texts.mean[0], atol=1e-6)
    cosines = opened.similarity(opened.encode(images), opened.encode(TEXTS))
    torch.testing.assert_close(cosines, pictures.mean @ texts.mean.mT, rtol=0, atol=1e-6)
    assert opened.get_embedding_dimension() == 64
    assert opened.max_seq_length == 32


def test_encode_puts_prompts_before_texts(opened, scenes_tiny):
    expected = scenes_tiny.embed_texts(["a photo of a red circle"])
    np.testing.assert_allclose(
        opened.encode(["a red circle"], prompt="a photo of "), expected.mean, atol=1e-6
    )


def test_uncertainty_is_an_output_and_a_method(opened, scenes_tiny, images):
    texts = scenes_tiny.embed_texts(TEXTS)
    rows = opened.encode(TEXTS, output_value=None)
    torch.testing.assert_close(torch.stack([row["uncertainty"] for row in rows]), texts.uncertainty)
    torch.testing.assert_close(torch.stack([row["log_var"] for row in rows]), texts.log_var)
    z = opened[0].embed(TEXTS)
    assert torch.equal(z.mean, texts.mean)
    assert torch.equal(opened[0].embed(images).log_var, scenes_tiny.embed_images(images).log_var)
    assert opened[0].embed([]).shape == (0, 64)


def test_images_may_be_paths_and_dicts(opened, scenes_tiny, images, tmp_path):
    path = tmp_path / "red.png"
    images[0].save(path)
    expected = scenes_tiny.embed_images(images[:1]).mean[0]
    np.testing.assert_allclose(opened.encode(str(path)), expected, atol=1e-6)
    np.testing.assert_allclose(opened.encode([{"image": images[0]}])[0], expected, atol=1e-6)


def test_mixed_inputs_are_refused(opened, images):
    with pytest.raises(ValueError, match="mixes multiple modalities"):
        opened.encode([images[0], "a red circle"])


def test_the_folder_is_a_model_folder_too(folder, scenes_tiny):
    model = prolip.load(folder, device="cpu")
    assert torch.equal(model.embed_texts(TEXTS).mean, scenes_tiny.embed_texts(TEXTS).mean)
    (module,) = json.loads((folder / "modules.json").read_text())
    assert module["type"] == f"{GaussianEncoder.__module__}.{GaussianEncoder.__qualname__}"


def test_save_and_open_again(opened, tmp_path):
    opened.save(str(tmp_path / "again"))
    again = library.SentenceTransformer(str(tmp_path / "again"), trust_remote_code=True, device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), opened.encode(TEXTS))
    with pytest.raises(ValueError, match="safetensors"):
        opened[0].save(str(tmp_path / "third"), safe_serialization=False)


def test_a_model_in_memory_needs_no_folder(scenes_tiny):
    model = library.SentenceTransformer(modules=[GaussianEncoder(scenes_tiny)], device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS), scenes_tiny.embed_texts(TEXTS).mean, atol=1e-6)


def test_the_folder_needs_trust(folder):
    """The library's rule for classes that are not its own: said in docs/integrations.md."""
    with pytest.raises(ValueError, match="trust_remote_code"):
        library.SentenceTransformer(str(folder), device="cpu")
