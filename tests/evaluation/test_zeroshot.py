import csv
import dataclasses
import io
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from sklearn.metrics import log_loss, roc_auc_score

from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import zeroshot
from prolip.evaluation.configs import ZeroShotConfig
from prolip.evaluation.metrics.confidence import CONFIDENCES, Confidences
from prolip.evaluation.metrics.conformal import evaluate_class_sets
from prolip.evaluation.zeroshot_result import ZeroShotResult
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import similarity
from prolip.measures.public import csd_matrix
from prolip.mixture import pool
from tests.filtering import made_embeddings

TEMPERATURE = LogitParameters(20.0, -12.0)


@pytest.fixture
def task(draw, generator):
    """60 images near their classes, the first of them more uncertain and more often wrong; 40 images of no class."""
    classes = draw(6, 8, low=-5.0, high=-4.0, dtype=torch.float32)
    labels = torch.arange(60) % 6
    noise = torch.linspace(1.0, 0.1, 60)[:, None] * torch.randn(60, 8, generator=generator)
    mean = torch.nn.functional.normalize(classes.mean[labels] + noise, dim=-1)
    log_var = torch.linspace(-2.0, -5.0, 60)[:, None].expand(60, 8)
    return Gaussian(mean, log_var), labels, classes, draw(40, 8, low=-2.0, high=-1.0, dtype=torch.float32)


def judge(task, logits=TEMPERATURE, **options):
    images, labels, classes, ood = task
    config = ZeroShotConfig(**options)
    return zeroshot.compute_zeroshot_metrics(images, labels, classes, config, logits=logits, ood=ood)


def deterministic(task):
    images, labels, classes, ood = task
    return Gaussian.point(images.mean), labels, Gaussian.point(classes.mean), Gaussian.point(ood.mean)


def write(result):
    """The JSON of a result, which must not hold NaN or tensors, and must be complete."""
    json.dumps(dataclasses.asdict(result), allow_nan=False)
    assert ZeroShotResult.from_json(result.to_json()) == result
    return result.to_json()


def printed(result):
    console = Console(width=200, record=True, file=io.StringIO())
    for table in result.tables():
        console.print(table)
    return console.export_text()


def test_accuracy_is_that_of_the_nearest_class_by_csd(task):
    images, labels, classes, _ = task
    result = judge(task)
    distance = csd_matrix(images, classes)
    assert result.top1.value == pytest.approx((distance.argmin(1) == labels).double().mean().item())
    near = distance.topk(5, largest=False).indices
    assert result.top5.value == pytest.approx((near == labels[:, None]).any(1).double().mean().item())
    assert 0.5 < result.top1.value < 1.0
    assert result.mean_per_class_recall == pytest.approx(result.top1.value), "classes of one size"
    cosine = judge(task, rank_by="cosine")
    assert cosine.top1.value == pytest.approx(
        ((images.mean @ classes.mean.T).argmax(1) == labels).double().mean().item()
    )


LIKELIHOOD = LogitParameters(1e-3, -3.0, 4.0)


def test_a_likelihood_is_ranked_by_its_match(task):
    images, labels, classes, ood = task
    result = judge(task, LIKELIHOOD)
    logits = torch.tensor(
        [[LIKELIHOOD.logits(z[None], classes[[c]]).item() for c in range(6)] for z in images],
        dtype=torch.float64,
    )
    assert result.rank_by == "match"
    assert result.top1.value == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert result.top1.value != judge(task, LIKELIHOOD, rank_by="csd").top1.value
    assert (result.logit_scale, result.logit_bias) == (1.0, -3.0)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))[30:]
    p, y = torch.sigmoid(logits[order]), torch.nn.functional.one_hot(labels[order], 6)
    assert result.calibration.sigmoid.raw.pairs.brier == pytest.approx(
        (p - y).square().mean().item(), rel=1e-4
    )
    softmax = torch.softmax(logits[order], 1)
    brier = (softmax - y).square().sum(1).mean().item()
    assert result.calibration.softmax.raw.metrics.brier == pytest.approx(brier, rel=1e-4)
    inside, outside = logits.amax(1), LIKELIHOOD.logits_matrix(ood, classes).double().amax(1)
    wins = (inside[:, None] > outside).double().mean().item()
    assert result.ood.match.auroc == pytest.approx(wins, abs=1e-3)
    write(result)


