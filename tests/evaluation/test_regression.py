import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, PredefinedSplit, cross_val_predict

from prolip.evaluation import regression
from prolip.evaluation.captions import TokenizedCaptions
from prolip.evaluation.regression import (
    RegressionFeatures,
    compare_regressions,
    compute_caption_features,
    rank_paired_images,
)
from prolip.measures.public import csd_matrix


def captions_of(rows, texts=None, **known):
    """Captions with given tokens, each of an image of its own."""
    return TokenizedCaptions(
        texts=tuple(texts or (f"caption {i}" for i in range(len(rows)))),
        image_index=known.pop("image_of", torch.arange(len(rows))),
        tokens=torch.tensor([i for row in rows for i in row], dtype=torch.int64),
        lengths=torch.tensor([len(row) for row in rows]),
        **known,
    )


def planted(seed=0, n=600):
    """Random rows of compute_caption_features, log uncertainty and noise."""
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(n, 3, generator=g, dtype=torch.float64)
    values[:, 1] = values[:, 0] ** 2
    return (
        RegressionFeatures(names=("a", "b", "c"), values=values * torch.tensor([5.0, 0.1, 1.0]) + 3),
        torch.randn(n, generator=g, dtype=torch.float64) - 2,
        torch.randn(n, generator=g, dtype=torch.float64),
    )


def test_wording_is_a_count_of_tokens():
    rows = [[3, 3, 5], [5], [7, 3], []]
    found = compute_caption_features(captions_of(rows))
    frequency = {3: 3 / 6, 5: 2 / 6, 7: 1 / 6}
    for values, row in zip(found.values[:3], rows[:3], strict=True):
        logs = [np.log(frequency[i]) for i in row]
        expected = [len(row), np.log(len(row)), np.mean(logs), min(logs)]
        np.testing.assert_allclose(values.numpy(), expected, rtol=1e-12)
    assert found.values[3, 2:].isnan().all()


@pytest.mark.parametrize("block", [1, 7 * 5, 2**20])
def test_own_image_rank_is_a_count(draw, monkeypatch, block):
    monkeypatch.setattr(regression, "BLOCK", block)
    images, texts = draw(7, 4), draw(11, 4)
    owner = torch.arange(11) % 7
    found = rank_paired_images(images, texts, owner)
    distance = csd_matrix(texts, images)
    expected = [1 + sum(d < row[own] for d in row) for row, own in zip(distance, owner, strict=True)]
    assert found.tolist() == [float(v) for v in expected]


