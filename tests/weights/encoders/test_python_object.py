"""Python objects as encoders."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import prolip
from prolip.adaptation import Encoders
from prolip.adaptation.features import make_feature_model
from prolip.weights.encoders import open_image_encoder, open_text_encoder
from prolip.weights.encoders.base import check_features
from prolip.weights.encoders.python_object import make_byte_tokenizer, make_image_encoder, make_text_encoder
from tests.weights.encoders.tiny import SIZE, Images, Texts


class Recorder:
    """Returns fixed features, and keeps what it got."""

    name, digest, image_size = "recorder", "7", 8

    def __init__(self, features=None):
        self.got, self.features = [], features

    def encode(self, batch):
        self.got.append(batch)
        return np.ones((len(batch), 3)) if self.features is None else self.features(batch)


def load(name):
    raise AssertionError(name)


def test_an_image_object_gets_the_bytes_of_resized_images(generator):
    recorder = Recorder()
    model = make_feature_model(Encoders.from_objects(recorder, Texts()), "image")
    pixels = torch.randint(0, 256, (8, 8, 3), generator=generator, dtype=torch.uint8).numpy()
    model.embed_images([Image.fromarray(pixels)])
    batch = recorder.got[-1]
    assert (batch.dtype, batch.shape) == (np.uint8, (1, 8, 8, 3))
    assert (batch[0] == pixels).all()


@pytest.mark.parametrize(
    "texts", [["a cat", "", "Zürich  是 \U0001f600!", "[PAD] A"], [f"{'very ' * 20}long", "x"]]
)
def test_a_text_object_gets_the_texts(texts):
    recorder = Recorder()
    encoder = make_text_encoder(recorder)
    encoder.encode(encoder.tokenizer(texts))
    assert recorder.got[-1] == [" ".join(text.split()) for text in texts]


def test_features_equal_what_the_object_returns():
    images, texts = Images(), Texts()
    encoders = Encoders.from_objects(images, texts)
    pixels = np.random.default_rng(0).integers(0, 256, (3, SIZE, SIZE, 3)).astype(np.uint8)
    z = make_feature_model(encoders, "image").embed_images([Image.fromarray(p) for p in pixels])
    np.testing.assert_allclose(z.mean, images.encode(pixels), rtol=1e-5)
    captions = ["a red circle", "a big blue square above the star", "green"]
    z = make_feature_model(encoders, "text").embed_texts(captions)
    np.testing.assert_allclose(z.mean, texts.encode(captions), rtol=1e-5, atol=1e-5)


def test_byte_tokenizer_has_one_id_per_byte():
    tokenizer = make_byte_tokenizer()
    assert tokenizer.config.vocab_size == 257
    ids = tokenizer(["aü", "abc"])
    assert ids.shape == (2, 3)
    assert (ids > 0).all()
    assert tokenizer(["x" * 600]).shape == (1, 512)


def test_digest_changes_with_name_digest_and_size():
    def digest(**changes):
        fields = {"name": "a", "digest": "1", "image_size": 8, "encode": lambda b: np.ones((len(b), 2))}
        return make_image_encoder(SimpleNamespace(**{**fields, **changes})).config.digest

    digests = [digest(), digest(name="b"), digest(digest="2"), digest(image_size=16)]
    assert len(set(digests)) == 4
    assert digest() == digests[0]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (lambda b: np.ones((len(b) + 1, 3)), r"\(2, 3\) for 1 inputs"),
        (lambda b: np.ones(len(b)), r"must be \(B, F\)"),
        (lambda b: ["text"] * len(b), "numbers"),
        (lambda b: None, r"must be \(B, F\)"),
        (lambda b: np.full((len(b), 3), np.nan), "NaN or infinite"),
        (lambda b: np.full((len(b), 3), np.inf), "NaN or infinite"),
        (lambda b: np.ones((len(b), 0)), "no features"),
    ],
)
def test_bad_features_are_refused(features, message):
    def encode():
        return make_image_encoder(Recorder(features)).encode(torch.zeros(1, 3, 8, 8))

    with pytest.raises(ValueError, match=message) as error:
        encode()
    assert "recorder" in str(error.value)


def test_another_number_of_features_later_is_refused():
    encoder = make_image_encoder(Recorder(lambda b: np.ones((len(b), 1 + len(b)))))
    with pytest.raises(ValueError, match=r"\(3, 4\) for 3 inputs, not \(3, 2\)"):
        encoder.encode(torch.zeros(3, 3, 8, 8))


def test_check_features_returns_float32():
    config = make_image_encoder(Recorder()).config
    assert check_features(torch.ones(2, 3, dtype=torch.float64), 2, config).dtype == torch.float32


@pytest.mark.parametrize("encoder", [object(), 3, SimpleNamespace(name="a", digest="b")])
def test_what_is_no_encoder_is_refused(encoder):
    for open_encoder in (open_image_encoder, open_text_encoder):
        with pytest.raises(TypeError, match="name, digest and encode"):
            open_encoder(encoder, load)


def test_a_name_of_an_object_cannot_be_opened():
    for open_encoder in (open_image_encoder, open_text_encoder):
        with pytest.raises(ValueError, match="set_encoders"):
            open_encoder("python:cells", load)


def test_load_attaches_objects_and_refuses_others(tmp_path):
    encoders = Encoders.from_objects(Images(), Texts())
    make_feature_model(encoders, "image").save_pretrained(tmp_path)
    model = prolip.load(tmp_path)
    with pytest.raises(ValueError, match="python:cells"):
        model.embed_images([Image.new("RGB", (8, 8))])
    assert model.set_encoders(image=Images(), text=Texts()) is model
    assert model.embed_images([Image.new("RGB", (8, 8))]).mean.shape == (1, 24)
    other = Images()
    other.digest = "2"
    with pytest.raises(ValueError, match="meaningless"):
        model.set_encoders(image=other)
    assert model.set_encoders().embed_images([Image.new("RGB", (8, 8))]).mean.shape == (1, 24)


def test_load_refuses_encoders_of_a_model_without(nano_path):
    with pytest.raises(ValueError, match="no frozen encoders"):
        prolip.load(nano_path).set_encoders(image=Images())
