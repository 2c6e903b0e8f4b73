"""The pool teacher: what it says of a row against a loop in float64, and what it leaves out."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch

from prolip.adaptation.pool_teacher import (
    FACTORS,
    FOLDS,
    TOLERANCE,
    Blend,
    Pool,
    PoolTeacher,
    add_blends,
    assign_folds,
    choose_teacher,
    draw_pool_rows,
    embed_pool,
    embed_rows,
    get_cosine_scale,
    get_max_size,
)
from prolip.adaptation.targets import write_held_out_targets, write_train_targets
from prolip.gaussian import Gaussian
from tests.adaptation.small import make_model, write_pairs

TEACHER = PoolTeacher(scale=10.0, image_k=0.7, text_k=2.0, size=12, seed=3)


@pytest.fixture
def train(tmp_path):
    return write_pairs(tmp_path / "train", num_images=23, seed=1)


@pytest.fixture
def held_out(tmp_path):
    return write_pairs(tmp_path / "held_out", num_images=9, seed=2)


@pytest.fixture
def model():
    return make_model("learned")


def loop_log_fraction(query, items, factor):
    """ln of exp(entropy of softmax(factor query . item)) / M, in float64."""
    logits = [factor * math.fsum((query.double() * item.double()).tolist()) for item in items]
    weights = [math.exp(value - max(logits)) for value in logits]
    p = [weight / math.fsum(weights) for weight in weights]
    return -math.fsum(value * math.log(value) for value in p if value > 0) - math.log(len(items))


def test_log_fraction_equals_a_loop(generator):
    means = torch.nn.functional.normalize(torch.randn(3, 7, 5, generator=generator), dim=-1)
    images, texts, queries = (Gaussian.point(mean) for mean in means)
    for modality, items, k in (("image", texts, 0.7), ("text", images, 2.0)):
        got = TEACHER.compute_log_fraction(queries, Pool(images, texts), modality)
        expected = [loop_log_fraction(query, items.mean, 10.0 * k) for query in queries.mean]
        assert got.tolist() == pytest.approx(expected, abs=1e-5)


def test_folds_are_equal_parts_and_depend_on_the_seed():
    folds = assign_folds(23, 0)
    assert sorted(np.bincount(folds, minlength=FOLDS)) == [4, 4, 5, 5, 5]
    assert not np.array_equal(folds, assign_folds(23, 1))


def test_pool_rows_leave_out_a_fold_and_hold_a_caption_of_each_image(train):
    folds = assign_folds(len(train), 3)
    size = get_max_size(len(train))
    for fold in range(FOLDS):
        images, texts = draw_pool_rows(train, size, 3, fold)
        assert len(set(images)) == size
        assert not (folds[images] == fold).any()
        assert np.array_equal(np.searchsorted(train.offsets, texts, side="right") - 1, images)
        smaller = draw_pool_rows(train, 5, 3, fold)
        assert np.array_equal(smaller[0], images[:5])


def test_targets_equal_a_loop_that_leaves_out_the_own_fold(train, model, tmp_path):
    """Every view of an image and of all its captions is compared with items of other folds alone."""
    pairs = write_train_targets(tmp_path / "targets", model, train, TEACHER)
    folds = assign_folds(len(train), TEACHER.seed)
    owners = np.repeat(np.arange(len(train)), np.diff(train.offsets))
    for fold in range(FOLDS):
        image_rows, text_rows = draw_pool_rows(train, TEACHER.size, TEACHER.seed, fold)
        images = embed_rows(model, train.images[image_rows, 0], "image").mean
        texts = embed_rows(model, train.texts[text_rows, 0], "text").mean
        for row in np.flatnonzero(folds == fold):
            assert row not in image_rows
            assert row not in owners[text_rows]
            for view in range(train.images.shape[1]):
                query = embed_rows(model, train.images[[row], view], "image").mean[0]
                assert pairs.image_targets[row, view] == pytest.approx(
                    loop_log_fraction(query, texts, 7.0), abs=1e-4
                )
        for row in np.flatnonzero(folds[owners] == fold):
            query = embed_rows(model, train.texts[[row], 1], "text").mean[0]
            assert pairs.text_targets[row, 1] == pytest.approx(
                loop_log_fraction(query, images, 20.0), abs=1e-4
            )


def test_targets_do_not_change_with_the_own_pair(train, model, tmp_path):
    """Another image under the same captions changes neither their targets nor those of its fold."""
    before = write_train_targets(tmp_path / "before", model, train, TEACHER)
    changed = write_pairs(tmp_path / "changed", num_images=23, seed=1, replace_image=4)
    after = write_train_targets(tmp_path / "after", model, changed, TEACHER)
    own = slice(train.offsets[4], train.offsets[5])
    assert np.array_equal(before.text_targets[own], after.text_targets[own])
    assert not np.array_equal(before.text_targets, after.text_targets)
    assert not np.array_equal(before.image_targets[4], after.image_targets[4])


def test_held_out_targets_are_over_training_items(train, held_out, model, tmp_path):
    pairs = write_held_out_targets(tmp_path / "targets", model, (train, held_out), TEACHER)
    pool = embed_pool(model, train, TEACHER.size, TEACHER.seed, None)
    query = embed_rows(model, held_out.images[[2], 0], "image").mean[0]
    assert pairs.image_targets[2, 0] == pytest.approx(
        loop_log_fraction(query, pool.texts.mean, 7.0), abs=1e-4
    )
    assert np.isfinite(pairs.text_targets).all()


def test_targets_are_written_once_and_again_for_another_teacher(train, model, tmp_path):
    first = write_train_targets(tmp_path / "targets", model, train, TEACHER)
    time = (tmp_path / "targets" / "features.json").stat().st_mtime_ns
    assert write_train_targets(tmp_path / "targets", model, train, TEACHER).digest == first.digest
    assert (tmp_path / "targets" / "features.json").stat().st_mtime_ns == time
    other = write_train_targets(tmp_path / "targets", model, train, replace(TEACHER, text_k=1.0))
    assert other.digest != first.digest


def test_float16_cache_is_exact_enough_for_the_teacher(generator):
    """Rounding features to float16 changes ln of the fraction by less than 0.01 at CLIP's scale of 100."""
    features = 10 * torch.randn(2, 400, 512, generator=generator) + 3
    exact, rounded = (
        torch.nn.functional.normalize(values, dim=-1) for values in (features, features.half().float())
    )
    teacher = replace(TEACHER, scale=100.0, text_k=1.0)
    fractions = [
        teacher.compute_log_fraction(
            Gaussian.point(x[0]), Pool(Gaussian.point(x[1]), Gaussian.point(x[1])), "text"
        )
        for x in (exact, rounded)
    ]
    assert (fractions[0] - fractions[1]).abs().max() < 0.01