def test_a_likelihood_has_no_match_probability_by_csd(task):
    result = judge(task, LIKELIHOOD, rank_by="csd")
    assert (result.rank_by, result.logit_scale, result.logit_bias) == ("csd", 1.0, None)
    assert result.calibration.sigmoid is None


def test_the_match_of_ppcl_is_csd(task):
    assert dataclasses.replace(judge(task, rank_by="match"), rank_by="csd") == judge(task)
    with pytest.raises(ValueError, match="softmax"):
        judge(task, LogitParameters(20.0, None), rank_by="match")


def test_uncertainty_predicts_errors_of_constructed_data(task):
    result = judge(task)
    assert result.uncertainty.mean.value == pytest.approx(task[0].uncertainty.mean().item())
    assert len(result.uncertainty.deciles) == 10
    assert result.uncertainty.correlation.deciles < -0.5
    parts = result.selective
    assert parts.oracle_aurc <= parts.uncertainty.aurc < parts.error
    assert parts.uncertainty.auroc > 0.6
    assert parts.error == pytest.approx(1 - result.top1.value)
    assert parts.pool_perplexity is None
    for name in CONFIDENCES[:-1]:
        assert parts.get(name).excess_aurc == pytest.approx(parts.get(name).aurc - parts.oracle_aurc)
        assert parts.get(name).curve.risk[-1] == pytest.approx(parts.error)


def test_confidences_are_what_they_are_called(task):
    images, _, classes, _ = task
    scale, bias, *_ = TEMPERATURE
    scores = similarity(images, classes)
    found = Confidences.from_scores(images, scores, TEMPERATURE)
    softmax = torch.softmax(scale * scores.double(), 1).amax(1)
    assert found.display["max_softmax"].tolist() == pytest.approx(softmax.tolist())
    match = torch.sigmoid(scale * scores.double() + bias).amax(1)
    assert found.display["match"].tolist() == pytest.approx(match.tolist())
    for name, shown in (("max_softmax", softmax), ("match", match)):
        assert found.ranking[name].argsort().tolist() == shown.argsort().tolist()


def test_the_class_perplexity_is_that_of_the_softmax_over_classes(task):
    images, labels, classes, _ = task
    scores = similarity(images, classes)
    found = Confidences.from_scores(images, scores, TEMPERATURE)
    expected = []
    for row in scores.double().tolist():
        weights = [math.exp(TEMPERATURE.scale * score) for score in row]
        p = [weight / sum(weights) for weight in weights]
        expected.append(math.exp(-sum(value * math.log(value) for value in p)))
    assert found.display["class_perplexity"].tolist() == pytest.approx(expected)
    assert "pool_perplexity" not in found.display
    correct = scores.argmax(1) == labels
    wanted = roc_auc_score(~correct, expected)
    assert judge(task).selective.class_perplexity.auroc == pytest.approx(wanted)


def test_confident_predictions_are_ranked_where_probabilities_saturate(task):
    images, _, classes, _ = task
    found = Confidences.from_scores(images, similarity(images, classes), LogitParameters(1e5, 0.0))
    assert (found.display["max_softmax"] == 1).sum() > 30
    assert len(found.ranking["max_softmax"].unique()) == len(images)


def test_ood_images_are_detected_by_uncertainty(task):
    images, _, classes, ood = task
    result = judge(task).ood
    assert result.n == 40
    outside = torch.arange(100) >= 60
    uncertainty = torch.cat([images.uncertainty, ood.uncertainty])
    softmax = torch.softmax(
        TEMPERATURE[0] * similarity(Gaussian.cat([images, ood]), classes).double(), 1
    ).amax(1)
    assert result.uncertainty.auroc == pytest.approx(roc_auc_score(outside, uncertainty))
    assert result.max_softmax.auroc == pytest.approx(roc_auc_score(outside, -softmax))
    assert result.pool_perplexity is None
    for name in CONFIDENCES[:-1]:
        histograms = result.get(name)
        assert len(histograms.edges) == len(histograms.in_distribution) + 1
        for fractions in (histograms.in_distribution, histograms.out_of_distribution):
            assert sum(fractions) == pytest.approx(1.0)


