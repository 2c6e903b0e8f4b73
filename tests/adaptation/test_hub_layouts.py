"""`adapt` on CLIP and SigLIP folders in the hub's layout, as encoders and as finished models."""

import numpy as np
import pytest
import torch
from PIL import Image

import prolip
from prolip.adaptation import AdaptConfig
from prolip.adaptation.adapt import adapt
from tests.adaptation.pictures import draw, write_shard

pytest.importorskip("transformers")
from tests.adaptation.hub_layouts import read_features, write_layout

OPTIONS = {
    "captions": ("json:caption",),
    "dim": 8,
    "batch_size": 16,
    "epochs": 2.0,
    "image_views": 1,
    "text_crops": 1,
    "progress": False,
}
TEXTS = ["a red circle", "the blue star", "a"]
FEATURE_DIMS = {"clip": 24, "siglip": 48}


@pytest.fixture(scope="module", params=["clip", "siglip"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return write_layout(kind, tmp_path_factory.mktemp("hub") / "owner" / kind)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_shard(tmp_path_factory.mktemp("data") / "a.tar", 60)


def test_means_are_transformers_from_photos_and_texts(kind, folder, generator):
    images = [
        Image.fromarray(torch.randint(0, 256, (40, 60, 3), generator=generator).byte().numpy()),
        Image.fromarray(np.kron(draw(3), np.ones((2, 2, 1), np.uint8))),
    ]
    model = prolip.load(folder, device="cpu")
    found = model.embed_images(images).mean, model.embed_texts(TEXTS).mean
    for ours, theirs in zip(found, read_features(kind, folder, images, TEXTS), strict=True):
        torch.testing.assert_close(ours, torch.nn.functional.normalize(theirs, dim=-1), rtol=0, atol=1e-5)
        assert (ours * torch.nn.functional.normalize(theirs, dim=-1)).sum(1).min() > 0.999


def test_towers_are_encoders(kind, folder, data, tmp_path):
    model = adapt(data, tmp_path / "out", AdaptConfig(image_encoder=str(folder), **OPTIONS))
    assert model.config.image.encoder.dim == model.config.text.encoder.dim == FEATURE_DIMS[kind]
    loaded = prolip.load(tmp_path / "out", device="cpu")
    for one, other in zip(
        (model.embed_images([draw(0)]), model.embed_texts(TEXTS)),
        (loaded.embed_images([draw(0)]), loaded.embed_texts(TEXTS)),
        strict=True,
    ):
        assert one.mean.equal(other.mean)
        assert one.uncertainty.equal(other.uncertainty)
        assert one.uncertainty.isfinite().all()


def test_towers_of_two_models_are_encoders_of_one(kind, folder, data, tmp_path):
    other = "siglip" if kind == "clip" else "clip"
    text = write_layout(other, tmp_path / other)
    config = AdaptConfig(image_encoder=str(folder), text_encoder=str(text), **OPTIONS)
    model = adapt(data, tmp_path / "out", config)
    dims = model.config.image.encoder.dim, model.config.text.encoder.dim
    assert dims == (FEATURE_DIMS[kind], FEATURE_DIMS[other])
    assert model.embed_texts(TEXTS).uncertainty.isfinite().all()


def test_frozen_means_are_equal_to_the_bit(kind, folder, data, tmp_path):
    base = prolip.load(folder, device="cpu")
    config = AdaptConfig(image_encoder=str(folder), means="frozen", **OPTIONS)
    adapt(data, tmp_path / "out", config)
    model = prolip.load(tmp_path / "out", device="cpu")
    images = [draw(n) for n in range(4)]
    assert model.embed_images(images).mean.equal(base.embed_images(images).mean)
    z = model.embed_texts(TEXTS)
    assert z.mean.equal(base.embed_texts(TEXTS).mean)
    assert len(z.uncertainty.unique()) == len(TEXTS)
    parameters, old = model.logit_parameters, base.logit_parameters
    assert parameters.scale == pytest.approx(old.scale)
    assert parameters.bias == (None if kind == "clip" else pytest.approx(old.bias))
    assert not parameters.reads_variances
