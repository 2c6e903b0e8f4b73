"""Prompt weights against loops over classes and the filters of the release, and their invariants."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file

from prolip import perplexity
from prolip.gaussian import Gaussian
from prolip.mixture import pool
from prolip.zeroshot import prompt_weights
from tests.golden import FIXTURES


def with_uncertainties(rows):
    """Prompts (C, T, 2) whose tr(Sigma) are exactly these, up to rounding of log."""
    value = torch.tensor(rows, dtype=torch.float64)
    log_var = torch.stack([value.log(), torch.full_like(value, -torch.inf)], -1)
    mean = torch.zeros_like(log_var)
    mean[..., 0] = 1.0
    return Gaussian(mean, log_var)


FEW = st.sampled_from([0.1, 0.2, 0.2, 0.5, 1.0, 3.0])
TABLES = st.integers(1, 5).flatmap(
    lambda count: st.lists(st.lists(FEW, min_size=count, max_size=count), min_size=1, max_size=4)
)


def equal_weights(selected, row):
    """Equal weights of the selected prompts; the least uncertain one if there is none."""
    selected = selected or [row.index(min(row))]
    return [1.0 / len(selected) if i in selected else 0.0 for i in range(len(row))]


def limit_of(values, k):
    mean = math.fsum(values) / len(values)
    return mean + k * math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def below(row, limit):
    return [i for i, value in enumerate(row) if value <= limit * (1 + 1e-9)]


def close(found, wanted):
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-12, rtol=0)


@given(TABLES, st.sampled_from([-1.0, 0.0, 0.5, 2.0]))
def test_std_filters_equal_loops(rows, k):
    prompts = with_uncertainties(rows)
    close(
        prompt_weights.class_std_filter(prompts, k),
        [equal_weights(below(row, limit_of(row, k)), row) for row in rows],
    )
    overall = limit_of([value for row in rows for value in row], k)
    close(
        prompt_weights.global_std_filter(prompts, k),
        [equal_weights(below(row, overall), row) for row in rows],
    )


@given(TABLES, st.sampled_from([0.0, 0.15, 0.6, 10.0]))
def test_threshold_filter_equals_loop(rows, threshold):
    close(
        prompt_weights.threshold_filter(with_uncertainties(rows), threshold),
        [equal_weights(below(row, threshold), row) for row in rows],
    )


@given(TABLES, st.data())
def test_top_k_filter_selects_the_first_of_equal_prompts(rows, data):
    k = data.draw(st.integers(1, len(rows[0])))
    wanted = [equal_weights(sorted(range(len(row)), key=lambda i: (row[i], i))[:k], row) for row in rows]
    close(prompt_weights.top_k_filter(with_uncertainties(rows), k), wanted)


@given(TABLES, st.data())
def test_global_top_k_filter_ranks_over_classes(rows, data):
    every = [(value, c, t) for c, row in enumerate(rows) for t, value in enumerate(row)]
    count = data.draw(st.integers(1, len(every)))
    chosen = sorted(every)[:count]
    wanted = [equal_weights([t for _, own, t in chosen if own == c], row) for c, row in enumerate(rows)]
    close(prompt_weights.global_top_k_filter(with_uncertainties(rows), count), wanted)


def test_std_filters_select_all_of_equal_uncertainty():
    """0.1 has no exact mean in floating point: the limit must not fall below the values by rounding."""
    for count in range(2, 40):
        prompts = with_uncertainties([[0.1] * count])
        assert (prompt_weights.class_std_filter(prompts, 0.0) > 0).all()
        assert (prompt_weights.global_std_filter(prompts, 0.0) > 0).all()


def test_uniform_and_single_template_weights(draw):
    prompts = draw(3, 4, 5)
    close(prompt_weights.uniform_weights(prompts), [[0.25] * 4] * 3)
    close(prompt_weights.single_template_weights(prompts, 2), [[0.0, 0.0, 1.0, 0.0]] * 3)
    torch.testing.assert_close(
        pool(prompts, prompt_weights.single_template_weights(prompts, 2)).mean, prompts.mean[:, 2]
    )
    for index in (-1, 4):
        with pytest.raises(ValueError, match=r"0\.\.3"):
            prompt_weights.single_template_weights(prompts, index)


def test_permuting_classes_permutes_weights(draw):
    prompts, order = draw(5, 6, 3), torch.tensor([3, 1, 4, 0, 2])
    for rule in (
        lambda z: prompt_weights.class_std_filter(z, 0.3),
        lambda z: prompt_weights.global_std_filter(z, 0.3),
        lambda z: prompt_weights.top_k_filter(z, 2),
        lambda z: prompt_weights.global_top_k_filter(z, 11),
    ):
        assert torch.equal(rule(prompts[order]), rule(prompts)[order])


def test_model_without_uncertainty_is_rejected(draw):
    points = Gaussian.point(draw(2, 3, 4).mean)
    for rule, option in (
        (prompt_weights.class_std_filter, 0.0),
        (prompt_weights.global_std_filter, 0.0),
        (prompt_weights.threshold_filter, 1.0),
        (prompt_weights.top_k_filter, 1),
        (prompt_weights.global_top_k_filter, 1),
    ):
        with pytest.raises(ValueError, match="no uncertainty"):
            rule(points, option)
    close(prompt_weights.uniform_weights(points), [[1 / 3] * 3] * 2)


def test_invalid_counts_and_shapes_are_rejected(draw):
    prompts = draw(2, 3, 4)
    for rule, wrong, most in (
        (prompt_weights.top_k_filter, 0, 3),
        (prompt_weights.top_k_filter, 4, 3),
        (prompt_weights.global_top_k_filter, 7, 6),
    ):
        with pytest.raises(ValueError, match=rf"1\.\.{most}"):
            rule(prompts, wrong)
    with pytest.raises(ValueError, match=r"\(C, T, D\)"):
        prompt_weights.uniform_weights(prompts[0])


def test_entropy_and_effective_count():
    two = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3] * 3])
    torch.testing.assert_close(
        prompt_weights.effective_prompt_count(two), torch.tensor([2.0, 1.0, 3.0]).double()
    )
    torch.testing.assert_close(prompt_weights.entropy(two), torch.tensor([2.0, 1.0, 3.0]).double().log())


@pytest.mark.parametrize(
    ("name", "rule", "option"),
    [
        ("by_std_values_per_class", prompt_weights.class_std_filter, 0.0),
        ("by_std_values_all", prompt_weights.global_top_k_filter, 15),
        ("by_ranking", prompt_weights.top_k_filter, 4),
        ("by_abs_value", prompt_weights.threshold_filter, 0.16725285351276398),
    ],
)
def test_filters_match_the_release(name, rule, option):
    golden = load_file(FIXTURES / "analysis" / "bprw.safetensors")
    prompts = Gaussian(golden["full.classifier_all"], golden["full.text_vars_all"].log())
    pooled = pool(prompts, rule(prompts, option))
    torch.testing.assert_close(pooled.mean.T, golden[f"filter.{name}.classifier"], atol=2e-7, rtol=0)
    torch.testing.assert_close(pooled.var.T, golden[f"filter.{name}.vars"], atol=1e-8, rtol=1e-5)


def test_std_filters_use_the_population_standard_deviation():
    """Uncertainties 1 and 3: mean 2, spread 1 (with one less it would be the square root of 2)."""
    prompts = Gaussian(torch.tensor([[[1.0], [1.0]]]), torch.tensor([[[1.0], [3.0]]]).log())
    assert prompt_weights.global_std_filter(prompts, 0.99).tolist() == [[1.0, 0.0]]
    assert prompt_weights.global_std_filter(prompts, 0.8).tolist() == [[1.0, 0.0]]
    assert prompt_weights.class_std_filter(prompts, 0.8).tolist() == [[1.0, 0.0]]


def test_top_k_filter_selects_a_prompt_without_uncertainty():
    prompts = Gaussian(torch.ones(1, 3, 1), torch.tensor([[[1.0], [0.0], [3.0]]]).log())
    assert prompt_weights.top_k_filter(prompts, 1).tolist() == [[0.0, 1.0, 0.0]]


@given(TABLES, st.integers(0, 3))
def test_scores_stand_in_for_uncertainty(rows, choice):
    """A deterministic model with scores is filtered as a probabilistic one with these uncertainties."""
    prompts = with_uncertainties(rows)
    points, scores = Gaussian.point(prompts.mean), torch.tensor(rows, dtype=torch.float64)
    weigh = (
        lambda z, **options: prompt_weights.class_std_filter(z, 0.5, **options),
        lambda z, **options: prompt_weights.global_std_filter(z, 0.5, **options),
        lambda z, **options: prompt_weights.threshold_filter(z, 0.3, **options),
        lambda z, **options: prompt_weights.top_k_filter(z, 1, **options),
    )[choice]
    close(weigh(points, scores=scores), weigh(prompts).tolist())
    close(weigh(prompts, scores=scores), weigh(prompts).tolist())


def test_the_prompt_that_fits_fewest_images_is_selected(generator):
    """Of a specific and a general prompt: the general one lies between two groups of images."""
    groups = torch.eye(4)[:2].repeat_interleave(20, 0) + 0.05 * torch.randn(40, 4, generator=generator)
    images = Gaussian.point(torch.nn.functional.normalize(groups, dim=-1))
    means = torch.stack([torch.eye(4)[:2].sum(0) / math.sqrt(2), torch.eye(4)[0]])
    prompts = Gaussian.point(means[None])
    scores = perplexity(Gaussian.point(means), images, 30.0).reshape(1, 2)
    assert prompt_weights.global_top_k_filter(prompts, 1, scores=scores).tolist() == [[0.0, 1.0]]
    assert prompt_weights.top_k_filter(prompts, 1, scores=scores).tolist() == [[0.0, 1.0]]


def test_scores_of_another_shape_are_rejected(draw):
    prompts = draw(2, 3, 4)
    for scores in (torch.zeros(6), torch.full((2, 3), torch.nan)):
        with pytest.raises(ValueError, match=r"finite numbers \(2, 3\)"):
            prompt_weights.top_k_filter(prompts, 1, scores=scores)