def test_equal_images_share_their_ranks(draw):
    image, text = draw(1, 4), draw(1, 4)
    five = image[torch.zeros(5, dtype=torch.int64)]
    assert rank_paired_images(five, text, torch.tensor([2])).tolist() == [3.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", [7 * 7, 20 * 20, 2**22])
def test_ranks_and_ties_are_scipys_wherever_blocks_end(draw, monkeypatch, dtype, block):
    """Each of 30 images stands there three times, in other blocks."""
    monkeypatch.setattr(regression, "BLOCK", block)
    images, texts = (z.to(dtype) for z in (draw(30, 64), draw(50, 64)))
    images = images[torch.arange(90) % 30]
    owner = torch.arange(50) * 7 % 90
    distance = csd_matrix(texts.to(torch.float64), images[:30].to(torch.float64)).repeat(1, 3)
    expected = rankdata(distance.numpy(), axis=1)[torch.arange(50), owner]
    assert rank_paired_images(images, texts, owner).tolist() == expected.tolist()


def test_means_of_any_length_are_ranked_by_their_distance(draw):
    images, texts = draw(9, 5), draw(20, 5)
    images = type(images)(images.mean * torch.linspace(0.5, 2, 9)[:, None], images.log_var)
    owner = torch.arange(20) % 9
    expected = rankdata(csd_matrix(texts, images).numpy(), axis=1)[torch.arange(20), owner]
    assert rank_paired_images(images, texts, owner).tolist() == expected.tolist()


def test_images_are_made_ready_once_however_many_blocks(draw, monkeypatch):
    images, texts = draw(6, 4), draw(8, 4)
    asked = []
    real = type(images).var.fget
    monkeypatch.setattr(type(images), "var", property(lambda z: asked.append(1) or real(z)))
    monkeypatch.setattr(regression, "BLOCK", 4)
    rank_paired_images(images, texts, torch.arange(8) % 6)
    assert len(asked) == 1


def test_the_captions_own_uncertainty_does_not_change_the_rank(draw):
    images, texts = draw(30, 6), draw(30, 6)
    wider = type(texts)(texts.mean, texts.log_var + 3)
    owner = torch.arange(30)
    assert torch.equal(rank_paired_images(images, texts, owner), rank_paired_images(images, wider, owner))


def test_the_same_as_scikit_learn():
    columns, uncertainty, noise = planted()
    target = 0.3 * columns.values[:, 0] + 0.7 * uncertainty + 0.5 * noise
    found = compare_regressions(columns, uncertainty, target, torch.arange(len(target)), seed=5).fit
    fold = regression._assign_folds(len(target), 5)
    assert sorted(torch.bincount(fold).tolist()) == sorted(len(test) for _, test in KFold(5).split(target))
    for name, x in (
        ("r2_without", columns.values),
        ("r2_with", torch.cat([columns.values, uncertainty[:, None]], 1)),
    ):
        predicted = cross_val_predict(
            LinearRegression(), x.numpy(), target.numpy(), cv=PredefinedSplit(fold.numpy())
        )
        assert getattr(found, name) == pytest.approx(r2_score(target.numpy(), predicted), abs=1e-10)
    assert found.difference == pytest.approx(found.r2_with - found.r2_without, abs=1e-12)
    x = torch.cat([columns.values, uncertainty[:, None]], 1).numpy()
    fit = LinearRegression().fit(
        (x - x.mean(0)) / x.std(0), (target.numpy() - target.numpy().mean()) / target.numpy().std()
    )
    np.testing.assert_allclose(list(found.coefficients.values()), fit.coef_, atol=1e-10)


def test_what_wording_explains_leaves_nothing_to_uncertainty():
    columns, uncertainty, noise = planted(1)
    target = columns.values[:, 0] + 0.5 * noise
    found = compare_regressions(columns, uncertainty, target, torch.arange(len(target))).fit
    assert found.r2_without > 0.9
    assert abs(found.difference) < 0.01
    assert found.interval.low < 0.005
    assert abs(found.uncertainty_coefficient) < 0.05


@pytest.mark.parametrize("sign", [-1, 1])
def test_what_uncertainty_explains_is_credited_to_it(sign):
    columns, uncertainty, noise = planted(2)
    target = sign * 2 * uncertainty + 0.5 * noise
    found = compare_regressions(columns, uncertainty, target, torch.arange(len(target))).fit
    assert found.r2_without < 0.05
    assert found.difference > 0.85
    low, high = found.interval.low, found.interval.high
    assert 0.8 < low < found.difference < high < 1.05
    assert found.uncertainty_coefficient * sign > 0.9


def test_the_interval_is_that_of_a_loop_over_resamples():
    columns, uncertainty, noise = planted(3, n=200)
    target = uncertainty + 2 * noise
    groups = torch.arange(200) // 2  # two rows a group
    found = compare_regressions(columns, uncertainty, target, groups, seed=1).fit
    fold = regression._assign_folds(100, 1)[groups]
    both = torch.cat([columns.values, uncertainty[:, None]], 1)
    errors = [regression._held_out_errors(x, target, fold).numpy() for x in (columns.values, both)]
    g, y = torch.Generator().manual_seed(2), target.numpy()
    drawn = []
    for chosen in torch.randint(100, (regression.RESAMPLES, 100), generator=g):
        rows = (2 * chosen[:, None] + torch.tensor([0, 1])).flatten().numpy()
        drawn.append((errors[0][rows] - errors[1][rows]).sum() / ((y[rows] - y[rows].mean()) ** 2).sum())
    np.testing.assert_allclose(
        [found.interval.low, found.interval.high], np.quantile(drawn, [0.025, 0.975]), rtol=1e-9
    )


def test_groups_are_held_out_together():
    groups = torch.arange(100) // 5
    fold = regression._assign_folds(20, 0)[groups]
    assert all(len(fold[groups == g].unique()) == 1 for g in range(20))
    # each group has a target and a column of its own: were a part of it fitted, the rest would be known exactly
    g = torch.Generator().manual_seed(0)
    target, uncertainty = (torch.randn(20, generator=g, dtype=torch.float64)[groups] for _ in range(2))
    own = RegressionFeatures(
        names=tuple(map(str, range(20))), values=torch.nn.functional.one_hot(groups).double()
    )
    assert compare_regressions(own, uncertainty, target, groups).fit.r2_without < 0.1
    assert compare_regressions(own, uncertainty, target, torch.arange(100)).fit.r2_without > 0.9


@pytest.mark.parametrize(
    ("change", "constant_columns"),
    [("target", ()), ("uncertainty", ("log uncertainty",)), ("few", ())],
)
def test_compare_regressions_is_none_where_undefined(change, constant_columns):
    columns, uncertainty, target = planted(5, n=50)
    if change == "target":
        target = torch.full_like(target, 0.1)
    if change == "uncertainty":
        uncertainty = torch.full_like(uncertainty, -3.7)
    groups = torch.arange(50) % 9 if change == "few" else torch.arange(50)
    found = compare_regressions(columns, uncertainty, target, groups)
    assert found.constant_columns == constant_columns
    assert found.fit is None


def test_constant_columns_are_named_and_change_nothing():
    columns, uncertainty, noise = planted(6)
    target = uncertainty + noise
    groups = torch.arange(len(target))
    plain = compare_regressions(columns, uncertainty, target, groups)
    more = RegressionFeatures(
        names=(*columns.names, "flat"),
        values=torch.cat([columns.values, torch.full((600, 1), 0.3).double()], 1),
    )
    found = compare_regressions(more, uncertainty, target, groups)
    assert found.constant_columns == ("flat",)
    assert found.fit.r2_with == pytest.approx(plain.fit.r2_with, abs=1e-12)
    twice = compare_regressions(
        columns.with_column("again", columns.values[:, 0]), uncertainty, target, groups
    )
    assert twice.fit.r2_with == pytest.approx(plain.fit.r2_with, abs=1e-9)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=12, max_size=30), st.integers(0, 3))
