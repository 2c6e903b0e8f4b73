"""Comparison of prompt strategies: each row against a loop, images to learn from never scored, nothing lost."""

import json
from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from rich.console import Console

from prolip.data.labelled import open_labelled
from prolip.data.scenes.write import Plan as ScenesPlan
from prolip.data.scenes.write import write
from prolip.evaluate import prompts as evaluation
from prolip.evaluate import strategies
from prolip.evaluate.prompts import compare, tables
from prolip.evaluate.strategies import Plan
from prolip.gaussian import Gaussian
from prolip.mixture import pool
from prolip.zeroshot import weights as rules

CLASSES, TEMPLATES, DIM = 4, 6, 8
QUICK = Plan(few=(1, 3), runs=2, lowest=(1, 3), spreads=(0.0, 1.0))


def unit(values):
    return torch.nn.functional.normalize(values, dim=-1)


def made(seed=0, per_class=12, noise=0.8):
    """Prompts (4, 6, 8), images (48, 8) scattered about each class's centre, labels."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.eye(CLASSES, DIM)
    scatter = torch.randn(CLASSES, TEMPLATES + per_class, DIM, generator=generator)
    spread = torch.rand(CLASSES, TEMPLATES + per_class, DIM, generator=generator)
    means = unit(centres[:, None] + noise * scatter / DIM**0.5)
    z = Gaussian(means, -6.0 + 2.0 * spread)
    images = z[:, TEMPLATES:]
    flat = Gaussian(images.mean.flatten(0, 1), images.log_var.flatten(0, 1))
    return z[:, :TEMPLATES], flat, torch.arange(CLASSES).repeat_interleave(per_class)


def accuracy_by_loop(classes, images, labels, by):
    right = 0
    for image, label in zip(images, labels.tolist(), strict=True):
        scores = [
            -(image.mean - c.mean).square().sum() - c.uncertainty if by == "csd" else image.mean @ c.mean
            for c in classes
        ]
        right += max(range(len(scores)), key=lambda i: scores[i]) == label
    return right / len(labels)


def by_name(result):
    return {row["name"]: row for row in result["rows"]}


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("variance", ["average", "independent"])
def test_rows_are_what_a_loop_finds(by, variance):
    prompts, images, labels = made()
    plan = Plan(few=(), single=2, by=by, variance=variance, lowest=(3,), spreads=(1.0,), limits=(0.03,))
    rows = by_name(compare(prompts, images, labels, plan=plan))
    for name, weights in {
        "one prompt": rules.single(prompts, 2),
        "all prompts": rules.uniform(prompts),
        "class mean + 1 std": rules.below_class_spread(prompts, 1.0),
        "global mean + 1 std": rules.below_global_spread(prompts, 1.0),
        "uncertainty up to 0.03": rules.below_value(prompts, 0.03),
        "least uncertain half of all": rules.lowest_of_all(prompts, 12),
        "top-3 of each class": rules.lowest_k(prompts, 3),
    }.items():
        wanted = accuracy_by_loop(pool(prompts, weights, variance=variance), images, labels, by)
        assert rows[name]["accuracy"] == pytest.approx(wanted), name
        assert rows[name]["spread"] is None
    assert rows["one prompt"]["effective_prompts"] == pytest.approx(1.0)
    assert rows["all prompts"]["effective_prompts"] == pytest.approx(6.0)
    assert rows["top-3 of each class"]["effective_prompts"] == pytest.approx(3.0)
    assert 0.3 < rows["all prompts"]["accuracy"] < 1.0, "neither trivial nor hopeless"


def test_without_shots_everything_is_scored_and_nothing_kept():
    prompts, images, labels = made()
    result = compare(prompts, images, labels, plan=Plan(few=(), runs=1))
    assert (result["images"], result["kept"], result["kept_from"]) == (48, 0, "split")
    assert not any("images" in row["name"] and row["family"] == "control" for row in result["rows"])
    assert [entry["name"] for entry in result["learned"]] == ["BPRW, 0 images"]


def test_the_result_is_json_and_repeats_itself():
    prompts, images, labels = made()
    first, again, other = (
        json.dumps(compare(prompts, images, labels, plan=Plan(few=(2,), runs=2, seed=seed)))
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert "NaN" not in first


def test_the_papers_numbers_stand_beside():
    prompts, images, labels = made(per_class=20)
    rows = by_name(compare(prompts, images, labels, plan=Plan(runs=1)))
    wanted = {
        "one prompt": 0.737,
        "all prompts": 0.746,
        "class mean + 0 std": 0.746,
        "top-5 of each class": 0.747,
        "BPRW, 0 images": 0.747,
        "BPRW, 5 images": 0.756,
        "BPRW, 9 images": 0.758,
        "BPRW, 0 images, learned from others": None,
        "centroid of 5 images, no prompts": None,
    }
    assert {name: rows[name]["paper"] for name in wanted} == pytest.approx(wanted)


@settings(max_examples=25)
@given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 999))
def test_what_is_learned_from_is_never_scored(labels, most, seed):
    """Watched from outside: the images that are scored, and the images that EM sees, share no row."""
    labels = torch.tensor(labels)
    prompts, _, _ = made()
    generator = torch.Generator().manual_seed(seed)
    images = Gaussian(
        unit(torch.randn(len(labels), DIM, generator=generator)), torch.full((len(labels), DIM), -5.0)
    )
    scored, learned = set(), set()
    with pytest.MonkeyPatch.context() as patch:
        nearest, few = strategies.nearest, strategies.few_shot_weights

        def watch_nearest(queries, items, k, *, by):
            scored.update(row.tobytes() for row in queries.mean.numpy())
            return nearest(queries, items, k, by=by)

        def watch_few(prompts, images, labels, shots, settings, generator):
            found = few(prompts, images, labels, shots, settings, generator)
            chosen = found.chosen[found.chosen >= 0]
            learned.update(row.tobytes() for row in images.mean[chosen].numpy())
            return found

        patch.setattr(strategies, "nearest", watch_nearest)
        patch.setattr(strategies, "few_shot_weights", watch_few)
        result = compare(prompts, images, labels, plan=Plan(few=(most,), runs=1, seed=seed))
    assert not scored & learned
    assert len(scored) == result["images"] == len(labels) - result["kept"]
    assert result["kept"] == sum(min(2 * most, n // 2) for n in torch.bincount(labels).tolist())
    assert bool(learned) == (result["kept"] > 0)


def test_a_second_set_is_learned_from_and_all_of_the_first_is_scored():
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5)
    result = compare(prompts, images, labels, train=train, train_labels=train_labels, plan=QUICK)
    assert (result["images"], result["kept"], result["kept_from"]) == (48, 48, "train")


def test_pictures_that_are_also_scored_are_dropped_from_the_second_set():
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5)
    both, both_labels = Gaussian.cat([train, images[:7]]), torch.cat([train_labels, labels[:7]])
    mixed = compare(prompts, images, labels, train=both, train_labels=both_labels, plan=QUICK)
    clean = compare(prompts, images, labels, train=train, train_labels=train_labels, plan=QUICK)
    assert mixed == clean
    same = compare(prompts, images, labels, train=images, train_labels=labels, plan=QUICK)
    assert same["kept"] == 0
    assert by_name(same)["BPRW, 3 images"]["left_out"] == strategies.NO_SHOTS


def test_centroids_are_the_pooled_images():
    """As many shots as the second set has images of a class: there is nothing to choose."""
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5, per_class=3)
    result = compare(prompts, images, labels, train=train, train_labels=train_labels, plan=QUICK)
    classes = pool(Gaussian(train.mean.reshape(4, 3, DIM), train.log_var.reshape(4, 3, DIM)))
    row = by_name(result)["centroid of 3 images, no prompts"]
    assert row["accuracy"] == pytest.approx(accuracy_by_loop(classes, images, labels, "csd"))
    assert row["spread"] == pytest.approx(0.0)
    assert row["effective_prompts"] is None


def test_classes_without_images_to_learn_from_fall_back_on_prompts():
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5)
    some = train_labels < 2
    result = compare(prompts, images, labels, train=train[some], train_labels=train_labels[some], plan=QUICK)
    rows = by_name(result)
    assert rows["BPRW, 3 images"]["short_classes"] == 2
    entry = result["learned"][-1]
    assert [value is None for value in entry["entropy"]] == [False, False, True, True]
    assert [value is None for value in entry["largest"]] == [False, False, True, True]


def test_learned_weights_help_where_one_prompt_is_right():
    """Of six prompts a class only the fourth describes its images: BPRW finds it, and the accuracy shows it."""
    prompts, images, labels = made(noise=0.5, per_class=30)
    wrong = Gaussian(prompts.mean.roll(1, dims=0), prompts.log_var).mean
    mean = torch.where((torch.arange(TEMPLATES) == 3)[None, :, None], unit(torch.eye(4, DIM))[:, None], wrong)
    result = compare(Gaussian(mean, prompts.log_var), images, labels, plan=Plan(few=(5,), runs=2))
    rows = by_name(result)
    assert rows["BPRW, 5 images"]["accuracy"] > rows["all prompts"]["accuracy"] + 0.2
    entry = result["learned"][-1]
    assert [largest[0][0] for largest in entry["largest"]] == [3, 3, 3, 3]
    for row, peak in zip(entry["largest"], entry["max"], strict=True):
        assert row[0][1] == pytest.approx(peak)
        assert [w for _, w in row] == sorted((w for _, w in row), reverse=True)


def test_a_model_without_uncertainty_passes_through():
    prompts, images, labels = made()
    points = Gaussian.point(prompts.mean), Gaussian.point(images.mean)
    result = compare(*points, labels, plan=QUICK)
    rows = by_name(result)
    assert "NaN" not in json.dumps(result)
    assert result["learned"] == []
    for name in ("one prompt", "all prompts", "centroid of 3 images, no prompts"):
        assert 0.0 < rows[name]["accuracy"] <= 1.0
    for name in (
        "class mean + 0 std",
        "top-1 of each class",
        "BPRW, 0 images",
        "BPRW, 3 images, equal variances",
    ):
        assert rows[name]["accuracy"] is None
        assert rows[name]["left_out"] == strategies.NO_UNCERTAINTY
    assert rendered(result).count(strategies.NO_UNCERTAINTY) == sum(
        row["left_out"] == strategies.NO_UNCERTAINTY for row in result["rows"]
    )


def rendered(result):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(*tables(result))
    return captured.get()


def test_the_table_holds_every_row_in_percent():
    prompts, images, labels = made()
    result = compare(prompts, images, labels, plan=QUICK)
    text = rendered(result)
    for row in result["rows"]:
        assert row["name"] in text
        assert f"{100 * row['accuracy']:.2f}" in text
    assert "75.6" not in text, "5 images are not among the rows"
    assert f"{result['images']} images scored by csd" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.tensor([0, 1, 9])}, "labels of images|images .* must be"),
        ({"train": "images"}, "come together"),
        ({"prompts": "one"}, "at least 2"),
    ],
)
def test_bad_input_is_named(change, message):
    prompts, images, labels = made()
    options = {}
    if "labels" in change:
        images, labels = images[:3], change["labels"]
    if "train" in change:
        options["train"] = images
    if "prompts" in change:
        prompts = prompts[:, :1]
    with pytest.raises(ValueError, match=message):
        compare(prompts, images, labels, **options)
    with pytest.raises(ValueError, match="runs must be"):
        Plan(runs=0)
    with pytest.raises(ValueError, match="few and lowest must be"):
        Plan(few=(0,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "tasks"
    write(out, ScenesPlan(size=32, test=12, train=2), show=False)
    return out


class TestOnData:
    @pytest.fixture
    def data(self, folder):
        return open_labelled(folder / "wds_scenes-shape_test")

    def test_a_model_and_a_folder_are_enough(self, nano, data, tmp_path):
        result = evaluation.evaluate(nano, data, plan=QUICK, cache=tmp_path, progress=False)
        assert result["templates"] == list(data.templates)
        assert result["class_names"] == list(data.class_names)
        assert result["images"] + result["kept"] == 12
        again = evaluation.evaluate(nano, data, plan=QUICK, cache=tmp_path, progress=False)
        assert json.dumps(again) == json.dumps(result)

    def test_the_plain_template_stands_alone(self, nano, data):
        templates = ("{c}", "the {c}", "a photo of a {}.")
        result = evaluation.evaluate(nano, data, templates=templates, progress=False)
        assert result["single"] == 2
        assert "one prompt: a photo of a {c}." in rendered(result)

    def test_data_with_one_template_gets_imagenets(self, nano, data):
        alone = replace(data, templates=("a {c}",))
        result = evaluation.evaluate(nano, alone, plan=Plan(few=(), runs=1), progress=False)
        assert result["templates_per_class"] == len(result["templates"]) == 80

    def test_the_scored_data_cannot_be_learned_from(self, nano, data):
        with pytest.raises(ValueError, match="is the data that is scored"):
            evaluation.evaluate(nano, data, train=data, progress=False)

    def test_other_classes_cannot_be_learned_from(self, nano, data, folder):
        other = open_labelled(folder / "wds_scenes-colour_test")
        with pytest.raises(ValueError, match="has other classes than"):
            evaluation.evaluate(nano, data, train=other, progress=False)
