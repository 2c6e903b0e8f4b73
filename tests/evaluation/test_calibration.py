"""Tests of `calibrate`: simulated scorers with known scale and bias, and scenes whose truth is known by meaning."""

import csv
import itertools
import math
from pathlib import Path

import pytest
import torch

import prolip
from prolip.data.open import open_data
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import calibrate, calibration
from prolip.evaluation.configs import CalibrateConfig
from prolip.measures.match import LogitParameters

SUBJECT = calibration.CalibrationSubject(
    identity="0123456789abcdef", data="simulated", fingerprint="ff", has_probability=True
)


def simulate_pairs(num_images, texts_per_image=1, *, separation=4.0, scale=1.0, bias=0.0, seed=0):
    """Logits (s - bias) / scale, where exp(s) is the likelihood ratio: s is N(+-d/2, d) for (no) matches."""
    generator = torch.Generator().manual_seed(seed)
    image_of_text = torch.arange(num_images).repeat_interleave(texts_per_image)
    noise = torch.randn(num_images, len(image_of_text), generator=generator, dtype=torch.float64)
    is_match = torch.arange(num_images)[:, None] == image_of_text
    ratio = math.sqrt(separation) * noise + torch.where(is_match, separation / 2, -separation / 2)
    return (ratio - bias) / scale, image_of_text


def check_reliability(probabilities, is_match, edges=(0.0, 0.05, 0.15, 0.3, 0.5, 1.0)):
    """In every bin of probability the fraction of matches is the mean probability, within four standard errors."""
    for low, high in itertools.pairwise(edges):
        p, match = (
            values[(probabilities > low) & (probabilities <= high)] for values in (probabilities, is_match)
        )
        if len(p) > 30:
            error = (p * (1 - p)).sum().sqrt() / len(p)
            assert match.double().mean() == pytest.approx(p.mean().item(), abs=4 * error.item())


@pytest.mark.parametrize(("scale", "bias", "texts"), [(1.0, 0.0, 1), (0.4, 3.0, 2), (7.0, -2.0, 1)])
def test_fit_recovers_scale_and_bias_of_the_likelihood_ratio(scale, bias, texts):
    logits, image_of_text = simulate_pairs(600, texts, scale=scale, bias=bias)
    found = calibration.calibrate_pairs(logits, image_of_text, SUBJECT)
    assert found.scale == pytest.approx(scale, rel=0.06)
    assert found.bias == pytest.approx(bias, abs=0.15)
    assert (found.num_images, found.num_pairs, found.texts_per_image) == (600, 600 * texts, texts)
    assert found.prior == 1 / 600


def test_calibrated_scorer_stays_as_it_is():
    """A scorer with the prior of the held-out half has nothing to gain."""
    logits, image_of_text = simulate_pairs(600, bias=math.log(299))  # the prior of 300 images
    found = calibration.calibrate_pairs(logits, image_of_text, SUBJECT)
    assert found.scale == pytest.approx(1.0, rel=0.06)
    assert found.errors_after.log_loss == pytest.approx(found.errors_before.log_loss, rel=0.01)
    assert found.errors_after.ece < 6e-4
    assert found.errors_before.ece < 6e-4


def test_miscalibrated_scorer_improves_on_the_held_out_half():
    logits, image_of_text = simulate_pairs(600, separation=9.0, scale=0.5, bias=3.0)
    found = calibration.calibrate_pairs(logits, image_of_text, SUBJECT)
    for before, after in (
        (found.errors_before, found.errors_after),
        (found.shown_before, found.shown_after),
    ):
        assert after.ece < 0.2 * before.ece
        assert after.brier < before.brier
        assert after.log_loss < before.log_loss


@pytest.mark.parametrize("num_images", [100, 500, 2000])
def test_a_quarter_of_results_with_a_quarter_match_in_a_database_of_any_size(num_images):
    logits, image_of_text = simulate_pairs(500, separation=12.0, scale=0.5, bias=3.0)
    found = calibration.calibrate_pairs(logits, image_of_text, SUBJECT)
    items, own = simulate_pairs(num_images, separation=12.0, scale=0.5, bias=3.0, seed=1)
    p = found.match_logits(items, found.get_prior("text", num_images)).sigmoid()
    assert num_images > 100 or (p > 0.3).sum() > 30
    check_reliability(p.flatten(), (torch.arange(num_images)[:, None] == own).flatten())


