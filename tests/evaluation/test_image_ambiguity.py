"""Images of known ambiguity: a model that knows the truth gets 1, one that reverses it -1; metrics against loops."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from prolip import scenes
from prolip.data.open import open_data
from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import ImageAmbiguityConfig
from prolip.evaluation.image_ambiguity import _measure_picture, compute_slope, evaluate_image_ambiguity
from prolip.evaluation.image_ambiguity_result import PERPLEXITY, SMALLER_FILE, SOFTMAX, UNCERTAINTY
from prolip.evaluation.result import Result
from prolip.gaussian import Gaussian
from prolip.measures import log_perplexity
from prolip.measures.match import LogitParameters
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.veiled_scenes import CURTAINS, OBJECTS, VeiledScenes
from prolip.scenes.writer import derive_split_seed, write_dataset

CONFIG = ImageAmbiguityConfig(controls=0, min_group=3)
SPEC = SceneDatasetSpec(image_size=32, num_test=60, num_train=1, seed=3)


class TruthEmbedder(Embedder):
    """A model whose uncertainty is a function of the true log-ambiguity: with `sign` 1 it rises, with -1 it falls."""

    sign = 1.0

    def embed_images(self, source, transform=None):
        encoded = super().embed_images(source, transform)
        truth = torch.tensor([source.image_annotation(int(index)).log_ambiguity for index in encoded.indices])
        log_var = (self.sign * 0.2 * truth)[:, None].expand_as(encoded.images.mean)
        return replace(encoded, images=Gaussian(encoded.images.mean, log_var))


class ReversedEmbedder(TruthEmbedder):
    sign = -1.0


@pytest.fixture(scope="module")
def model():
    return create("nano", scenes.make_tokenizer(16), seed=0).eval()


@pytest.fixture(scope="module")
def veiled():
    return VeiledScenes(SPEC.distribution, num_scenes=60, size=32, seed=derive_split_seed(SPEC.seed, 1))


@pytest.fixture(scope="module")
def result(model, veiled):
    return evaluate_image_ambiguity(Embedder(model=model), veiled.label(), replace(CONFIG, controls=2))


@pytest.mark.parametrize(("kind", "expected"), [(TruthEmbedder, 1.0), (ReversedEmbedder, -1.0)])
def test_model_that_knows_the_truth_gets_one(kind, expected, model, veiled):
    found = evaluate_image_ambiguity(kind(model=model), veiled, CONFIG)
    score = found.score(UNCERTAINTY)
    assert score.spearman == pytest.approx(expected)
    assert score.mean_within_veil == pytest.approx(expected)
    groups = [*found.veils, *found.kinds, *found.visible_objects]
    values = [group.spearman for group in groups if group.spearman is not None]
    assert len(values) > 5
    assert values == pytest.approx([expected] * len(values))
    shares = [found.above_whole, *(s.rises for q in found.sequences for s in q.steps if s.rises is not None)]
    assert {share.uncertainty.value for share in shares} == {max(expected, 0.0)}
    assert score.errors is None
    assert found.accuracy is None
    assert found.score(SOFTMAX) is None


def test_correlations_are_of_images_in_no_sequence(result, model, veiled):
    rows = [index for index, view in enumerate(veiled.views) if view.step is None]
    truth = [veiled.image_annotation(index).log_ambiguity for index in rows]
    images = model.embed_images([veiled.read(index).image for index in rows])
    assert (result.n, result.num_images) == (60, len(veiled))
    assert result.score(UNCERTAINTY).spearman == pytest.approx(
        spearmanr(images.uncertainty, truth)[0], abs=1e-6
    )
    np.testing.assert_allclose(result.points.log_ambiguity, truth)
    np.testing.assert_allclose(result.points.uncertainty, images.uncertainty, rtol=1e-5)
    texts = list(dict.fromkeys(text for index in range(len(veiled)) for text in veiled.read(index).captions))
    perplexity = log_perplexity(images, model.embed_texts(texts), model.logit_parameters.scale)
    assert result.num_pool == len(texts)
    np.testing.assert_allclose(result.points.perplexity, perplexity, rtol=1e-4)
    assert result.score(PERPLEXITY).spearman == pytest.approx(spearmanr(perplexity, truth)[0], abs=1e-6)


def test_errors_are_of_images_with_a_label(result, model, veiled):
    data = veiled.label()
    rows = [
        index
        for index, view in enumerate(veiled.views)
        if view.step is None and "cls" in veiled.read(index).extra
    ]
    labels = torch.tensor([veiled.read(index).extra["cls"] for index in rows])
    images = model.embed_images([veiled.read(index).image for index in rows])
    classes = model.embed_texts([f"a {name}" for name in data.class_names])
    logits = model.logit_parameters.logits_matrix(images, classes)
    wrong = logits.argmax(1) != labels
    assert 0 < len(rows) < 60
    assert result.accuracy.n == len(rows)
    assert result.num_classes == 64
    assert result.accuracy.value == pytest.approx(1 - wrong.double().mean().item())
    for name, score in ((UNCERTAINTY, images.uncertainty), (SOFTMAX, -logits.softmax(1).amax(1))):
        expected = roc_auc_score(wrong, score.double()) if 0 < wrong.sum() < len(wrong) else None
        assert result.score(name).errors.auroc == (None if expected is None else pytest.approx(expected))


def test_pairs_and_sequences_against_a_loop(result, model, veiled):
    annotations = [veiled.image_annotation(index) for index in range(len(veiled))]
    uncertainty = model.embed_images([veiled.read(index).image for index in range(len(veiled))]).uncertainty
    index_of = {(one.scene, one.sequence, one.step): index for index, one in enumerate(annotations)}

    def count(sequence, step, previous):
        """Rises among the pairs whose truth rises."""
        pairs = [
            (index_of[scene, *previous], index)
            for (scene, name, number), index in index_of.items()
            if (name, number) == (sequence, step)
        ]
        pairs = [
            (a, b) for a, b in pairs if annotations[b].log_ambiguity > annotations[a].log_ambiguity + 1e-9
        ]
        return len(pairs), np.mean([bool(uncertainty[b] > uncertainty[a]) for a, b in pairs])

    whole = result.above_whole
    assert (whole.n, whole.uncertainty.value) == pytest.approx(count(None, None, (None, 0)))
    found = {sequence.name: sequence for sequence in result.sequences}
    assert set(found) == {CURTAINS, OBJECTS}
    assert [step.step for step in found[CURTAINS].steps] == [0, 1, 2, 3, 4]
    for step in found[CURTAINS].steps[1:]:
        previous = (CURTAINS if step.step > 1 else None, step.step - 1)
        assert (step.rises.n, step.rises.uncertainty.value) == pytest.approx(
            count(CURTAINS, step.step, previous)
        )
    truths = [step.log_ambiguity for step in found[CURTAINS].steps]
    assert truths == sorted(truths)
    assert truths[-1] == pytest.approx(0.0), "nothing is visible in a grid of four cells"
    multiple = [len(veiled.scenes.draw_scene(index).objects) > 1 for index in range(60)]
    assert [step.n for step in found[OBJECTS].steps] == [sum(multiple)] * 2


def test_untrained_models_are_measured(result, model):
    assert result.score("untrained, seed 0").spearman == result.score(UNCERTAINTY).spearman, "it is the model"
    assert result.score("untrained, seed 1").spearman != result.score(UNCERTAINTY).spearman
    assert result.score("untrained, seed 2") is None


def test_set_on_disk_gives_the_same_result(tmp_path, model, result):
    write_dataset(tmp_path / "scenes", SPEC, progress=False)
    data = open_labeled(tmp_path / "scenes" / "wds_scenes-veiled_test")
    found = evaluate_image_ambiguity(Embedder(model=model), data, replace(CONFIG, controls=2))
    assert (found.n, found.num_images, found.num_pool) == (result.n, result.num_images, result.num_pool)
    for one, other in zip(found.scores, result.scores, strict=True):
        assert one.name == other.name
        assert one.spearman == pytest.approx(other.spearman, abs=1e-6)
        assert one.errors == other.errors
    assert [(v.name, v.n) for v in found.veils] == [(v.name, v.n) for v in result.veils]
    assert found.above_whole == result.above_whole


def test_table_with_columns_needs_no_labels(tmp_path, model, veiled):
    rows = ["image,caption,image_log_ambiguity,veil"]
    for index in range(8):
        sample = veiled.read(index)
        sample.image.save(tmp_path / f"{index}.png")
        truth = "" if index == 7 else veiled.image_annotation(index).log_ambiguity
        rows.append(f"{index}.png,{sample.captions[0]},{truth},")
    (tmp_path / "images.csv").write_text("\n".join(rows) + "\n")
    found = evaluate_image_ambiguity(Embedder(model=model), open_data(tmp_path / "images.csv"), CONFIG)
    assert found.n == found.num_images == 7, "without the one of unknown ambiguity"
    assert not found.kinds
    assert not found.sequences
    assert not found.above_whole.n


def test_data_without_ambiguity_is_refused(tmp_path, model):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a thing")
    with pytest.raises(ValueError, match="image_log_ambiguity"):
        evaluate_image_ambiguity(Embedder(model=model), open_data(tmp_path), CONFIG)


def test_deterministic_model_has_the_rivals_only(model, veiled):
    points = ProLIP(model.config.with_uncertainty("none"), model.tokenizer)
    points = points.init_weights(torch.Generator().manual_seed(0)).eval()
    found = evaluate_image_ambiguity(Embedder(model=points), veiled.label(), CONFIG)
    assert found.score(UNCERTAINTY) is None
    assert found.score(PERPLEXITY).spearman is not None
    assert found.above_whole.uncertainty is None
    assert found.above_whole.perplexity is not None
    assert found.points.uncertainty is None
    assert Result.from_json(found.to_json()) == found


def test_json_and_tables(result):
    assert Result.from_json(result.to_json()) == result
    assert json.loads(result.to_json())["task"] == "image-ambiguity"
    text = result.table()
    for score in result.scores:
        assert score.name in text
    assert f"{result.score(SMALLER_FILE).spearman:.3f}" in text
    assert f"{100 * result.above_whole.uncertainty.value:.1f}" in text
    assert "curtains: 4" in text
    assert "visible objects: 0" in text


def test_ink_is_what_differs_from_the_most_common_color():
    pixels = np.zeros((10, 10, 3), dtype=np.uint8)
    empty = _measure_picture(Image.fromarray(pixels))
    pixels[:3, :4] = np.random.default_rng(0).integers(1, 255, (3, 4, 3))
    ink, size = _measure_picture(Image.fromarray(pixels))
    assert empty[0] == 0.0
    assert ink == pytest.approx(0.12)
    assert size > empty[1]


def test_slope_is_the_scale_of_ppcl_and_the_rise_of_a_likelihood(draw):
    images, texts = draw(5, 8), draw(7, 8)
    assert compute_slope(LogitParameters(12.5, -3.0), images, texts) == pytest.approx(12.5)
    likelihood = LogitParameters(4.0, -3.0, 1.0)
    traces = [z.uncertainty.median() for z in (images, texts)]
    low, high = (likelihood.combine(torch.tensor(c, dtype=torch.float64), *traces, 8) for c in (0.0, 1.0))
    assert compute_slope(likelihood, images, texts) == pytest.approx(float(high - low))
    assert high > low


@pytest.mark.parametrize("options", [{"min_group": 0}, {"pool_size": 0}])
def test_config_refuses_invalid_numbers(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ImageAmbiguityConfig(**options)


def test_number_of_controls_is_checked_first(model, veiled, monkeypatch):
    monkeypatch.setattr(Embedder, "embed_images", lambda *_: pytest.fail("images were embedded first"))
    with pytest.raises(ValueError, match="-1"):
        evaluate_image_ambiguity(Embedder(model=model), veiled, replace(CONFIG, controls=-1))
