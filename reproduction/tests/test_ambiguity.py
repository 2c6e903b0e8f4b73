from dataclasses import replace

import pytest
import torch

from prolip.evaluation.metrics.correlation import spearman
from prolip.gaussian import Gaussian
from prolip.scenes import meaning
from prolip.scenes.ambiguity import log_ambiguity
from reproduction import ambiguity
from reproduction.tests.factories import WORLD, embedded


def of_truth(caption):
    return 1.0 + log_ambiguity(caption.meaning, WORLD) / 100


def of_length(caption):
    return 1.0 / len(caption.text.split())


def test_measure_finds_uncertainty_equal_to_ambiguity():
    found = ambiguity.measure_ambiguity(embedded(of_truth))
    assert found["spearman"] == pytest.approx(1.0)
    assert [level["spearman"] for level in found["by_level"].values()] == pytest.approx([1.0] * 3)
    assert found["within_length"]["mean"] == pytest.approx(1.0)
    assert found["within_length"]["min"] == pytest.approx(1.0)
    assert found["within_length"]["groups"] > 3
    assert found["length_within_ambiguity"]["mean"] is None  # uncertainty doesn't vary there


def test_measure_distinguishes_length_from_ambiguity():
    found = ambiguity.measure_ambiguity(embedded(of_length))
    assert found["length"] == pytest.approx(-1.0)
    assert found["length_within_ambiguity"]["mean"] == pytest.approx(-1.0)
    assert found["within_length"] == {"n": 0, "mean": None, "min": None, "groups": 0}
    assert found["spearman"] < 0.9


def test_measure_counts_equal_texts_once():
    drawn = embedded(of_truth)
    assert (
        ambiguity.measure_ambiguity(drawn)["n"]
        == len({one.text for one in drawn.captions})
        < len(drawn.captions)
    )


def test_correlate_within_groups_of_min_size(generator):
    a, b = torch.rand(2, 130, generator=generator)
    groups = torch.tensor([0] * 50 + [1] * 49 + [2] * 31)
    assert list(ambiguity.correlate_within_groups(groups, a, b)) == [(50, spearman(a[:50], b[:50]))]


def test_deterministic_model_has_controls_only():
    drawn = embedded(of_truth, count=60)
    points = Gaussian.point(drawn.texts.mean)
    found = ambiguity.measure_ambiguity(type(drawn)(**vars(drawn) | {"texts": points}))
    controls, n = found.pop("controls"), found.pop("n")
    assert set(found.values()) == {None}
    assert n > 60
    wanted = ambiguity.measure_ambiguity(drawn)["controls"]
    assert controls == wanted
    assert list(controls) == ["words", "pieces", "unigram", "perplexity"]


def test_controls_are_correlated_like_uncertainty():
    by_words = ambiguity.measure_ambiguity(embedded(of_length))
    words = by_words["controls"]["words"]
    assert words == {name: by_words[name] for name in ("spearman", "by_level", "within_length")}
    assert words["spearman"] > 0.1, "a caption of few words is ambiguous"
    assert by_words["controls"]["pieces"]["spearman"] == pytest.approx(words["spearman"], abs=0.05)


def test_perplexity_counts_the_scenes_that_fit():
    """Means that point to the scenes of which a caption is true, and nothing else."""
    drawn = embedded(of_truth, count=80)
    is_true = torch.tensor(
        [[meaning.is_true(caption.meaning, scene) for scene in drawn.scenes] for caption in drawn.captions]
    ).double()
    images = Gaussian.point(torch.eye(80, dtype=torch.float64))
    texts = Gaussian.point(torch.nn.functional.normalize(is_true, dim=-1))
    found = ambiguity.score_controls(replace(drawn, images=images, texts=texts))
    counts = is_true.sum(1)
    others = counts > 1  # a caption of which only the own scene is true fits no other: its softmax is flat
    assert not bool(others.all())
    assert spearman(found["perplexity"][others], counts[others]) > 0.99