def test_fits_are_made_on_one_half_and_judged_on_the_other(task):
    images, labels, classes, _ = task
    result = judge(task, seed=3).calibration
    assert (result.n_fit, result.n_test) == (30, 30)
    half = torch.randperm(60, generator=torch.Generator().manual_seed(3))[30:]
    scores = similarity(images, classes)[half].double()
    for kind in ("raw", "fitted"):
        part = getattr(result.softmax, kind)
        p = torch.softmax(part.scale * scores, 1)
        assert part.metrics.log_loss == pytest.approx(log_loss(labels[half], p, labels=range(6)))
        pair = getattr(result.sigmoid, kind)
        p = torch.sigmoid(pair.scale * scores + pair.bias).flatten()
        match = torch.nn.functional.one_hot(labels[half], 6).flatten()
        assert pair.pairs.log_loss == pytest.approx(log_loss(match, p))
    assert (result.softmax.raw.scale, result.sigmoid.raw.bias) == TEMPERATURE[:2]
    assert result.sigmoid.fitted.pairs.log_loss < result.sigmoid.raw.pairs.log_loss
    assert judge(task, seed=4).calibration.softmax.fitted.scale != pytest.approx(
        result.softmax.fitted.scale, rel=1e-6
    )


def test_no_label_of_the_judged_half_reaches_a_fit(task):
    images, labels, classes, _ = task
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    other = labels.clone()
    other[order[30:]] = (other[order[30:]] + 1) % 6
    first, second = (
        zeroshot.compute_zeroshot_metrics(images, own, classes, logits=TEMPERATURE).calibration
        for own in (labels, other)
    )
    assert first.softmax.fitted.scale == second.softmax.fitted.scale
    for fitted in ("fitted", "fitted_to_predictions"):
        one, other = (getattr(part.sigmoid, fitted) for part in (first, second))
        assert (one.scale, one.bias) == (other.scale, other.bias)
    assert first.softmax.fitted.metrics.log_loss < second.softmax.fitted.metrics.log_loss
    assert first.sigmoid.raw.pairs.log_loss < second.sigmoid.raw.pairs.log_loss


def test_fit_to_predictions_differs_from_fit_to_pairs(generator):
    """One scale and bias calibrate all pairs, but not the best pair of each image."""
    classes = torch.nn.functional.normalize(torch.randn(200, 32, generator=generator), dim=-1)
    labels = torch.randint(200, (3000,), generator=generator)
    noise = 0.3 * torch.randn(3000, 32, generator=generator)
    images = torch.nn.functional.normalize(classes[labels] + noise, dim=-1)
    result = zeroshot.compute_zeroshot_metrics(
        Gaussian.point(images), labels, Gaussian.point(classes), logits=(100.0, -10.0)
    ).calibration.sigmoid
    assert result.fitted.pairs.ece < 0.01
    assert result.fitted.predicted.ece > 0.1 > 0.06 > result.fitted_to_predictions.predicted.ece


def test_results_are_json_and_the_same_again(task):
    assert write(judge(task)) == write(judge(task))


def test_tables_show_the_numbers(task):
    result = judge(task)
    text = printed(result)
    assert f"{100 * result.top1.value:.1f} ({100 * result.top1.low:.1f} to" in text
    assert f"{result.calibration.softmax.raw.metrics.ece:.4f}" in text
    assert f"{result.selective.match.aurc:.4f}" in text
    assert f"{result.ood.uncertainty.auroc:.3f}" in text
    assert "match probability" in text


def test_a_deterministic_model_has_everything_but_uncertainty(task):
    result = judge(deterministic(task), logits=(20.0, None))
    write(result)
    assert result.uncertainty is result.selective.uncertainty is result.ood.uncertainty is None
    assert result.ood.mean_uncertainty is None
    assert result.calibration.sigmoid is None
    assert result.selective.match.aurc < result.selective.error
    text = printed(result)
    assert "similarity" in text
    assert "uncertainty" not in text
    cosine = judge(deterministic(task), logits=(20.0, None), rank_by="cosine")
    assert cosine.top1 == result.top1, "points are as near by CSD as by cosine"


