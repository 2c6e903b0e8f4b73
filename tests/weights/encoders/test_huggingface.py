"""Encoders in the folders of transformers."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from prolip.weights.encoders import open_image_encoder, open_text_encoder
from tests.weights.encoders import tiny

transformers = pytest.importorskip("transformers")
CAPTIONS = ["a red circle above the star", "blue", "a small green square left of a big circle and below"]


def load(name):
    raise AssertionError(name)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny.write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return tiny.write_vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    return tiny.write_resnet(tmp_path_factory.mktemp("resnet"))


def test_text_features_are_mean_and_maximum_of_the_models_own_tokens(bert):
    encoder = open_text_encoder(bert, load)
    model, tokenizer = (
        transformers.AutoModel.from_pretrained(bert),
        transformers.AutoTokenizer.from_pretrained(bert),
    )
    features = encoder.encode(encoder.tokenizer(CAPTIONS))
    for row, caption in enumerate(CAPTIONS):
        with torch.no_grad():
            tokens = model(**tokenizer(caption, return_tensors="pt")).last_hidden_state[0]
        torch.testing.assert_close(
            features[row], torch.cat([tokens.mean(0), tokens.amax(0)]), rtol=0, atol=1e-5
        )
    assert encoder.config.dim == 32


def test_padding_does_not_change_text_features(bert):
    encoder = open_text_encoder(bert, load)
    together = encoder.encode(encoder.tokenizer(CAPTIONS))
    alone = torch.cat([encoder.encode(encoder.tokenizer([caption])) for caption in CAPTIONS])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_long_texts_are_cut_to_the_context(bert):
    encoder = open_text_encoder(bert, load)
    assert encoder.tokenizer(["red " * 100]).shape == (1, 32)
    assert encoder.encode(encoder.tokenizer(["red " * 100])).isfinite().all()


def test_image_features_of_tokens(vit, generator):
    encoder = open_image_encoder(vit, load)
    image = Image.fromarray(torch.randint(0, 256, (30, 40, 3), generator=generator).byte().numpy())
    processor = transformers.ViTImageProcessor.from_pretrained(vit)
    pixels = torch.from_numpy(np.asarray(processor(image, return_tensors="np").pixel_values))
    with torch.no_grad():
        tokens = transformers.AutoModel.from_pretrained(vit)(pixel_values=pixels).last_hidden_state[0]
    features = encoder.encode(pixels)
    torch.testing.assert_close(features[0], torch.cat([tokens.mean(0), tokens.amax(0)]), rtol=0, atol=1e-5)
    assert encoder.preprocessing.size == tiny.SIZE


def test_image_features_of_a_map(resnet, generator):
    encoder = open_image_encoder(resnet, load)
    pixels = torch.randn(2, 3, tiny.SIZE, tiny.SIZE, generator=generator)
    with torch.no_grad():
        maps = transformers.AutoModel.from_pretrained(resnet)(pixel_values=pixels).last_hidden_state
    features = encoder.encode(pixels)
    torch.testing.assert_close(features[:, :16], maps.mean((2, 3)), rtol=0, atol=1e-5)
    assert features.shape == (2, 32)


def test_names_of_transformers_models_may_have_a_prefix(bert):
    prefixed = open_text_encoder(f"transformers:{bert}", load)
    assert prefixed.config.name == f"transformers:{bert}"
    assert prefixed.config.digest == open_text_encoder(bert, load).config.digest


@pytest.mark.slow
def test_the_mean_over_tokens_is_the_embedding_of_sentence_transformers(bert, tmp_path):
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    network = modules.Transformer(str(bert))
    pooled = modules.Pooling(network.get_embedding_dimension())
    sentences = pytest.importorskip("sentence_transformers").SentenceTransformer(modules=[network, pooled])
    sentences.save(str(tmp_path / "sentences"))
    encoder = open_text_encoder(tmp_path / "sentences", load)
    features = encoder.encode(encoder.tokenizer(CAPTIONS))
    expected = torch.from_numpy(sentences.encode(CAPTIONS))
    torch.testing.assert_close(features[:, : expected.shape[1]], expected)


@pytest.mark.parametrize("prefix", ["", "transformers:"])
def test_the_first_module_of_sentence_transformers_may_be_a_subfolder(bert, tmp_path, prefix):
    shutil.copytree(bert, tmp_path / "0_Transformer")
    listing = [{"idx": 0, "path": "0_Transformer"}, {"idx": 1, "path": "1_Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(listing))
    encoder = open_text_encoder(f"{prefix}{tmp_path}", load)
    assert encoder.config.name == f"{prefix}{tmp_path / '0_Transformer'}"
    assert encoder.config.digest == open_text_encoder(bert, load).config.digest


@pytest.mark.parametrize("content", ["{", "[]", "{}", "[1]", '[{"idx": 0}]'])
def test_a_list_of_modules_without_one_is_refused(tmp_path, content):
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(ValueError, match=r"modules\.json names no module"):
        open_text_encoder(tmp_path, load)


def test_digest_changes_with_weights_preprocessing_and_tokenizer(bert, vit, tmp_path):
    def digest(write, open_encoder, name, edit=None, **options):
        folder = write(tmp_path / name, **options)
        if edit is not None:
            file, old, new = edit
            text = (folder / file).read_text()
            assert old in text
            (folder / file).write_text(text.replace(old, new))
        return open_encoder(folder, load).config.digest

    text = [
        digest(tiny.write_bert, open_text_encoder, "same"),
        digest(tiny.write_bert, open_text_encoder, "weights", seed=1),
        digest(tiny.write_bert, open_text_encoder, "tokenizer", edit=("tokenizer.json", '"red"', '"rot"')),
    ]
    assert text[0] == open_text_encoder(bert, load).config.digest
    assert len(set(text)) == 3
    image = [
        digest(tiny.write_vit, open_image_encoder, "image"),
        digest(tiny.write_vit, open_image_encoder, "image weights", seed=1),
        digest(
            tiny.write_vit,
            open_image_encoder,
            "mean",
            edit=("preprocessor_config.json", "0.5, 0.5", "0.5, 0.4"),
        ),
    ]
    assert image[0] == open_image_encoder(vit, load).config.digest
    assert len(set(image)) == 3


def test_pickled_weights_are_refused(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="Pickled weights are not loaded"):
        open_text_encoder(folder, load)


def test_a_text_model_needs_its_tokenizer(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "copy")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        open_text_encoder(folder, load)


def test_damaged_weights_are_refused(bert, vit, tmp_path):
    for source, open_encoder in ((bert, open_text_encoder), (vit, open_image_encoder)):
        folder = shutil.copytree(source, tmp_path / source.name)
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:100])
        with pytest.raises((ValueError, OSError), match=folder.name):
            open_encoder(folder, load)


def test_weights_that_lack_a_tensor_are_refused(vit, tmp_path):
    """transformers would fill them in at random."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(vit, tmp_path / "vit")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(tensors) if "encoder" in name or "layer" in name)
    save_file({k: v for k, v in tensors.items() if k != name}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lack layers"):
        open_image_encoder(folder, load)


def test_a_text_model_as_image_encoder_is_refused(bert, vit):
    with pytest.raises(ValueError, match="image"):
        open_image_encoder(bert, load)
    with pytest.raises((ValueError, FileNotFoundError)):
        open_text_encoder(vit, load)


def test_a_model_type_that_transformers_does_not_know_is_refused(vit, tmp_path):
    folder = shutil.copytree(vit, tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "unheard-of"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="unheard-of"):
        open_image_encoder(folder, load)


@pytest.mark.parametrize(
    ("processor", "mode"),
    [
        (
            {"size": {"shortest_edge": 30}, "crop_size": {"height": 24, "width": 24}, "do_center_crop": True},
            "shortest",
        ),
        ({"size": {"shortest_edge": 24}, "crop_pct": 0.875}, "shortest"),
        ({"size": {"height": 24, "width": 24}}, "squash"),
        ({}, "squash"),
    ],
)
def test_image_processors_of_known_models_are_taken(processor, mode, vit, tmp_path):
    """Of DINOv2, ResNet and ViT, and none at all."""
    folder = shutil.copytree(vit, tmp_path / "vit")
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    preprocessing = open_image_encoder(folder, load).preprocessing
    assert (preprocessing.size, preprocessing.resize_mode) == (24, mode)


def test_half_precision_weights_are_opened_as_float32(bert, tmp_path):
    model = transformers.AutoModel.from_pretrained(bert, dtype=torch.float16)
    folder = shutil.copytree(bert, tmp_path / "half")
    model.save_pretrained(folder)
    encoder, expected = open_text_encoder(folder, load), open_text_encoder(bert, load)
    ids = encoder.tokenizer(CAPTIONS)
    torch.testing.assert_close(encoder.encode(ids), expected.encode(ids), rtol=0, atol=1e-2)
    assert encoder.config.digest != expected.config.digest
