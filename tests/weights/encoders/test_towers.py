"""Towers of finished models as encoders."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

import prolip
from prolip.weights.encoders import open_image_encoder, open_text_encoder
from tests.adaptation.pictures import draw
from tests.golden import FIXTURES

CAPTIONS = ["a red circle", "a thing", ""]


def load(name):
    return prolip.load(name, device="cpu")


def test_features_are_the_means_before_normalization(nano, nano_path):
    image, text = open_image_encoder(nano_path, load), open_text_encoder(nano_path, load)
    pixels = torch.stack([nano.preprocess(draw(i)) for i in range(3)])
    with torch.no_grad():
        assert torch.equal(normalize(image.encode(pixels), dim=-1), nano.encode_image(pixels).mean)
        ids = nano.tokenize(CAPTIONS)
        assert torch.equal(normalize(text.encode(ids), dim=-1), nano.encode_text(ids).mean)
    assert (image.config.dim, text.config.dim) == (32, 32)
    assert image.preprocessing == nano.config.image.preprocessing


@pytest.mark.parametrize("name", ["open_clip/clip", "open_clip/siglip"])
def test_clip_and_siglip_are_encoders(name):
    model = load(FIXTURES / name)
    if model.tokenizer is None:
        with pytest.raises(ValueError, match="tokenizer"):
            open_image_encoder(str(FIXTURES / name), load)
        return
    encoder = open_image_encoder(str(FIXTURES / name), load)
    size = model.config.image.preprocessing.size
    with torch.no_grad():
        pixels = torch.randn(2, 3, size, size)
        assert torch.equal(normalize(encoder.encode(pixels), dim=-1), model.encode_image(pixels).mean)


def test_each_tower_has_a_digest_of_its_own(nano, nano_path, tmp_path):
    digests = [open(nano_path, load).config.digest for open in (open_image_encoder, open_text_encoder)]
    with torch.no_grad():
        next(iter(nano.text.parameters())).add_(1e-3)
    changed = str(nano.save_pretrained(tmp_path))
    assert open_image_encoder(changed, load).config.digest == digests[0]
    assert open_text_encoder(changed, load).config.digest != digests[1]
    assert digests[0] != digests[1]


def test_unknown_names_are_refused():
    for open_encoder in (open_image_encoder, open_text_encoder):
        with pytest.raises(FileNotFoundError, match=r"no encoder no-such-encoder.*extra photos"):
            open_encoder("no-such-encoder", load)


def test_names_are_absolute(nano_path, monkeypatch):
    folder = Path(nano_path)
    monkeypatch.chdir(folder.parent)
    assert open_image_encoder(folder.name, load).config.name == str(folder)