def test_degenerate_tasks_have_none_where_nothing_is_defined(task):
    images, labels, classes, _ = task
    for rows in ([0], [0, 0, 0], [5, 11]):
        result = zeroshot.compute_zeroshot_metrics(
            images[rows], labels[rows], classes[:6], logits=TEMPERATURE
        )
        write(result)
        printed(result)
        assert (result.calibration is None) == (len(rows) == 1)
    perfect = zeroshot.compute_zeroshot_metrics(classes, torch.arange(6), classes, logits=TEMPERATURE)
    write(perfect)
    assert perfect.top1.value == 1.0
    assert perfect.uncertainty.correlation.deciles is perfect.selective.match.auroc is None
    assert perfect.calibration.sigmoid.fitted.converged
    assert perfect.calibration.sigmoid.fitted_to_predictions is None
    assert "–" in printed(perfect)
    two = zeroshot.compute_zeroshot_metrics(
        images[:9], labels[:9] % 2, classes[:2], logits=TEMPERATURE, ood=images[:1]
    )
    write(two)
    assert two.top5 is None


def test_bad_input_is_reported(task):
    images, labels, classes, _ = task
    with pytest.raises(ValueError, match="two classes"):
        zeroshot.compute_zeroshot_metrics(images, labels * 0, classes[:1], logits=TEMPERATURE)
    with pytest.raises(ValueError, match="one image"):
        zeroshot.compute_zeroshot_metrics(images[:0], labels[:0], classes, logits=TEMPERATURE)
    with pytest.raises(ValueError, match="pass None"):
        judge((images, labels, classes, images[:0]))
    with pytest.raises(ValueError, match="from 0 to 3"):
        zeroshot.compute_zeroshot_metrics(images, labels, classes[:4], logits=TEMPERATURE)


