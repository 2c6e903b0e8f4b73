"""Fine-tuning a tiny CLIP, laid out as in the hub's cache, into a model of the likelihood: trained, resumed, saved."""

import json
import shutil

import pytest
import torch

import prolip
from prolip.training import read_metrics
from prolip.training.config import ModelSpec
from prolip.training.model_setup import make_model
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import make_probabilistic
from tests.golden import FIXTURES
from tests.weights.formats.test_release import clip_words
from tests.weights.test_hub import cache  # noqa: F401  (a fixture)

HUB_ID = "apple/DFN5B-CLIP-ViT-H-14"
"""What `--pretrained clip-h14` starts from; here it is a model of 16 dimensions."""
SMALL = {
    "samples": 32, "batch_size": 8, "optimizer.warmup_steps": 2, "model.image_size": 24,
    "parallel.precision": "float32", "data.source": "scenes:simple,size=32,length=64", "data.workers": 0,
    "checkpoint.every_steps": 1,
    "checkpoint.keep_last": 9, "log.display": "none", "log.tensorboard": False, "log.every_steps": 1, "device": "cpu",
}  # fmt: skip


@pytest.fixture
def clip(cache, tmp_path):  # noqa: F811
    """The folder of a CLIP with its tokenizer, which is also at HUB_ID."""
    folder = clip_words(tmp_path / "clip", 64)
    words = json.loads((folder / "tokenizer.json").read_text())
    words["model"]["vocab"] |= {
        f"word{number}": number for number in range(4, 62)
    }  # no gaps: a mask token is added
    (folder / "tokenizer.json").write_text(json.dumps(words))
    for path in (FIXTURES / "open_clip" / "clip").iterdir():
        shutil.copy(path, folder)
    cache(HUB_ID, folder)
    return folder


def finetune(out, variant="likelihood", **changes):
    stages = {} if variant == "nll" else {"initial_stages.0.samples": 16}
    return prolip.train("finetune", SMALL | stages | changes, pretrained="clip-h14", variant=variant, out=out)


def same_weights(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_clip_becomes_a_likelihood_model_and_resumes_exactly(clip, tmp_path):
    folder = finetune(tmp_path / "run")
    model = prolip.load(folder, device="cpu")
    saved = json.loads((folder / "model" / "config.json").read_text())["model"]
    assert saved["contrastive_loss"] == "likelihood"
    assert saved["image"]["isotropic"] is saved["text"]["isotropic"] is True
    terms = [{key for key in line if key.startswith("loss/")} for line in read_metrics(folder)]
    assert terms == [{"loss/clip"}] * 2 + [{"loss/likelihood", "loss/inclusion", "loss/masked_images"}] * 2
    images = model.embed_images([torch.zeros(3, 24, 24, dtype=torch.uint8).numpy().transpose(1, 2, 0)] * 2)
    probability = model.match_probability(images, model.embed_texts(["a cat", "a dog"]))
    assert torch.isfinite(probability).all()
    assert ((probability > 0) & (probability < 1)).all()
    for z in (images, model.embed_texts("a cat")):
        assert (z.log_var == z.log_var[:, :1]).all(), "one width a sample"

    for name in ("checkpoints/step-000000004", "model"):
        shutil.rmtree(folder / name)
    prolip.train(folder)  # continues after step 3
    assert same_weights(prolip.load(folder, device="cpu"), model)


@pytest.mark.parametrize("variant", ["ppcl-matched", "nll"])
def test_other_variants_make_sigmoid_models_with_one_width(clip, tmp_path, variant):
    model = prolip.load(finetune(tmp_path / "run", variant, samples=24), device="cpu")
    assert model.config.contrastive_loss == "sigmoid"
    assert model.image.log_var.out_features == model.text.log_var.out_features == 1


def test_start_has_the_means_of_the_papers_start(clip):
    before = open_model(clip).model
    paper, _ = make_probabilistic(before, torch.Generator().manual_seed(3))
    spec = ModelSpec(
        pretrained=HUB_ID,
        isotropic=True,
        contrastive_loss="likelihood",
        init_logit_bias=-5.0,
        init_log_var=-4.0,
    )
    ours = make_model(spec, seed=3)
    pixels = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        images = ours.encode_image(pixels)
        assert torch.equal(images.mean, paper.encode_image(pixels).mean)
    torch.testing.assert_close(images.log_var, torch.full((2, 16), -4.0))
    torch.testing.assert_close(
        ours.match_probability(images, images), torch.full((2,), 0.5), atol=1e-4, rtol=0
    )
    assert ours.logit_bias.item() == -5.0
    assert ours.config.init.log_var == -4.0


def test_concentration_of_the_start_may_be_chosen(clip):
    spec = ModelSpec(pretrained=HUB_ID, isotropic=True, contrastive_loss="likelihood", init_scale=3.0)
    model = make_model(spec, seed=0)
    with torch.no_grad():
        z = model.encode_image(torch.zeros(1, 3, 24, 24))
    torch.testing.assert_close(model.temperature.concentration(z), torch.tensor([3.0]), rtol=1e-4, atol=0)


def test_likelihood_model_is_trained_on_as_it_is(clip, tmp_path):
    """Its own kind of heads may be named; a model of PPCL can't be given others."""
    likelihood = make_model(ModelSpec(pretrained=HUB_ID, isotropic=True, contrastive_loss="likelihood"), 0)
    likelihood.save_pretrained(tmp_path / "ours")
    ppcl = make_model(ModelSpec(pretrained=HUB_ID), 0)
    ppcl.save_pretrained(tmp_path / "paper")
    for spec in ({}, {"isotropic": True, "contrastive_loss": "likelihood"}):
        assert same_weights(make_model(ModelSpec(pretrained=str(tmp_path / "ours"), **spec), 1), likelihood)
    for field, value in (("isotropic", True), ("contrastive_loss", "likelihood"), ("init_log_var", -3.0)):
        with pytest.raises(ValueError, match=f"model.{field} {value} can't be set"):
            make_model(ModelSpec(pretrained=str(tmp_path / "paper"), **{field: value}), 0)
