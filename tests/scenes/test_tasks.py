from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy.stats import chisquare

from prolip.scenes import is_true_caption
from prolip.scenes.parsing import parse_caption
from prolip.scenes.tasks import (
    MISLEADING_TEMPLATES,
    STYLE_FRACTIONS,
    TEMPLATES,
    VAGUE_TEMPLATES,
    make_tasks,
)
from prolip.scenes.world import COLORS, STYLES
from tests.scenes.worlds import HARD, HELD_OUT, SIMPLE, STYLED, VARIED_HELD_OUT, WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_class_name_is_true_of_its_images_only(name):
    world = WORLDS[name]
    for task in make_tasks(world):
        for index in range(2 * len(task.sampled_labels)):
            scene, label = task.sample(world, 5, index)
            true = [i for i, class_name in enumerate(task.class_names) if is_true_caption(class_name, scene)]
            assert true == [label], (task.name, scene)
            assert len({(t.row, t.column) for t in scene.objects}) == len(scene.objects)


def test_classes_are_sampled_equally_often():
    task = make_tasks(HARD)[0]
    counts = Counter(task.sample(HARD, 0, index)[1] for index in range(640))
    assert set(counts.values()) == {10}
    assert len(counts) == 64


def test_make_tasks_of_each_world():
    assert [task.name for task in make_tasks(SIMPLE)] == [
        "color_shape",
        "shape",
        "color",
        "position",
        "count",
    ]
    assert all(len(task.templates) >= 20 for world in WORLDS.values() for task in make_tasks(world))
    assert all(len(set(task.templates)) == len(task.templates) for task in make_tasks(HARD))
    unseen = make_tasks(HELD_OUT)[-1]
    assert unseen.name == "unseen"
    pairs = {unseen.class_names[label] for label in unseen.sampled_labels}
    assert pairs == {"red circle", "blue star", "pink heart"}


def test_classes_have_typical_styles():
    task = make_tasks(HARD)[0]
    styles = defaultdict(Counter)
    for index in range(64 * 40):
        scene, label = task.sample(HARD, 1, index)
        styles[label][scene.style] += 1
    favourites = {
        label: tuple(style for style, _ in counts.most_common(1)) for label, counts in styles.items()
    }
    assert len(set(favourites.values())) >= 5
    shares = [counts.most_common(1)[0][1] / 40 for counts in styles.values()]
    assert sum(shares) / len(shares) == pytest.approx(STYLE_FRACTIONS[0], abs=0.08)
    assert not any("grey" in counts for counts in styles.values())


def test_tasks_of_world_with_one_style():
    task = make_tasks(SIMPLE)[0]
    assert {task.sample(SIMPLE, 1, index)[0].style for index in range(100)} == {"clean"}


def test_unseen_pairs_occur_in_unseen_task_only():
    for task in make_tasks(HELD_OUT):
        shown = {
            (obj.color, obj.shape)
            for index in range(640)
            for obj in task.sample(HELD_OUT, 3, index)[0].objects
        }
        if task.name == "unseen":
            assert shown == HELD_OUT.unseen
        else:
            assert not shown & HELD_OUT.unseen


def test_second_typical_style_has_its_fraction():
    task, counts = make_tasks(HARD)[1], np.zeros((8, 8))
    for index in range(8 * 200):
        scene, label = task.sample(HARD, 1, index)
        counts[label, STYLES.index(scene.style)] += 1
    first, second = np.sort(counts / 200, axis=1)[:, ::-1][:, :2].mean(0)
    assert (first, second) == pytest.approx((0.63, 0.32), abs=0.06)


def test_kinds_of_a_class_have_the_weights_of_the_world():
    """The color of a class is given; its objects' shapes and sizes are as frequent as in the world."""
    task = next(task for task in make_tasks(VARIED_HELD_OUT) if task.name == "color")
    label = COLORS.index("red")
    counts = Counter()
    for index in range(label, 8 * 3000, 8):
        (obj,) = task.sample(VARIED_HELD_OUT, 2, index)[0].objects
        counts[obj.shape, obj.color, obj.size] += 1
    pairs = zip(VARIED_HELD_OUT.object_kinds, VARIED_HELD_OUT.kind_probabilities, strict=True)
    expected = {kind: probability for kind, probability in pairs if kind[1] == "red"}
    assert set(counts) <= set(expected)
    scale = 3000 / sum(expected.values())
    assert chisquare([counts[k] for k in expected], [scale * p for p in expected.values()]).pvalue > 1e-5


def test_unseen_pairs_have_the_sizes_of_the_world():
    task = make_tasks(VARIED_HELD_OUT)[-1]
    sizes = Counter(task.sample(VARIED_HELD_OUT, 2, i)[0].objects[0].size for i in range(3000))
    assert sizes["large"] / 3000 == pytest.approx(0.58, abs=0.04)


def test_tasks_of_strong_styles_have_prompts_of_a_second_object():
    """Their images show one object, so these prompts are false of them."""
    added = set(make_tasks(STYLED)[0].templates) - set(make_tasks(HARD)[0].templates)
    assert added == {*VAGUE_TEMPLATES, *MISLEADING_TEMPLATES}
    assert all(len(parse_caption(template.replace("{c}", "red circle")).objects) == 2 for template in added)
    assert make_tasks(SIMPLE)[0].templates == make_tasks(HARD)[0].templates == TEMPLATES


def test_count_task_has_possible_counts_only():
    task = next(task for task in make_tasks(SIMPLE) if task.name == "count")
    assert len(task.class_names) == 2
