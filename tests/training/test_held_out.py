import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.public import csd
from prolip.model.create import create
from prolip.preprocessing.images import normalize
from prolip.training.data_setup import HeldOutSamples
from prolip.training.held_out import (
    HeldOutEmbeddings,
    HeldOutEvaluator,
    compute_retrieval,
    compute_uncertainty,
    match_captions,
)

CAPTIONS = ["a red circle", "a thing", "a thing", "a small green square", "two yellow stars"]


def test_same_caption_is_equality():
    assert torch.equal(
        match_captions(["a", "b", "a"]), torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1]]).bool()
    )


def test_retrieval_against_a_loop(draw):
    images, texts = draw(30, 4), draw(30, 4)
    right = match_captions([f"caption {i // 2}" for i in range(30)])

    def nearest(one, many):
        return min(range(len(many)), key=lambda j: float(csd(one[None], many[j][None])))

    to_text = sum(bool(right[i, nearest(images[i], texts)]) for i in range(30)) / 30
    to_image = sum(bool(right[nearest(texts[j], images), j]) for j in range(30)) / 30
    found = compute_retrieval(images, texts, right)
    assert found["held_out/image_to_text_r1"] == pytest.approx(to_text)
    assert found["held_out/text_to_image_r1"] == pytest.approx(to_image)
    assert found["held_out/r1"] == pytest.approx((to_text + to_image) / 2)
    assert 0 < to_text < 1


def test_retrieval_is_by_csd_not_by_cosine():
    means = torch.eye(2)
    texts = Gaussian(means[[0, 0]], torch.tensor([[0.0, 0.0], [-20.0, -20.0]]))
    images = Gaussian(means[[0, 0]], torch.full((2, 2), -20.0))
    assert (
        compute_retrieval(images, texts, torch.tensor([[False, True], [False, True]]))[
            "held_out/image_to_text_r1"
        ]
        == 1
    )


def test_uncertainty_is_the_trace(draw):
    images, texts = draw(20, 4), draw(20, 4)
    found = compute_uncertainty(images, texts)
    assert found["held_out/image_uncertainty"] == pytest.approx(images.log_var.exp().sum(-1).mean().item())
    assert found["held_out/text_uncertainty"] == pytest.approx(texts.log_var.exp().sum(-1).mean().item())
    above = [float(t) > float(i) for t, i in zip(texts.uncertainty, images.uncertainty, strict=True)]
    assert found["held_out/text_above_image"] == pytest.approx(sum(above) / 20)
    assert compute_uncertainty(Gaussian.point(images.mean), Gaussian.point(texts.mean)) == {}


def check(held_out):
    return held_out.compute_metrics(held_out.embed())


@pytest.fixture
def pixels(generator):
    return torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8, generator=generator)


def test_the_check_is_that_of_the_model(nano, pixels, monkeypatch):
    monkeypatch.setattr("prolip.training.held_out.BATCH_SIZE", 2)
    found = check(HeldOutEvaluator(nano, HeldOutSamples(pixels, nano.tokenize(CAPTIONS), CAPTIONS)))
    with torch.no_grad():
        images = nano.encode_image(normalize(pixels, nano.config.image.preprocessing))
    texts = nano.embed_texts(CAPTIONS)
    expected = compute_retrieval(images, texts, match_captions(CAPTIONS)) | compute_uncertainty(images, texts)
    assert found == pytest.approx({"held_out/n": len(CAPTIONS), **expected}, abs=1e-6)


def test_a_likelihood_is_checked_by_its_match(draw, monkeypatch):
    images, texts = draw(30, 6), draw(30, 6)
    logits, captions = LogitParameters(0.5, -3.0, 2.0), [f"caption {i // 3}" for i in range(30)]
    right = match_captions(captions)
    to_text = sum(
        bool(right[i, max(range(30), key=lambda j: logits.logits(images[[i]], texts[[j]]).item())])
        for i in range(30)
    )
    monkeypatch.setattr(HeldOutEvaluator, "__init__", lambda self: setattr(self, "_is_match", right))
    found = HeldOutEvaluator().compute_metrics(HeldOutEmbeddings(images, texts, logits))
    assert found["held_out/image_to_text_r1"] == pytest.approx(to_text / 30)
    assert found["held_out/r1"] != compute_retrieval(images, texts, right)["held_out/r1"]


def test_it_leaves_no_trace(nano, pixels):
    before = {name: value.clone() for name, value in nano.state_dict().items()}
    random = torch.get_rng_state()
    check(HeldOutEvaluator(nano, HeldOutSamples(pixels, nano.tokenize(CAPTIONS), CAPTIONS)))
    assert all(torch.equal(value, before[name]) for name, value in nano.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in nano.parameters())


def test_a_deterministic_model_has_retrieval_only(tokenizer, pixels):
    model = create("nano", tokenizer)
    config = model.config.with_uncertainty("none")
    plain = type(model)(config, tokenizer).init_weights(torch.Generator().manual_seed(0))
    samples = HeldOutSamples(pixels, plain.tokenize(CAPTIONS), CAPTIONS)
    assert all("uncertainty" not in name for name in check(HeldOutEvaluator(plain, samples)))


def test_one_kind_may_be_certain(draw):
    z = draw(4, 3)
    assert compute_uncertainty(Gaussian.point(z.mean), z)["held_out/text_above_image"] == 1
