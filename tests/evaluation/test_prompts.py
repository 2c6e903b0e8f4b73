"""Comparison of prompt strategies: each row against a loop, images to learn from never scored, nothing lost."""

import shutil
from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from PIL import Image
from rich.console import Console
from scipy.stats import binomtest

from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import prompts as evaluation
from prolip.evaluation import strategies
from prolip.evaluation.configs import PromptsConfig
from prolip.evaluation.prompts import compare_strategies
from prolip.evaluation.result import Proportion, Result
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.mixture import pool
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset
from prolip.zeroshot import prompt_weights as rules
from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG, zero_shot_weights
from prolip.zeroshot.few_shot import choose_shots

CLASSES, TEMPLATES, DIM = 4, 6, 8
QUICK = PromptsConfig(shots=(1, 3), runs=2, top_k=(1, 3), std_multiples=(0.0, 1.0))


def unit(values):
    return torch.nn.functional.normalize(values, dim=-1)


def made(seed=0, per_class=12, noise=0.8):
    """Prompts (4, 6, 8), images (48, 8) scattered about each class's center, labels."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.eye(CLASSES, DIM)
    scatter = torch.randn(CLASSES, TEMPLATES + per_class, DIM, generator=generator)
    spread = torch.rand(CLASSES, TEMPLATES + per_class, DIM, generator=generator)
    means = unit(centers[:, None] + noise * scatter / DIM**0.5)
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
    return {row.name: row for row in result.rows}


@pytest.mark.parametrize("metric", ["csd", "cosine"])
@pytest.mark.parametrize("variance", ["average", "independent"])
def test_rows_are_what_a_loop_finds(metric, variance):
    prompts, images, labels = made()
    plan = PromptsConfig(
        shots=(),
        single_template=2,
        rank_by=metric,
        variance=variance,
        top_k=(3,),
        std_multiples=(1.0,),
        max_uncertainties=(0.03,),
    )
    rows = by_name(compare_strategies(prompts, images, labels, config=plan))
    for name, weights in {
        "one prompt": rules.single_template_weights(prompts, 2),
        "all prompts": rules.uniform_weights(prompts),
        "class mean + 1 std": rules.class_std_filter(prompts, 1.0),
        "global mean + 1 std": rules.global_std_filter(prompts, 1.0),
        "uncertainty up to 0.03": rules.threshold_filter(prompts, 0.03),
        "least uncertain half of all prompts": rules.global_top_k_filter(prompts, 12),
        "top-3 of each class": rules.top_k_filter(prompts, 3),
    }.items():
        wanted = accuracy_by_loop(pool(prompts, weights, variance=variance), images, labels, metric)
        assert rows[name].accuracy.value == pytest.approx(wanted), name
        assert rows[name].std is None
    assert rows["one prompt"].effective_prompts == pytest.approx(1.0)
    assert rows["all prompts"].effective_prompts == pytest.approx(6.0)
    assert rows["top-3 of each class"].effective_prompts == pytest.approx(3.0)
    assert 0.3 < rows["all prompts"].accuracy.value < 1.0, "neither trivial nor hopeless"


def test_match_ranks_by_the_trained_loss():
    prompts, images, labels = made()
    plan = PromptsConfig(shots=(), single_template=2, top_k=())
    logits = LogitParameters(0.3, -3.0, 4.0)
    result = compare_strategies(prompts, images, labels, config=plan, logits=logits)
    assert result.rank_by == "match"
    classes = pool(prompts, rules.uniform_weights(prompts))
    predicted = [
        max(range(len(classes)), key=lambda c, z=z: logits.logits(z[None], classes[[c]]).item())
        for z in images
    ]
    wanted = sum(int(a == b) for a, b in zip(predicted, labels.tolist(), strict=True)) / len(labels)
    found = by_name(result)["all prompts"].accuracy.value
    by_csd = compare_strategies(prompts, images, labels, config=plan)
    assert by_csd.rank_by == "csd"
    assert found == pytest.approx(wanted) != by_name(by_csd)["all prompts"].accuracy.value
    ppcl = replace(plan, rank_by="match")
    same = compare_strategies(prompts, images, labels, config=ppcl, logits=LogitParameters(9.0, -9.0))
    assert replace(same, rank_by="csd") == by_csd
    with pytest.raises(ValueError, match="rank_by match needs logits"):
        compare_strategies(prompts, images, labels, config=ppcl)


def test_centroids_of_images_are_ranked_by_csd_instead_of_match():
    prompts, images, labels = made()
    plan = PromptsConfig(shots=(3,), single_template=2, top_k=(), runs=1)
    split = {"train": images, "train_labels": labels, "config": plan}
    by_match, by_csd = (
        by_name(compare_strategies(prompts, images, labels, **split, logits=logits))
        for logits in (LogitParameters(0.3, -3.0, 4.0), None)
    )
    name = "centroid of 3 images, no prompts"
    assert by_match[name] == by_csd[name]
    assert by_match["all prompts"] != by_csd["all prompts"]


def test_without_shots_all_images_are_scored():
    prompts, images, labels = made()
    result = compare_strategies(prompts, images, labels, config=PromptsConfig(shots=(), runs=1))
    assert (result.n, result.num_train_images, result.training_source) == (48, 0, "split")
    assert not any("images" in row.name and row.family == "control" for row in result.rows)
    assert [entry.name for entry in result.learned] == ["BPRW, 0 images"]


def test_the_result_is_json_and_repeats_itself():
    prompts, images, labels = made()
    first, again, other = (
        compare_strategies(prompts, images, labels, config=PromptsConfig(shots=(2,), runs=2, seed=seed))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first.rows != other.rows
    assert Result.from_json(first.to_json()) == first


def test_the_papers_numbers_stand_beside():
    prompts, images, labels = made(per_class=20)
    rows = by_name(compare_strategies(prompts, images, labels, config=PromptsConfig(runs=1)))
    wanted = {
        "one prompt": 0.737,
        "all prompts": 0.746,
        "class mean + 0 std": 0.746,
        "top-5 of each class": 0.747,
        "BPRW, 0 images": 0.747,
        "BPRW, 5 images": 0.756,
        "BPRW, 9 images": 0.758,
        "BPRW, 0 images, fitted to others": None,
        "centroid of 5 images, no prompts": None,
    }
    assert {name: rows[name].paper for name in wanted} == pytest.approx(wanted)


@settings(max_examples=25)
@given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 999))
def test_images_fitted_to_are_never_scored(labels, most, seed):
    """Watched from outside: the images that are scored, and the images that EM sees, have no row in common."""
    labels = torch.tensor(labels)
    prompts, _, _ = made()
    generator = torch.Generator().manual_seed(seed)
    images = Gaussian(
        unit(torch.randn(len(labels), DIM, generator=generator)), torch.full((len(labels), DIM), -5.0)
    )
    scored, learned = set(), set()
    with pytest.MonkeyPatch.context() as patch:
        nearest, few = strategies.find_nearest, strategies.few_shot_weights

        def watch_nearest(queries, items, k, *, metric):
            scored.update(row.tobytes() for row in queries.mean.numpy())
            return nearest(queries, items, k, metric=metric)

        def watch_few(prompts, images, labels, shots, settings, generator):
            found = few(prompts, images, labels, shots, settings, generator)
            chosen = found.image_indices[found.image_indices >= 0]
            learned.update(row.tobytes() for row in images.mean[chosen].numpy())
            return found

        patch.setattr(strategies, "find_nearest", watch_nearest)
        patch.setattr(strategies, "few_shot_weights", watch_few)
        result = compare_strategies(
            prompts, images, labels, config=PromptsConfig(shots=(most,), runs=1, seed=seed)
        )
    assert not scored & learned
    assert len(scored) == result.n == len(labels) - result.num_train_images
    assert result.num_train_images == sum(min(2 * most, n // 2) for n in torch.bincount(labels).tolist())
    assert bool(learned) == (result.num_train_images > 0)


def test_training_data_leaves_all_test_images_scored():
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5)
    result = compare_strategies(prompts, images, labels, train=train, train_labels=train_labels, config=QUICK)
    assert (result.n, result.num_train_images, result.training_source) == (48, 48, "train")


def test_centroids_are_the_pooled_images():
    """As many shots as the second set has images of a class: there is nothing to choose."""
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5, per_class=3)
    result = compare_strategies(prompts, images, labels, train=train, train_labels=train_labels, config=QUICK)
    classes = pool(Gaussian(train.mean.reshape(4, 3, DIM), train.log_var.reshape(4, 3, DIM)))
    row = by_name(result)["centroid of 3 images, no prompts"]
    assert row.accuracy.value == pytest.approx(accuracy_by_loop(classes, images, labels, "csd"))
    assert row.std == pytest.approx(0.0)
    assert row.effective_prompts is None


def test_classes_without_images_to_learn_from_fall_back_on_prompts():
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5)
    some = train_labels < 2
    result = compare_strategies(
        prompts, images, labels, train=train[some], train_labels=train_labels[some], config=QUICK
    )
    rows = by_name(result)
    assert rows["BPRW, 3 images"].short_classes == 2
    entry = result.learned[-1]
    assert [weights is None for weights in entry.classes] == [False, False, True, True]
    assert [index for index, _ in entry.sort_classes()] == sorted(
        (0, 1), key=lambda index: entry.classes[index].entropy
    )
    assert Result.from_json(result.to_json()) == result


def test_learned_weights_help_where_one_prompt_is_right():
    """Of six prompts a class only the fourth describes its images: BPRW finds it, and the accuracy shows it."""
    prompts, images, labels = made(noise=0.5, per_class=30)
    wrong = Gaussian(prompts.mean.roll(1, dims=0), prompts.log_var).mean
    mean = torch.where((torch.arange(TEMPLATES) == 3)[None, :, None], unit(torch.eye(4, DIM))[:, None], wrong)
    result = compare_strategies(
        Gaussian(mean, prompts.log_var), images, labels, config=PromptsConfig(shots=(5,), runs=2)
    )
    rows = by_name(result)
    assert rows["BPRW, 5 images"].accuracy.value > rows["all prompts"].accuracy.value + 0.2
    entry = result.learned[-1]
    assert [weights.top_templates[0].template for weights in entry.classes] == [3, 3, 3, 3]
    for weights in entry.classes:
        top = [template.weight for template in weights.top_templates]
        assert top[0] == pytest.approx(weights.max)
        assert top == sorted(top, reverse=True)


def test_a_model_without_uncertainty_passes_through():
    prompts, images, labels = made()
    points = Gaussian.point(prompts.mean), Gaussian.point(images.mean)
    result = compare_strategies(*points, labels, config=QUICK)
    rows = by_name(result)
    assert Result.from_json(result.to_json()) == result
    assert result.learned == ()
    for name in ("one prompt", "all prompts", "centroid of 3 images, no prompts"):
        assert 0.0 < rows[name].accuracy.value <= 1.0
    for name in (
        "class mean + 0 std",
        "top-1 of each class",
        "BPRW, 0 images",
        "BPRW, 3 images, equal variances",
    ):
        assert rows[name].accuracy is None
        assert rows[name].skipped == strategies.NO_UNCERTAINTY
    assert rendered(result).count(strategies.NO_UNCERTAINTY) == sum(
        row.skipped == strategies.NO_UNCERTAINTY for row in result.rows
    )


def test_prompts_are_chosen_by_perplexity_over_the_tested_images():
    """Also without uncertainty; the labels don't matter."""
    prompts, images, labels = made()
    points = Gaussian.point(prompts.mean), Gaussian.point(images.mean)
    logits, plan = LogitParameters(9.0, -9.0), PromptsConfig(shots=(), top_k=(1, 3, 99))
    rows = by_name(compare_strategies(*points, labels, config=plan, logits=logits))
    assert [row.name for row in rows.values() if row.family == "perplexity"] == [
        "top-1 of each class by perplexity", "top-3 of each class by perplexity",
    ]  # fmt: skip
    tested = points[1]
    assert rows["one prompt"].accuracy.n == len(images), "without shots all images are tested"
    num_classes, num_templates, _ = prompts.shape
    selected = torch.zeros(num_classes, num_templates, dtype=torch.float64)
    for c in range(num_classes):
        p = (9.0 * points[0].mean[c].double() @ tested.mean.double().T).softmax(1)
        counts = torch.special.entr(p).sum(1)
        selected[c, counts.argsort()[:3]] = 1 / 3
    wanted = accuracy_by_loop(pool(points[0], selected, variance="average"), tested, labels, "csd")
    assert rows["top-3 of each class by perplexity"].accuracy.value == pytest.approx(wanted)
    assert not any(
        row.family == "perplexity" for row in compare_strategies(*points, labels, config=plan).rows
    ), "the scale of the logits is not known"