def test_thresholds_have_their_coverage():
    """Over 300 calibrations, of 60 images each: (60 + 1) 0.9 is 55 of 61."""
    covered = []
    for seed in range(300):
        logits, own = simulate_pairs(61, seed=seed)
        pairs = calibration._Pairs(logits[:60, :60], own[:60], torch.arange(60))
        covered.append(float(logits[60, 60] >= pairs.find_threshold(0.9)))
    assert sum(covered) / 300 == pytest.approx(55 / 61, abs=0.07)
    found = calibration.calibrate_pairs(*simulate_pairs(600), SUBJECT)
    for check in found.coverage:
        assert check.measured == pytest.approx(check.coverage, abs=0.08)
        assert check.num_images == 300
        assert 0 < check.mean_size < 300
    assert [check.mean_size for check in found.coverage] == sorted(
        check.mean_size for check in found.coverage
    )
    assert list(found.thresholds) == sorted(found.thresholds, reverse=True)


def test_texts_of_one_image_are_in_one_half_and_one_of_them_sets_thresholds():
    logits, image_of_text = simulate_pairs(30, 3)
    drawn = calibration._draw_texts(image_of_text, torch.Generator().manual_seed(0))
    assert image_of_text[drawn].tolist() == list(range(30))
    part = calibration._Pairs(logits, image_of_text, drawn).take(torch.tensor([2, 7, 29]))
    assert part.logits.shape == (3, 9)
    assert torch.equal(part.logits, logits[[2, 7, 29]][:, [6, 7, 8, 21, 22, 23, 87, 88, 89]])
    assert part.image_of_text.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert torch.equal(
        part.logits.gather(1, part.drawn[:, None])[:, 0], logits[[2, 7, 29], drawn[[2, 7, 29]]]
    )


def test_softmax_model_has_no_probabilities_before():
    subject = calibration.CalibrationSubject(
        identity="0" * 16, data="d", fingerprint="f", has_probability=False
    )
    found = calibration.calibrate_pairs(*simulate_pairs(100), subject)
    assert found.errors_before is None
    assert found.shown_before is None
    assert found.errors_after.ece < 0.01


def test_pairs_that_cannot_be_calibrated_are_refused():
    logits, own = simulate_pairs(100)
    with pytest.raises(ValueError, match="don't have larger logits"):
        calibration.calibrate_pairs(-logits, own, SUBJECT)
    with pytest.raises(ValueError, match="logits of all matches are larger"):
        calibration.calibrate_pairs(simulate_pairs(60, separation=400.0)[0], own[:60], SUBJECT)
    logits[3, 5] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        calibration.calibrate_pairs(logits, own, SUBJECT)


# -- judgements ----------------------------------------------------------------------------------------------------