@pytest.fixture
def folder(tmp_path):
    """Three classes of three images, one of them broken."""
    random = np.random.default_rng(0)
    for name in ("red_circle", "blue_star", "green_square"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{number}.png")
    (tmp_path / "data" / "red_circle" / "1.png").write_bytes(b"not an image")
    return tmp_path / "data"


def test_a_pool_of_texts_is_one_more_confidence(nano, folder, tmp_path):
    texts = ["a thing", "a red circle", "two stars", "nothing at all"]
    pool_texts = nano.embed_texts(texts)
    embedder = Embedder(model=nano, max_bad_fraction=0.5, progress=False)
    data = open_labeled(folder, templates=["a {c}"])
    result = zeroshot.evaluate_zeroshot(
        embedder, data, ood_source=data.source, predictions_csv=tmp_path / "a.csv", pool=pool_texts
    )
    write(result)
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    images = embedder.embed_images(data.source).images
    for image, row in zip(images, rows, strict=True):
        logits = [
            nano.logit_parameters.logits(image[None], text[None]).double().item() for text in pool_texts
        ]
        total = sum(map(math.exp, logits))
        entropy = -sum(math.exp(value) / total * (value - math.log(total)) for value in logits)
        assert float(row["pool_perplexity"]) == pytest.approx(math.exp(entropy), rel=1e-4)
    wrong = [row["correct"] == "0" for row in rows]
    wanted = roc_auc_score(wrong, [float(row["pool_perplexity"]) for row in rows])
    assert result.selective.pool_perplexity.auroc == pytest.approx(wanted)
    assert result.ood.pool_perplexity.auroc == pytest.approx(0.5)
    assert "perplexity over the pool" in printed(result)


def test_a_pool_of_another_model_is_refused(nano, folder, tmp_path):
    z = made_embeddings.gaussians(2)
    made_embeddings.write(tmp_path / "e", [made_embeddings.pairs(z[:1], z[1:])])
    embedder = Embedder(model=nano, max_bad_fraction=0.5, progress=False)
    with pytest.raises(ValueError, match=r"embedded by synthetic .* not by the model that is evaluated"):
        zeroshot.evaluate_zeroshot(embedder, open_labeled(folder), pool=tmp_path / "e")


def test_evaluate_zeroshot_on_a_folder_of_images(nano, folder, tmp_path):
    data = open_labeled(folder, templates=["a {c}", "a small {c}"])
    result = zeroshot.evaluate_zeroshot(
        Embedder(model=nano, cache=tmp_path / "cache", max_bad_fraction=0.5, progress=False),
        data,
        ood_source=data.source,
    )
    write(result)
    assert (result.n, result.num_bad, result.num_classes) == (8, 1, 3)
    assert result.templates == ("a {c}", "a small {c}")
    assert result.ood.n == 8
    assert result.ood.match.auroc == pytest.approx(0.5), "the same images inside and outside"
    names = [name.replace("_", " ") for name in sorted(path.name for path in folder.iterdir())]
    prompts = nano.embed_texts([t.format(c=name) for name in names for t in ("a {c}", "a small {c}")])
    classes = pool(Gaussian(prompts.mean.reshape(3, 2, -1), prompts.log_var.reshape(3, 2, -1)))
    files = [path for path in sorted(folder.rglob("*.png")) if path.parts[-2:] != ("red_circle", "1.png")]
    images = nano.embed_images(files)
    labels = torch.tensor([names.index(path.parent.name.replace("_", " ")) for path in files])
    nearest = csd_matrix(images, classes).argmin(1)
    assert result.top1.value == pytest.approx((nearest == labels).double().mean().item())
    assert (result.logit_scale, result.logit_bias) == (pytest.approx(10.0), pytest.approx(-10.0))
    given = zeroshot.evaluate_zeroshot(
        Embedder(model=nano, max_bad_fraction=0.5, progress=False), data, classes=classes[[1, 2, 0]]
    )
    other = csd_matrix(images, classes[[1, 2, 0]]).argmin(1)
    assert given.top1.value == pytest.approx((other == labels).double().mean().item())


def test_the_temperature_of_a_softmax_model_has_no_bias(nano):
    assert Embedder(model=nano).logit_parameters == (pytest.approx(10.0), pytest.approx(-10.0), None, True)
    nano.logit_bias = None
    assert Embedder(model=nano).logit_parameters[1] is None


def test_limit_spreads_images_and_keeps_their_indices(nano, tmp_path):
    random = np.random.default_rng(1)
    for name in ("red_circle", "blue_star"):
        (tmp_path / name).mkdir()
        for number in range(5):
            pixels = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    data = open_labeled(tmp_path)
    embedder = Embedder(model=nano, progress=False)
    result = zeroshot.evaluate_zeroshot(embedder, data, ZeroShotConfig(limit=4))
    assert result.n == result.top1.n == 4
    assert result.most_confident_errors
    for error in result.most_confident_errors:
        assert error.index in (0, 3, 6, 9)
        assert data.source.read(error.index).key == error.key
    assert zeroshot.evaluate_zeroshot(embedder, data, ZeroShotConfig(limit=99)).n == 10


def test_errors_and_nearest_images_are_detected_by_uncertainty(generator):
    mean = torch.nn.functional.normalize(torch.randn(80, 4, generator=generator), dim=-1)
    images = Gaussian(mean, torch.randn(80, 4, generator=generator))
    classes = Gaussian.point(torch.eye(4))
    labels = torch.where(torch.rand(80, generator=generator) < 0.6, mean.argmax(1), 0)
    found = zeroshot.compute_zeroshot_metrics(
        images, labels, classes, ZeroShotConfig(rank_by="cosine"), logits=(5.0, None)
    )
    wrong = mean.argmax(1) != labels
    limit = images.uncertainty[wrong].sort().values[int(0.05 * int(wrong.sum()))]
    wanted = (images.uncertainty[~wrong] >= limit).double().mean().item()
    assert found.selective.uncertainty.fpr95 == pytest.approx(wanted)
    distance = torch.cdist(mean, mean).fill_diagonal_(torch.inf)
    differs = labels[distance.argmin(1)] != labels
    pairs = images.uncertainty[differs][:, None] > images.uncertainty[~differs]
    assert found.uncertainty.nearest_image.auroc == pytest.approx(pairs.double().mean().item())
    assert found.uncertainty.nearest_image.num_positive == int(differs.sum())


def test_conformal_sets_are_measured_if_a_coverage_is_given(task):
    images, labels, classes, _ = task
    assert judge(task).conformal is None
    result = judge(task, coverage=0.8)
    conformal = result.conformal
    p = torch.softmax(20.0 * similarity(images, classes, "csd").double(), 1)
    expected = evaluate_class_sets(p, labels, images.uncertainty, 0.8, 0)
    assert conformal == expected
    assert (conformal.coverage, conformal.n_fit, conformal.n_test) == (0.8, 30, 30)
    assert conformal.lac.deciles is not None
    assert "sets of classes with coverage 0.8" in printed(result)
    write(result)
    assert judge(deterministic(task), coverage=0.8).conformal.aps.deciles is None
    with pytest.raises(ValueError, match=r"coverage 0\.99 needs at least 99 images"):
        judge(task, coverage=0.99)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        ZeroShotConfig(coverage=1.0)