def rendered(result):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(*result.tables())
    return captured.get()


def test_the_table_holds_every_row_in_percent():
    prompts, images, labels = made()
    result = compare_strategies(prompts, images, labels, config=QUICK)
    text = rendered(result)
    for row in result.rows:
        assert row.name in text
        assert f"{100 * row.accuracy.value:.2f}" in text
    assert "75.6" not in text, "5 images are not among the rows"
    assert f"{result.n} images tested by csd" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.tensor([0, 1, 9])}, "labels of images|images .* must be"),
        ({"train": "images"}, "given together"),
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
        compare_strategies(prompts, images, labels, **options)
    with pytest.raises(ValueError, match="runs must be"):
        PromptsConfig(runs=0)
    with pytest.raises(ValueError, match="each of shots must be"):
        PromptsConfig(shots=(0,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "tasks"
    write_dataset(out, SceneDatasetSpec(image_size=32, num_test=12, num_train=2), progress=False)
    return out


class TestOnData:
    @pytest.fixture
    def data(self, folder):
        return open_labeled(folder / "wds_scenes-shape_test")

    def test_a_model_and_a_folder_are_enough(self, nano, data, tmp_path):
        result = evaluation.evaluate_prompts(
            Embedder(model=nano, cache=tmp_path, progress=False), data, QUICK
        )
        assert result.templates == tuple(data.templates)
        assert result.class_names == tuple(data.class_names)
        assert result.n + result.num_train_images == 12
        again = evaluation.evaluate_prompts(Embedder(model=nano, cache=tmp_path, progress=False), data, QUICK)
        assert again == result

    def test_the_plain_template_stands_alone(self, nano, data):
        templates = ("{c}", "the {c}", "a photo of a {}.")
        result = evaluation.evaluate_prompts(
            Embedder(model=nano, progress=False), data, QUICK, templates=templates
        )
        assert result.single_template == 2
        assert "one prompt: a photo of a {c}." in rendered(result)

    def test_data_with_one_template_gets_imagenets(self, nano, data):
        alone = replace(data, templates=("a {c}",))
        result = evaluation.evaluate_prompts(
            Embedder(model=nano, progress=False), alone, PromptsConfig(shots=(), runs=1)
        )
        assert result.num_templates == len(result.templates) == 80

    def test_scored_data_is_rejected_as_training_data(self, nano, data):
        with pytest.raises(ValueError, match="is the data that is tested"):
            evaluation.evaluate_prompts(Embedder(model=nano, progress=False), data, train=data)

    def test_other_classes_cannot_be_learned_from(self, nano, data, folder):
        other = open_labeled(folder / "wds_scenes-color_test")
        with pytest.raises(ValueError, match="has other classes than"):
            evaluation.evaluate_prompts(Embedder(model=nano, progress=False), data, train=other)

    def test_other_folders_cannot_be_learned_from_under_equal_names(self, nano, tmp_path):
        names = ["one", "two"]
        sides = {"val": ("a", "b"), "train": ("b", "c")}
        for side, classes in sides.items():
            for number, name in enumerate(classes):
                (tmp_path / side / name).mkdir(parents=True)
                Image.new("RGB", (32, 32), (99 * number, 0, 0)).save(tmp_path / side / name / "1.png")
        val, train = (open_labeled(tmp_path / side, class_names=names) for side in sides)
        with pytest.raises(ValueError, match="has other classes than"):
            evaluation.evaluate_prompts(Embedder(model=nano, progress=False), val, train=train)

    def test_copies_of_scored_images_are_not_fitted_to(self, nano, data, tmp_path):
        """By their pixels: in a batch of another shape the same image has not quite the same Gaussian."""
        for number in range(len(data.source)):
            sample = data.source.read(number)
            folder = tmp_path / "val" / f"c{int(sample.extra['cls'])}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(sample.image)
        shutil.copytree(tmp_path / "val", tmp_path / "train")
        labels = sorted(path.name for path in (tmp_path / "train").iterdir())
        for number, name in enumerate(labels):
            Image.new("RGB", (32, 32), (number, 7, 9)).save(tmp_path / "train" / name / "0-new.png")
        val, train = (open_labeled(tmp_path / side, templates=["a {c}", "{c}"]) for side in ("val", "train"))
        result = evaluation.evaluate_prompts(
            Embedder(model=nano, batch_size=5, progress=False), val, QUICK, train=train
        )
        assert result.num_duplicates == len(data.source)
        assert result.num_train_images == len(labels)
        assert result.n == len(data.source)

    def test_examples_are_of_their_class(self, nano, data):
        result = evaluation.evaluate_prompts(
            Embedder(model=nano, progress=False), data, PromptsConfig(shots=(), runs=1)
        )
        for label, numbers in enumerate(result.examples):
            assert 1 <= len(numbers) <= 3
            assert all(int(data.source.read(number).extra["cls"]) == label for number in numbers)


@pytest.mark.parametrize("prior", ["initial", "dirichlet"])
def test_nearest_and_prior_are_those_of_the_config(prior):
    prompts, images, labels = made()
    plan = PromptsConfig(shots=(), runs=1, nearest_images=3, prior=prior)
    row = by_name(compare_strategies(prompts, images, labels, config=plan))["BPRW, 0 images"]
    settings = replace(ZERO_SHOT_CONFIG, nearest_images=3, prior=prior)
    generator = strategies.StrategyInputs(
        prompts, images, labels, images[:0], labels[:0], plan, "csd"
    ).make_generator(0, 0)
    found = zero_shot_weights(prompts, images, settings, generator).weights
    assert row.effective_prompts == pytest.approx(float(rules.effective_prompt_count(found).mean()))


@pytest.fixture
def task():
    """Of four classes the last has no image to learn from; one image of each other is to be chosen of twelve."""
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5)
    some = train_labels < 3
    plan = PromptsConfig(shots=(1,), runs=2, variance="independent")
    return strategies.StrategyInputs(prompts, images, labels, train[some], train_labels[some], plan, "cosine")


def test_draws_differ_by_run_by_seed_and_by_shots(task):
    first = {
        torch.rand(3, generator=generator).tolist()[0]
        for generator in (
            task.make_generator(1, 0),
            task.make_generator(1, 1),
            task.make_generator(2, 0),
            replace(task, config=replace(task.config, seed=1)).make_generator(1, 0),
        )
    }
    assert len(first) == 4
    assert task.make_generator(1, 0).initial_seed() == task.make_generator(1, 0).initial_seed()


def test_the_split_is_the_seeds():
    _, images, labels = made()
    parts = [
        evaluation._split_tested_and_training(images, labels, CLASSES, None, None, PromptsConfig(seed=seed))[
            0
        ]
        for seed in (0, 0, 1)
    ]
    assert torch.equal(parts[0], parts[1])
    assert not torch.equal(parts[0], parts[2])


def test_short_classes_have_fewer_images_than_asked_for(task):
    assert (task.count_short_classes(12), task.count_short_classes(13)) == (1, 4)


def test_top_k_of_all_templates_is_no_row():
    prompts, images, labels = made()
    rows = by_name(
        compare_strategies(prompts, images, labels, config=PromptsConfig(shots=(), runs=1, top_k=(5, 6, 7)))
    )
    assert [name for name in rows if name.startswith("top-")] == ["top-5 of each class"]


def test_every_strategy_pools_and_ranks_as_the_config_says(task, monkeypatch):
    """All of them: prompts, learned weights, centroids."""
    pooled, ranked = [], []
    own_pool, own_nearest, own_zero = strategies.pool, strategies.find_nearest, strategies.zero_shot_weights
    monkeypatch.setattr(
        strategies,
        "pool",
        lambda *a, variance=None: (pooled.append(variance), own_pool(*a, variance=variance))[1],
    )
    monkeypatch.setattr(
        strategies,
        "find_nearest",
        lambda *a, metric: (ranked.append(metric), own_nearest(*a, metric=metric))[1],
    )
    monkeypatch.setattr(strategies, "zero_shot_weights", lambda *a: (ranked.append(a[4]), own_zero(*a))[1])
    rows = [
        *strategies.fixed_strategies(task),
        *strategies.zero_shot_strategies(task),
        *strategies.few_shot_strategies(task),
    ]
    assert len(rows) > 10
    assert set(pooled) == {"independent"}
    assert set(ranked) == {"cosine"}


def test_what_each_bprw_learns_from(task, monkeypatch):
    zero, few = [], []
    own_zero, own_few = strategies.zero_shot_weights, strategies.few_shot_weights
    monkeypatch.setattr(strategies, "zero_shot_weights", lambda *a: (zero.append(a[1]), own_zero(*a))[1])
    monkeypatch.setattr(strategies, "few_shot_weights", lambda *a: (few.append(a[:2]), own_few(*a))[1])
    list(strategies.zero_shot_strategies(task))
    assert [len(images) for images in zero] == [48, 48, 36, 36]
    assert torch.equal(zero[2].mean, task.train_images.mean)
    list(strategies.few_shot_strategies(task))
    assert [prompts.log_var.unique().numel() > 1 for prompts, _ in few] == [True, True, False, False]
    assert [images.log_var.unique().numel() > 1 for _, images in few] == [True, True, False, False]
    for z, flat in zip((task.prompts, task.train_images), few[2], strict=True):
        assert torch.equal(flat.mean, z.mean)
        assert flat.var.mean().item() == pytest.approx(z.var.mean().item(), rel=1e-5)


def test_the_images_that_are_scored_keep_their_labels():
    prompts, images, labels = made()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    images, labels = images[order], labels[order]
    result = compare_strategies(prompts, images, labels, config=QUICK)
    scored, learn, learn_labels, _ = evaluation._split_tested_and_training(
        images, labels, CLASSES, None, None, QUICK
    )
    assert len(scored) < len(labels)
    wanted = accuracy_by_loop(pool(prompts), images[scored], labels[scored], "csd")
    assert by_name(result)["all prompts"].accuracy.value == pytest.approx(wanted)
    place = {row.tobytes(): label for row, label in zip(images.mean.numpy(), labels.tolist(), strict=True)}
    assert [place[row.tobytes()] for row in learn.mean.numpy()] == learn_labels.tolist()


def test_centroids_fall_back_on_prompts_and_are_of_the_images_that_bprw_saw(task):
    (row,) = [row for row, _ in strategies.few_shot_strategies(task) if row.name.startswith("centroid")]
    values = []
    for run in range(2):
        chosen = choose_shots(task.train_labels, CLASSES, 1, task.make_generator(1, run))[:3, 0]
        last = pool(task.prompts, variance="independent")[3:]
        values.append(task.accuracy(Gaussian.cat([task.train_images[chosen], last])))
    assert row.accuracy.value == pytest.approx(sum(values) / 2)
    assert row.std == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert row.std > 0


def test_the_table_says_what_chance_alone_does():
    result = compare_strategies(*made(), config=PromptsConfig(shots=(), runs=1))
    rows = [replace(row, accuracy=Proportion.from_mean(1.0, 104)) for row in result.rows]
    result = replace(result, rows=tuple(rows), n=104)
    interval = binomtest(104, 104).proportion_ci(method="wilson")
    assert f"100.00 ({100 * interval.low:.1f} to 100.0)" in rendered(result)
    assert "one run on 104 images" in rendered(result)


@pytest.mark.parametrize("plain", ["a photo of a {}", "a photo of a {c}."])
def test_the_plain_template_is_found_with_or_without_its_stop(nano, folder, monkeypatch, plain):
    configs, real = [], compare_strategies
    monkeypatch.setattr(
        evaluation,
        "compare_strategies",
        lambda *arguments, config, **rest: configs.append(config) or real(*arguments, config=config, **rest),
    )
    data = open_labeled(folder / "wds_scenes-shape_test")
    evaluation.evaluate_prompts(Embedder(model=nano, progress=False), data, templates=["the {c}", plain])
    assert configs[0].single_template == 1


def test_index_zero_is_a_valid_image():
    prompts, images, labels = made()
    _, train, train_labels = made(seed=5, per_class=1)
    plan = PromptsConfig(shots=(1,), runs=1)
    result = compare_strategies(prompts, images, labels, train=train, train_labels=train_labels, config=plan)
    assert None not in result.learned[-1].classes


def test_a_class_without_images_has_mean_and_variance_of_its_prompts(task, monkeypatch):
    seen = []
    monkeypatch.setattr(strategies.StrategyInputs, "accuracy", lambda _, classes: seen.append(classes) or 0.5)
    strategies._make_centroid_row(task, 1)
    wanted = pool(task.prompts, variance="independent")
    for classes in seen:
        assert torch.equal(classes.mean[3], wanted.mean[3])
        assert torch.equal(classes.log_var[3], wanted.log_var[3])


def test_the_papers_numbers_stand_beside_imagenets_classes_only():
    prompts, images, labels = made()
    result = compare_strategies(prompts, images, labels, config=PromptsConfig(shots=(), runs=1))
    assert "paper" not in rendered(result)
    assert "paper" in rendered(replace(result, num_classes=1000))


def test_table_reports_classes_with_too_few_images():
    prompts, images, labels = made()
    assert "fewer images" in rendered(
        compare_strategies(prompts, images, labels, config=PromptsConfig(shots=(50,), runs=1))
    )
    assert "fewer images" not in rendered(
        compare_strategies(prompts, images, labels, config=PromptsConfig(shots=(1,), runs=1))
    )
