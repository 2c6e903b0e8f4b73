"""Images behind veils: the evaluator's numbers are those of a loop, under the keys that claims read."""

import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from prolip.data.source import AnnotatedImages
from prolip.embeddings.embedder import Embedder
from prolip.model.prolip import ProLIP
from prolip.scenes import Scenes, image_log_ambiguity, is_true_caption, observe
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.tasks import make_tasks
from prolip.scenes.veiled_rendering import render_veiled
from prolip.scenes.veils import draw_veil
from reproduction.veils import TASK_VEIL_STREAM, VEILED_SPLIT, VEILED_TASK_SPLIT, _label_task, measure_veils


@pytest.fixture(scope="module")
def numbers(scenes_model, evaluation_data):
    return measure_veils(Embedder(model=scenes_model, progress=False), evaluation_data)


def test_correlations_are_those_of_a_loop(numbers, scenes_model, evaluation_data):
    source = Scenes(
        evaluation_data.world, length=60, size=32, seed=evaluation_data.derive_seed(VEILED_SPLIT), veiled=1.0
    )
    truth = torch.tensor([source.image_annotation(i).log_ambiguity for i in range(60)])
    uncertainty = scenes_model.embed_images([source.read(i).image for i in range(60)]).uncertainty
    assert numbers["n"] == 60
    assert numbers["spearman"] == pytest.approx(spearmanr(uncertainty, truth)[0], abs=1e-6)
    counts = torch.tensor([len(source.draw_scene(i).objects) for i in range(60)])
    for count in (1, 2):
        mask = counts == count
        found = numbers["by_count"][str(count)]
        assert found["n"] == int(mask.sum())
        assert found["spearman"] == pytest.approx(spearmanr(uncertainty[mask], truth[mask])[0], abs=1e-6)


def test_errors_are_those_of_a_loop(numbers, scenes_model, evaluation_data):
    world, seed = evaluation_data.world, evaluation_data.derive_seed(VEILED_TASK_SPLIT)
    task = make_tasks(world)[0]
    pairs = [task.sample(world, seed, index) for index in range(60)]
    images = scenes_model.embed_images(
        [
            render_veiled(scene, 32, draw_veil(RandomDraws(seed, index, TASK_VEIL_STREAM), world))
            for index, (scene, _) in enumerate(pairs)
        ]
    )
    classes = scenes_model.embed_texts([f"a {name}" for name in task.class_names])
    logits = scenes_model.logit_parameters.logits_matrix(images, classes)
    wrong = logits.argmax(1) != torch.tensor([label for _, label in pairs])
    errors = numbers["errors"]
    assert errors["n"] == 60
    assert errors["accuracy"] == pytest.approx(1 - wrong.double().mean().item())
    if 0 < int(wrong.sum()) < 60:
        assert errors["auroc"] == pytest.approx(roc_auc_score(wrong, images.uncertainty))
        assert errors["max_softmax"] == pytest.approx(roc_auc_score(wrong, -logits.softmax(1).amax(1)))
    else:
        assert errors["auroc"] is None


def test_other_numbers_have_their_keys(numbers):
    assert set(numbers) == {
        "n", "spearman", "by_count", "within_veil", "perplexity", "curtains", "rises", "errors",
    }  # fmt: skip
    assert set(numbers["within_veil"]) == {"mean", "groups", "n"}
    assert set(numbers["perplexity"]) == {"spearman", "auroc"}
    assert len(numbers["curtains"]) == 5
    assert [step["rises"] is None for step in numbers["curtains"]] == [True] + [False] * 4
    assert numbers["curtains"][-1]["log_ambiguity"] == pytest.approx(0.0)
    assert 0 <= numbers["rises"]["veil"] <= 1
    assert numbers["rises"]["n_largest"] > 0


def test_labeled_images_know_their_ambiguity(evaluation_data):
    data = _label_task(evaluation_data)
    assert isinstance(data.source, AnnotatedImages)
    for index in range(10):
        sample = data.source.read(index)
        scene, label = data.source.task.sample(evaluation_data.world, data.source.seed, index)
        assert sample.extra["cls"] == label
        assert all(is_true_caption(text, scene) for text in sample.captions)
        meaning = observe(scene, data.source.draw_veil(index))
        truth = image_log_ambiguity(meaning, evaluation_data.world)
        assert data.source.image_annotation(index).log_ambiguity == truth
    plain = super(type(data.source), data.source).fingerprint()
    assert data.source.fingerprint() != plain


def test_deterministic_model_has_no_numbers(scenes_model, evaluation_data):
    model = ProLIP(scenes_model.config.with_uncertainty("none"), scenes_model.tokenizer)
    model.init_weights(torch.Generator().manual_seed(0))
    assert measure_veils(Embedder(model=model.eval()), evaluation_data) is None