def test_blend_is_the_sum_of_standardized_values(generator):
    """Against a loop; what it restores is the own width, moved by weight x std for each deviation of the pool's."""
    width, fraction = torch.randn(2, 9, generator=generator, dtype=torch.float64) * 0.01 - 2
    blend = Blend.fit(width, fraction, weight=0.7)
    got = blend.compute_target(width, fraction)
    for row in range(9):
        own, pool = (
            (float(values[row]) - statistics.fmean(values.tolist())) / statistics.stdev(values.tolist())
            for values in (width, fraction)
        )
        assert float(got[row]) == pytest.approx(own + 0.7 * pool)
        moved = float(width[row]) + 0.7 * statistics.stdev(width.tolist()) * pool
        assert float(blend.restore(got[row])) == pytest.approx(moved)


def test_blend_of_constant_widths_is_finite():
    blend = Blend.fit(torch.full((4,), -2.0), torch.full((4,), -3.0), weight=0.5)
    assert blend.compute_target(torch.full((2,), -2.0), torch.full((2,), -3.0)).tolist() == [0.0, 0.0]


def test_blended_teacher_reads_widths_and_the_plain_one_does_not(train, held_out, model):
    """Targets of a teacher with blends are those of the blend on the own widths; without, those of the pool alone."""
    blended = add_blends(TEACHER, model, train, held_out, weight=0.5)
    pool = embed_pool(model, train, TEACHER.size, TEACHER.seed, None)
    queries = embed_rows(model, held_out.texts[:, 0], "text")
    wider = Gaussian(queries.mean, queries.log_var + 0.1 * torch.arange(len(queries.mean))[:, None])
    fraction = TEACHER.compute_log_fraction(wider, pool, "text")
    assert torch.equal(TEACHER.compute_target(wider, pool, "text"), fraction)
    expected = blended.text_blend.compute_target(wider.uncertainty.log(), fraction)
    assert torch.equal(blended.compute_target(wider, pool, "text"), expected)
    assert not torch.equal(expected, blended.compute_target(queries, pool, "text"))


def test_choose_teacher_takes_the_given_factor_and_sizes_that_exist(train, held_out, model):
    teacher = choose_teacher(model, train, held_out, 1.7, 0)
    assert (teacher.image_k, teacher.text_k) == (1.7, 1.7)
    assert teacher.size == get_max_size(len(train))
    assert choose_teacher(model, train, held_out, None, 0).text_k in FACTORS


def test_choose_teacher_finds_the_factor_that_predicts_ranks(tmp_path):
    """Two directions are noise that only a large k sees: the choice must beat the others on held-out ranks."""
    model = make_model("encoder")
    train = write_pairs(tmp_path / "train", num_images=300, seed=1, noise=0.5)
    held_out = write_pairs(tmp_path / "held_out", num_images=200, seed=2, noise=0.5)
    teacher = choose_teacher(model, train, held_out, None, 0)
    pool = embed_pool(model, train, teacher.size, teacher.seed, None)
    images, texts = (
        embed_rows(model, a[:, 0], m) for a, m in ((held_out.images, "image"), (held_out.texts, "text"))
    )
    cosine = texts.mean @ images.mean.T
    own = torch.from_numpy(np.repeat(np.arange(200), np.diff(held_out.offsets)))
    ranks = torch.tensor([int((row > row[i]).sum()) for row, i in zip(cosine, own, strict=True)]).double()

    def correlate(k):
        fractions = replace(teacher, text_k=k).compute_log_fraction(texts, pool, "text")
        return float(np.corrcoef(fractions, ranks.log1p())[0, 1])

    scores = {k: correlate(k) for k in FACTORS}
    assert teacher.text_k == max(
        k for k, score in scores.items() if score >= max(scores.values()) - TOLERANCE
    )


def test_likelihood_model_has_a_scale_of_its_own_for_cosines(model):
    assert get_cosine_scale(model) == pytest.approx(1 / 0.07)
    assert get_cosine_scale(make_model("encoder")) == pytest.approx(10.0)
