"""AutoModel, AutoConfig and AutoProcessor of a model folder, against `embed_*`."""

import numpy as np
import pytest
import torch

import prolip

library = pytest.importorskip("transformers")
from prolip.integrations import (  # noqa: E402
    ProLIPConfig,
    ProLIPModel,
    ProLIPProcessor,
    register_with_transformers,
)

TEXTS = ["a red circle", "a blue star above a green square", ""]


@pytest.fixture(scope="module")
def folder(scenes_tiny, tmp_path_factory):
    register_with_transformers()
    register_with_transformers()
    return str(scenes_tiny.save_pretrained(tmp_path_factory.mktemp("transformers")))


@pytest.fixture(scope="module")
def opened(folder):
    return library.AutoModel.from_pretrained(folder)


def test_auto_classes_open_a_model_folder(folder, opened, scenes_tiny, images):
    assert isinstance(library.AutoConfig.from_pretrained(folder), ProLIPConfig)
    assert isinstance(opened, ProLIPModel)
    processor = library.AutoProcessor.from_pretrained(folder)
    assert isinstance(processor, ProLIPProcessor)
    with torch.no_grad():
        output = opened(**processor(images=images, text=TEXTS))
    pictures, texts = scenes_tiny.embed_images(images), scenes_tiny.embed_texts(TEXTS)
    torch.testing.assert_close(output.image_embeds, pictures.mean)
    torch.testing.assert_close(output.text_embeds, texts.mean)
    torch.testing.assert_close(output.image_log_var, pictures.log_var)
    torch.testing.assert_close(output.text_uncertainty, texts.uncertainty)
    expected = scenes_tiny.match_probability_matrix(pictures, texts)
    torch.testing.assert_close(output.logits_per_image.sigmoid(), expected)
    torch.testing.assert_close(output.logits_per_text, output.logits_per_image.mT)


def test_one_modality_alone(folder, opened, images):
    processor = library.AutoProcessor.from_pretrained(folder)
    with torch.no_grad():
        output = opened(**processor(text=TEXTS))
        assert set(output.keys()) == {"text_embeds", "text_log_var", "text_uncertainty"}
        output = opened(**processor(images=images[0]))
    assert output.image_embeds.shape == (1, 64)
    assert output.logits_per_image is None
    with pytest.raises(ValueError, match="pixel_values, input_ids"):
        opened()
    with pytest.raises(ValueError, match="images, text"):
        processor()


def test_processor_gives_arrays_and_decodes(folder):
    processor = library.AutoProcessor.from_pretrained(folder)
    values = processor(text=TEXTS, return_tensors="np")
    assert isinstance(values["input_ids"], np.ndarray)
    assert processor.batch_decode(processor(text=TEXTS)["input_ids"]) == TEXTS


def test_saved_by_transformers_it_is_a_model_folder(opened, scenes_tiny, tmp_path):
    opened.save_pretrained(tmp_path)
    model = prolip.load(tmp_path, device="cpu")
    assert torch.equal(model.embed_texts(TEXTS).mean, scenes_tiny.embed_texts(TEXTS).mean)
    assert library.AutoModel.from_pretrained(str(tmp_path)).num_parameters() == opened.num_parameters()


def test_from_config_draws_new_weights(folder):
    config = library.AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    first = library.AutoModel.from_config(config)
    second = library.AutoModel.from_config(config)
    assert not torch.equal(first.prolip.text.tokens.weight, second.prolip.text.tokens.weight)


def test_dtype_is_honored_and_other_keywords_are_refused(folder):
    assert library.AutoModel.from_pretrained(folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert library.AutoModel.from_pretrained(folder, dtype="float16").dtype == torch.float16
    assert library.AutoModel.from_pretrained(folder, dtype="auto").dtype == torch.float32
    with pytest.raises(ValueError, match="int8"):
        library.AutoModel.from_pretrained(folder, dtype=torch.int8)
    with pytest.raises(ValueError, match="device_map"):
        library.AutoModel.from_pretrained(folder, device_map="cpu")


def test_save_refuses_keywords(opened, tmp_path):
    with pytest.raises(ValueError, match="max_shard_size"):
        opened.save_pretrained(tmp_path, max_shard_size="1GB")
