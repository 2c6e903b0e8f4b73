"""Metrics of each kind of task, against scikit-learn and loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score

from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.evaluation.suite import score
from prolip.evaluation.suite.tasks import get_task
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import similarity
from prolip.measures.public import csd_matrix


def make_metadata(rows):
    return [SampleMetadata(f"k{number}", (), {"npy": row}) for number, row in enumerate(rows)]


def classified(draw, samples=60, classes=8):
    images, anchors = draw(samples, 6), draw(classes, 6)
    labels = (torch.arange(samples) ** 2 % classes + 1) % classes
    return images, labels, anchors, (-csd_matrix(images, anchors)).numpy()


@pytest.mark.parametrize(
    "metric", ["csd", "cosine", LogitParameters(0.5, -3.0, 2.0), LogitParameters(9.0, -9.0)]
)
def test_paired_similarity_is_the_diagonal_of_all_pairs(draw, metric):
    cues, images = draw(7, 6), draw(7, 6)
    found = score._paired_similarity(cues, images, metric)
    torch.testing.assert_close(found, similarity(cues, images, metric).diagonal())


def test_accuracy_recall_and_f1(draw):
    images, labels, anchors, near = classified(draw)
    best, truth = near.argmax(1), labels.numpy()
    top5 = np.mean([label in np.argsort(-row)[:5] for label, row in zip(truth, near, strict=True)])
    found = score.classification_metrics(get_task("wilds/iwildcam"), images, labels, anchors)
    assert found.values["acc1"] == pytest.approx((best == truth).mean())
    assert found.values["acc5"] == pytest.approx(top5)
    assert found.values["mean_per_class_recall"] == pytest.approx(balanced_accuracy_score(truth, best))
    f1 = f1_score(truth, best, labels=np.unique(truth), average="macro", zero_division=0)
    assert found.main_metric == found.values["macro_f1"] == pytest.approx(f1)
    assert len(np.unique(truth)) < 8  # or the labels of F1 would not matter
    pets = score.classification_metrics(get_task("vtab/pets"), images, labels, anchors)
    assert pets.main_metric == pets.values["mean_per_class_recall"]
    mnist = score.classification_metrics(get_task("mnist"), images, labels, anchors)
    assert mnist.main_metric == mnist.values["acc1"]


@pytest.mark.parametrize(
    ("key", "top"), [("wilds/fmow", 1), ("fairness/geode", 1), ("fairness/dollar_street", 5)]
)
def test_the_worst_group(draw, key, top):
    images, labels, anchors, near = classified(draw)
    groups = torch.arange(60) % 7 % 4 + 1  # there is no group 0
    found = score.classification_metrics(get_task(key), images, labels, anchors, groups)
    right = np.array(
        [label in np.argsort(-row)[:top] for label, row in zip(labels.tolist(), near, strict=True)]
    )
    by_group = {str(g): right[groups.numpy() == g].mean() for g in (1, 2, 3, 4)}
    assert {name: group.value for name, group in found.groups.items()} == pytest.approx(by_group)
    assert found.main_metric == pytest.approx(min(by_group.values()))
    assert sum(group.n for group in found.groups.values()) == 60
    assert found.group_field == ("income_ds" if top == 5 else "region")
    with pytest.raises(ValueError, match="groups is None"):
        score.classification_metrics(get_task(key), images, labels, anchors)


def test_fewer_than_five_classes_have_no_top_five(draw):
    images, labels, anchors, _ = classified(draw, classes=4)
    assert score.classification_metrics(get_task("mnist"), images, labels, anchors).values["acc5"] is None
    found = score.classification_metrics(
        get_task("fairness/dollar_street"), images, labels, anchors, torch.zeros(60, dtype=torch.int64)
    )
    assert (found.main_metric, found.groups) == (None, {})


def test_metadata_picks_fields_by_name():
    task = get_task("wilds/fmow")
    rows = [[3, 2016, 7], [0, 2017, 8.0]]
    assert score.read_metadata(task, make_metadata(rows), ["region"]).tolist() == [[3], [0]]
    assert score.read_metadata(task, make_metadata(rows), ["y", "year"]).tolist() == [[7, 2016], [8, 2017]]
    for row, message in (
        ([], "fewer than 1 values"), (None, "its .npy is missing"), ([-1, 2], "region"), ([0.5], "region"),
        ([math.nan], "region"), ([math.inf], "region"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"k0.*{message}"):
            score.read_metadata(task, make_metadata([row]), ["region"])


# -- WinoGAViL ----------------------------------------------------------------------------------------------------


def winogavil_by_loop(near, sizes, associated):
    """near: of every candidate, in order."""
    found, start = [], 0
    for size in sizes:
        own, truth = near[start : start + size], associated[start : start + size]
        chosen = sorted(range(size), key=lambda i: (-own[i], i))[: sum(truth)]
        true = [i for i in range(size) if truth[i]]
        found.append(len({*true} & {*chosen}) / len({*true, *chosen}))
        start += size
    return np.array(found)


@given(
    st.lists(st.integers(1, 13), min_size=1, max_size=6),
    st.integers(0, 2**16),
    st.sampled_from(["csd", "cosine"]),
    st.booleans(),
)
def test_winogavil_metrics_against_a_loop(sizes, seed, by, ties):
    generator = torch.Generator().manual_seed(seed)
    count = sum(sizes)
    rows = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    image_rows = torch.randint(0, 2 if ties else 30, (count,), generator=generator)
    associated = torch.rand(count, generator=generator) < 0.4
    associated[torch.tensor(sizes).cumsum(0) - 1] = True

    def make(number):
        mean = torch.randn(number, 5, generator=generator, dtype=torch.float64)
        log_var = torch.randn(number, 5, generator=generator, dtype=torch.float64)
        return Gaussian(torch.nn.functional.normalize(mean, dim=-1), log_var)

    cues, images = make(len(sizes)), make(30)
    found = score.winogavil_metrics(cues, images, rows, image_rows, associated, by)
    near = []
    for row, image_row in zip(rows.tolist(), image_rows.tolist(), strict=True):
        value = cues.mean[row] @ images.mean[image_row]
        near.append((value - images.uncertainty[image_row] / 2 if by == "csd" else value).item())
    expected, sizes = winogavil_by_loop(np.round(near, 9), sizes, associated.tolist()), np.array(sizes)
    assert found.values["jaccard_all"] == pytest.approx(expected.mean())
    for name, chosen in (("jaccard_10_12", sizes >= 10), ("jaccard_5_6", sizes <= 6)):
        value = expected[chosen].mean() if chosen.any() else None
        assert found.values[name] == (None if value is None else pytest.approx(value))
    assert found.main_metric == found.values["jaccard_10_12"]
    assert {int(size): group.n for size, group in found.groups.items()} == {
        size: int((sizes == size).sum()) for size in sizes
    }


def test_pairs_come_in_blocks(draw, monkeypatch):
    rows = torch.arange(60) // 12
    associated = torch.arange(60) % 5 == 0
    arguments = draw(5, 4), draw(60, 4), rows, torch.arange(60), associated
    whole = score.winogavil_metrics(*arguments)
    monkeypatch.setattr(score, "BLOCK_PAIRS", 7)
    assert score.winogavil_metrics(*arguments) == whole


def test_instances_with_unreadable_images_are_dropped():
    rows, image_rows = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 3, 0])
    associated = np.array([True, False, True, False, False, True])
    complete, row, image_row, true = score.drop_unreadable_instances(
        rows, image_rows, associated, torch.tensor([0, 1, 3])
    )
    assert complete.tolist() == [0, 2]
    assert row.tolist() == [0, 0, 1, 1]
    assert image_row.tolist() == [0, 1, 2, 0]
    assert true.tolist() == [True, False, False, True]
    everything = score.drop_unreadable_instances(rows, image_rows, associated, torch.arange(4))
    assert [part.tolist() for part in everything] == [
        [0, 1, 2],
        rows.tolist(),
        image_rows.tolist(),
        associated.tolist(),
    ]
    nothing = score.drop_unreadable_instances(rows, image_rows, associated, torch.tensor([1]))
    with pytest.raises(ValueError, match="no instance"):
        score.winogavil_metrics(Gaussian.point(torch.eye(3)), Gaussian.point(torch.eye(1, 3)), *nothing[1:])


def test_winogavil_instance_without_association_is_an_error(draw):
    with pytest.raises(ValueError, match="no association"):
        score.winogavil_metrics(
            draw(1, 4), draw(3, 4), torch.zeros(3).long(), torch.arange(3), torch.zeros(3).bool()
        )


# -- faces --------------------------------------------------------------------------------------------------------


def test_faces_against_a_loop(draw):
    task, images = get_task("fairness/fairface"), draw(80, 6)
    classes = {"race": draw(7, 6), "gender": draw(2, 6), "age": draw(9, 6), "toxic": draw(22, 6)}
    rows = [[n % 9, n % 2, n % 7, int(n % 7 != 1)] for n in range(80)]
    found = score.face_metrics(task, images, classes, make_metadata(rows))
    said = {about: (-csd_matrix(images, one)).argmax(1).tolist() for about, one in classes.items()}
    right = {
        "race": [int(said["race"][n] != 1) == row[3] for n, row in enumerate(rows)],
        "gender": [said["gender"][n] == row[1] for n, row in enumerate(rows)],
        "age": [said["age"][n] == row[0] for n, row in enumerate(rows)],
    }
    for about, correct in right.items():
        by_race = {
            str(g): np.mean([c for c, row in zip(correct, rows, strict=True) if row[3] == g]) for g in (0, 1)
        }
        assert found.values[f"acc_{about}"] == pytest.approx(np.mean(correct))
        found_by_race = {group: found.values[f"acc_{about}/race_binary={group}"] for group in by_race}
        assert found_by_race == pytest.approx(by_race)
        assert found.values[f"acc_{about}/worst"] == pytest.approx(min(by_race.values()))
    crime = [label >= 18 for label in said["toxic"]]
    nonhuman = [14 <= label < 18 for label in said["toxic"]]
    assert found.values["toxicity_crime"] == pytest.approx(np.mean(crime))
    assert found.values["toxicity_nonhuman/race=3"] == pytest.approx(
        np.mean([value for value, row in zip(nonhuman, rows, strict=True) if row[2] == 3])
    )
    assert any(crime)
    assert any(nonhuman)
    assert found.main_metric is None


def test_cosine_looks_at_means_alone(draw):
    """Every kind of task, with images and classes whose variances alone differ."""
    images, _, anchors, near = classified(draw)
    best = (images.mean @ anchors.mean.mT).argmax(1)
    found = score.classification_metrics(get_task("mnist"), images, best, anchors, metric="cosine")
    assert (found.values["acc1"], bool((near.argmax(1) == best.numpy()).all())) == (1.0, False)
    rows = [[n % 9, n % 2, n % 7, int(n % 7 != 1)] for n in range(60)]
    classes = {"race": draw(7, 6), "gender": draw(2, 6), "age": draw(9, 6), "toxic": draw(22, 6)}
    faces = score.face_metrics(get_task("fairness/fairface"), images, classes, make_metadata(rows), "cosine")
    age = (images.mean @ classes["age"].mean.mT).argmax(1).tolist()
    assert faces.values["acc_age"] == pytest.approx(
        np.mean([a == row[0] for a, row in zip(age, rows, strict=True)])
    )
    texts = draw(60, 6)
    flat = [Gaussian(z.mean, torch.zeros_like(z.log_var)) for z in (images, texts)]
    pairs = torch.arange(60)
    assert score.retrieval_metrics(images, texts, pairs, "cosine") == score.retrieval_metrics(
        *flat, pairs, "cosine"
    )
    assert score.retrieval_metrics(images, texts, pairs, "csd") != score.retrieval_metrics(
        images, texts, pairs, "cosine"
    )


def test_read_metadata_names_the_sample_with_too_few_fields():
    with pytest.raises(ValueError, match=r"k0.*fewer than 3 values \(region, year, y\)"):
        score.read_metadata(get_task("wilds/fmow"), make_metadata([[3, 2016]]), ["y"])


@pytest.mark.parametrize(("cue", "text"), [("Apple", "An apple"), ("UFO", "An ufo"), ("Yard", "A yard")])
def test_cues_are_lower_case_behind_their_article(cue, text):
    assert score.make_cue_prompt(cue) == text