def simulate_judgements(count, judges, seed=0):
    """Logits, mean votes and images: a judge says "match" with the probability sigmoid(2 logit + 1)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(count, generator=generator, dtype=torch.float64) - 1
    votes = torch.rand(count, judges, generator=generator) < torch.sigmoid(2 * logits + 1)[:, None]
    return logits, votes.double().mean(1), torch.arange(count) // 4


@pytest.mark.parametrize("judges", [1, 3])
def test_judgements_give_the_expected_score(judges):
    logits, scores, images = simulate_judgements(4000, judges)
    found = calibration.calibrate_judgements(logits, scores, images, SUBJECT)
    assert found.scale == pytest.approx(2, rel=0.1)
    new_logits, votes, _ = simulate_judgements(4000, 1, seed=1)
    check_reliability(found.match_logits(new_logits, found.get_prior("text", 10**6)).sigmoid(), votes)
    assert found.errors_after.ece < 0.5 * found.errors_before.ece
    assert found.thresholds == ()
    assert found.labels == "judgements"
    assert found.num_images == 1000


def test_judgements_of_one_kind_are_refused():
    logits, scores, images = simulate_judgements(40, 1)
    for score in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"all 40 judgements have the score {score:g}"):
            calibration.calibrate_judgements(logits, torch.full_like(scores, score), images, SUBJECT)


# -- scenes --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedder():
    return Embedder(model=prolip.load("scenes-tiny").eval())


@pytest.fixture(scope="module")
def source():
    return open_data("scenes:simple,size=48,length=160,seed=3")


def write_csv(path, rows, header=("key", "caption", "score")):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_calibration_of_scenes_is_deterministic_and_names_model_and_data(embedder, source):
    found = calibrate(embedder, source)
    assert found == calibrate(embedder, source)
    assert found.identity == embedder.identity
    assert found.num_images == 160
    assert found.shown_after.ece < found.shown_before.ece
    parameters = embedder.logit_parameters
    assert isinstance(parameters, LogitParameters)
    # trained with one match among 128: the bias undoes that prior
    assert found.bias == pytest.approx(math.log(127), abs=0.7)
    assert calibrate(embedder, source, CalibrateConfig(limit=80)).fingerprint != found.fingerprint


def test_judgements_of_scenes_by_meaning(embedder, source, tmp_path):
    """Of pairs a caption has one image; by meaning it is true of others too, so that more of its results match."""
    samples = [source.read(index) for index in range(len(source))]
    texts = ["a red circle", "a circle", "a blue square", "a large star", "two things", "a green thing"]
    rows = [
        (sample.key, text, int(source.is_true_caption(index, text)))
        for index, sample in enumerate(samples)
        for text in texts
    ]
    path = write_csv(tmp_path / "judged.csv", rows)
    judged = calibrate(embedder, source, CalibrateConfig(judgements=path))
    assert judged.num_pairs == 160 * 6
    assert judged.prior == pytest.approx(sum(row[2] for row in rows) / len(rows))
    images = embedder.embed_images(source).images
    logits = embedder.logit_parameters.logits_matrix(images, embedder.embed_texts(texts)).flatten()
    truth = torch.tensor([row[2] for row in rows])
    by_judgement = judged.match_logits(logits, judged.get_prior("text", 160)).sigmoid()
    pairs = calibrate(embedder, source)
    by_pairs = pairs.match_logits(logits, pairs.get_prior("text", 160)).sigmoid()
    top = by_judgement.argsort(descending=True)[:60]
    assert by_judgement[top].mean().item() == pytest.approx(truth[top].double().mean().item(), abs=0.1)
    assert by_pairs[top].mean() < 0.5 * truth[top].double().mean()


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (
            [("k", "a red circle", "0.5")] * 30,
            ("key", "caption", "vote"),
            "row 2 needs the columns key, caption",
        ),
        ([("nobody", "a red circle", "0.5")] * 30, None, "no image of .* has the key 'nobody'"),
        ([(0, "a red circle", "nan")] * 30, None, "row 2: score must be a number from 0 to 1, not 'nan'"),
        ([(0, "a red circle", "1.5")] * 30, None, "not '1.5'"),
        ([(0, "a red circle", "yes")] * 30, None, "not 'yes'"),
        ([(0, "a red circle", "1")] * 5, None, "has 5 judgements: .* at least 20"),
        ([], None, "has 0 judgements"),
    ],
)
def test_bad_judgements_are_refused(embedder, source, tmp_path, rows, header, message):
    key = source.read(0).key
    rows = [(key if row[0] == 0 else row[0], *row[1:]) for row in rows]
    path = write_csv(tmp_path / "judged.csv", rows, header or ("key", "caption", "score"))
    with pytest.raises(ValueError, match=message):
        calibrate(embedder, source, CalibrateConfig(judgements=path))


def test_too_few_images_are_refused(embedder, source):
    with pytest.raises(ValueError, match=r"has 12 images with captions: .* at least 20"):
        calibrate(embedder, source, CalibrateConfig(limit=12))
    with pytest.raises(FileNotFoundError, match="judgements does not exist"):
        calibrate(embedder, source, CalibrateConfig(limit=12, judgements=Path("missing.csv")))
