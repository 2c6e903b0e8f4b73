import copy
from dataclasses import replace

import pytest
import torch

from prolip.embeddings.embedder import Embedder
from prolip.evaluation import robustness
from prolip.evaluation.configs import RobustnessConfig
from prolip.evaluation.zeroshot import evaluate_zeroshot
from reproduction import benchmark_sets


@pytest.fixture(scope="module")
def embedder(scenes_model):
    return Embedder(model=scenes_model, progress=False)


def test_evaluate_zero_shot_matches_evaluator(embedder, evaluation_data):
    data = evaluation_data.task("color_shape")
    wanted = robustness.evaluate_robustness(
        embedder, data, RobustnessConfig(occluded=(0.0, 0.1), corruptions=(), pgd_steps=())
    )
    assert (
        benchmark_sets.evaluate_zero_shot(embedder, evaluation_data)["color_shape"]["all_prompts"]
        == wanted.clean.accuracy.value
    )
    occluded = benchmark_sets.evaluate_occlusion(embedder, evaluation_data)
    assert [occluded[0]["uncertainty"], occluded[-1]["uncertainty"]] == [
        row.uncertainty.value for row in wanted.occlusion
    ]


def test_zero_shot_by_match_is_that_of_the_evaluator(scenes_model, evaluation_data):
    model = copy.deepcopy(scenes_model)
    model.config = replace(model.config, contrastive_loss="likelihood")
    with torch.no_grad():  # concentrations of about 10
        model.logit_scale.copy_(10 * model.embed_texts(["a thing"]).uncertainty[0].log().mul(4).exp()).log_()
    embedder = Embedder(model=model, progress=False)
    data = evaluation_data.task("color_shape")
    first = replace(data, templates=data.templates[:1])
    found = benchmark_sets.evaluate_zero_shot(embedder, evaluation_data)["color_shape"]
    result = evaluate_zeroshot(embedder, first)
    assert (result.rank_by, result.top1.value) == ("match", found["one_prompt_match"])


def test_clean_images_have_no_rise(embedder, evaluation_data):
    assert benchmark_sets.evaluate_occlusion(embedder, evaluation_data)[0]["rises"] == 0.0
    clean, *attacked = benchmark_sets.evaluate_pgd(embedder, evaluation_data)
    assert (clean["steps"], clean["rises"]) == (0, 0.0)
    assert [row["steps"] for row in attacked] == [1, 2]
    assert all(row["n"] == 4 for row in attacked)


def test_evaluate_prompts_has_bprw_and_controls(embedder, evaluation_data):
    rows = benchmark_sets.evaluate_prompts(embedder, evaluation_data)["rows"]
    for shots in (0, 5, 9):
        assert {f"BPRW, {shots} images", f"BPRW, {shots} images, equal variances"} <= set(rows)
    assert {"centroid of 5 images, no prompts", "centroid of 9 images, no prompts"} <= set(rows)


def test_evaluate_hierarcaps_has_controls_and_exact_entailment(embedder, evaluation_data):
    found = benchmark_sets.evaluate_hierarcaps(embedder, evaluation_data)
    controls = found["order_controls"]
    assert list(controls) == [
        "uncertainty", "words", "pieces", "unigram", "perplexity", "match_perplexity",
    ]  # fmt: skip
    assert controls["uncertainty"]["pairs"] == pytest.approx(found["order"]["pairs"])
    assert controls["words"]["adjacent"] > 0.5
    by_image, by_caption = found["entailment"]["image"], found["entailment"]["caption"]
    assert set(by_image["auroc"]) == set(by_image["average_precision"]) >= {"log_inclusion", "match", "words"}
    assert by_image["n"] > by_image["positives"] > 4 * found["n"], "some drawn captions are true"
    assert by_image["levels"]["0"]["cosine"] is None, "captions of level 0 are always true"
    assert list(by_caption["levels"]) == ["0", "1", "2"]
