import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from prolip.evaluation.metrics import accuracy


@st.composite
def tasks(draw, max_classes=7):
    """Scores with many ties, and labels: some classes have no sample, some are never predicted."""
    n, classes = draw(st.integers(1, 14)), draw(st.integers(1, max_classes))
    cells = draw(st.lists(st.integers(0, 3), min_size=n * classes, max_size=n * classes))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return torch.tensor(cells, dtype=torch.float32).reshape(n, classes), torch.tensor(labels)


def stable_order(row):
    """Class numbers, best first; of equal scores the lower number first."""
    return sorted(range(len(row)), key=lambda c: -row[c])


@given(tasks(), st.integers(1, 8))
def test_top_k_is_that_of_a_stable_sort(task, k):
    scores, labels = task
    found = accuracy.top_k_accuracy(scores, labels, k)
    if k > scores.shape[1]:
        assert found is None
        return
    hits = [
        label in stable_order(row)[:k] for row, label in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    assert found == pytest.approx(sum(hits) / len(hits))
    assert accuracy.top_k_correct(scores, labels, k).tolist() == hits


@given(tasks())
def test_recalls_and_f1_are_scikit_learns(task):
    scores, labels = task
    predicted = [stable_order(row)[0] for row in scores.tolist()]
    present = sorted(set(labels.tolist()))
    recalls = sk.recall_score(labels, predicted, labels=present, average=None, zero_division=0)
    found = accuracy.per_class_recall(scores, labels)
    assert found[present].tolist() == pytest.approx(recalls)
    assert sum(math.isnan(r) for r in found.tolist()) == scores.shape[1] - len(present)
    assert accuracy.mean_per_class_recall(scores, labels) == pytest.approx(recalls.mean())
    f1 = sk.f1_score(labels, predicted, labels=present, average="macro", zero_division=0)
    assert accuracy.macro_f1(scores, labels) == pytest.approx(f1)


def test_large_random_task_against_scikit_learn(generator):
    scores = torch.randn(500, 20, generator=generator)
    labels = torch.randint(20, (500,), generator=generator)
    for k in (1, 5):
        wanted = sk.top_k_accuracy_score(labels, scores, k=k, labels=range(20))
        assert accuracy.top_k_accuracy(scores, labels, k) == pytest.approx(wanted)
    wanted = sk.balanced_accuracy_score(labels, scores.argmax(1))
    assert accuracy.mean_per_class_recall(scores, labels) == pytest.approx(wanted)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40))
def test_the_worst_group_is_the_least_mean_over_groups_that_have_samples(pairs):
    values, groups = torch.tensor([v for v, _ in pairs]), torch.tensor([g for _, g in pairs])
    worst, by_group = accuracy.worst_group_mean(values, groups)
    wanted = {g: [v for v, own in pairs if own == g] for g in {g for _, g in pairs}}
    assert by_group == pytest.approx({g: sum(vs) / len(vs) for g, vs in wanted.items()})
    assert worst == min(by_group.values())


def test_the_worst_group_takes_top_5(generator):
    scores = torch.randn(60, 9, generator=generator)
    labels, groups = torch.randint(9, (60,), generator=generator), torch.arange(60) % 3
    worst, by_group = accuracy.worst_group_mean(accuracy.top_k_correct(scores, labels, 5), groups)
    each = [accuracy.top_k_accuracy(scores[groups == g], labels[groups == g], 5) for g in range(3)]
    assert list(by_group.values()) == pytest.approx(each)
    assert worst == pytest.approx(min(each))


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), "from 0 to 2"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), "from 0 to 2"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), "must be"),
        (torch.zeros(0, 3), torch.zeros(0).long(), "not empty"),
        (torch.zeros(1, 3), torch.zeros(1), "int64"),
        (torch.full((1, 3), torch.nan), torch.tensor([0]), "NaN"),
    ],
)
def test_bad_input_is_reported(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        accuracy.top_k_accuracy(scores, labels)


def test_negative_groups_are_refused():
    with pytest.raises(ValueError, match="not negative"):
        accuracy.worst_group_mean(torch.ones(2), torch.tensor([0, -1]))