def test_ties_and_near_constant_columns_never_break_it(target, seed):
    n = len(target)
    values = torch.zeros(n, 2, dtype=torch.float64)
    values[0, 0] = 1.0  # constant in every fold but one
    uncertainty = torch.tensor([i % 2 for i in range(n)], dtype=torch.float64)
    found = compare_regressions(
        RegressionFeatures(names=("once", "never"), values=values),
        uncertainty,
        torch.tensor(target).double(),
        torch.arange(n),
        seed=seed,
    )
    assert found.constant_columns == ("never",)
    assert (found.fit is None) == (len(set(target)) == 1)
    if found.fit is not None:
        assert all(np.isfinite([found.fit.r2_with, found.fit.r2_without, found.fit.difference]))


def test_bad_rows_are_reported():
    columns, uncertainty, target = planted(7, n=20)
    with pytest.raises(ValueError, match="as many targets"):
        compare_regressions(columns, uncertainty, target[:-1], torch.arange(19))
    with pytest.raises(ValueError, match="finite"):
        compare_regressions(columns, uncertainty, target.log(), torch.arange(20))


def test_analyze_uses_each_text_once_and_skips_empty_captions(draw):
    rows = [[1, 2], [1, 2], [3], []] + [[i % 4 + 1] * (i % 5 + 1) for i in range(40)]
    texts = ["same", "same", "other", "empty", *(f"text {i}" for i in range(40))]
    truth = torch.linspace(-5, 0, 44, dtype=torch.float64)
    truth[2] = torch.nan
    captions = captions_of(rows, texts, log_ambiguity=truth)
    found = regression.analyze_regressions(draw(44, 8), draw(44, 8), captions)
    assert found.own_image.n == 43
    assert found.ambiguity.n == 41
    assert (
        regression.analyze_regressions(draw(44, 8), draw(44, 8), captions, max_captions=20).own_image.n == 20
    )
    captions = captions_of(rows, texts)
    assert regression.analyze_regressions(draw(44, 8), draw(44, 8), captions).ambiguity is None
