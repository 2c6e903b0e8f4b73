"""VeiledScenes: sequences are nested, ambiguity never falls, labels and captions are those of the whole scene."""

import numpy as np
import pytest

from prolip.data.source import AnnotatedImages
from prolip.scenes import (
    HARD,
    SIMPLE,
    Scenes,
    image_log_ambiguity,
    is_true_caption,
    observe,
    render,
    render_masks,
    render_veiled,
)
from prolip.scenes.veiled_scenes import CURTAINS, OBJECTS, VeiledScenes


@pytest.fixture(scope="module", params=[SIMPLE, HARD], ids=["simple", "hard"])
def veiled(request):
    return VeiledScenes(request.param, num_scenes=40, size=32, seed=5)


def group_by_scene(veiled):
    """scene -> (sequence, step) -> index."""
    found = {}
    for index in range(len(veiled)):
        annotation = veiled.image_annotation(index)
        found.setdefault(int(annotation.scene), {})[annotation.sequence, annotation.step] = index
    return found


def test_every_scene_has_its_images(veiled):
    assert isinstance(veiled, AnnotatedImages)
    groups = group_by_scene(veiled)
    assert list(groups) == list(range(40))
    for scene, images in groups.items():
        expected = {(None, None), (None, 0)}
        expected |= {(CURTAINS, step) for step in (1, 2, 3, 4) if scene < 10}
        expected |= {(OBJECTS, step) for step in range(1, len(veiled.scenes.draw_scene(scene).objects))}
        assert set(images) == expected


def test_sequences_are_nested_and_never_less_ambiguous(veiled):
    for images in group_by_scene(veiled).values():
        for (sequence, step), index in images.items():
            if step:
                before = images[sequence if step > 1 else None, step - 1]
                assert veiled.draw_veil(before).curtains < veiled.draw_veil(index).curtains
                assert len(veiled.draw_veil(index).curtains) == step
                truths = [veiled.image_annotation(i).log_ambiguity for i in (before, index)]
                assert truths[0] <= truths[1] + 1e-12


def test_objects_are_hidden_from_the_smallest_on(veiled):
    num_checked = 0
    for scene_index, images in group_by_scene(veiled).items():
        scene = veiled.scenes.draw_scene(scene_index)
        areas = {
            (obj.row, obj.column): int(mask.sum())
            for obj, mask in zip(scene.objects, render_masks(scene, 32), strict=True)
        }
        for (sequence, step), index in images.items():
            if sequence == OBJECTS:
                hidden = veiled.draw_veil(index).curtains
                visible = set(areas) - hidden
                assert veiled.image_annotation(index).visible_objects == len(visible) == len(areas) - step
                assert max(areas[cell] for cell in hidden) <= min(areas[cell] for cell in visible)
                num_checked += 1
    assert num_checked > 8


def test_images_and_annotations_are_those_of_the_veil(veiled):
    random = Scenes(veiled.world, length=40, size=32, seed=5, veiled=1.0)
    for scene_index, images in group_by_scene(veiled).items():
        scene = veiled.scenes.draw_scene(scene_index)
        whole, behind = images[None, 0], images[None, None]
        assert np.array_equal(veiled.read(whole).image, render(scene, 32))
        assert veiled.draw_veil(behind) == random.draw_veil(scene_index)
        for index in images.values():
            veil = veiled.draw_veil(index)
            assert np.array_equal(veiled.read(index).image, render_veiled(scene, 32, veil))
            annotation = veiled.image_annotation(index)
            assert annotation.log_ambiguity == image_log_ambiguity(observe(scene, veil), veiled.world)
            assert (annotation.veil, annotation.kind) == (veil.name, veil.kind)


def test_labels_and_captions_are_those_of_the_whole_scene(veiled):
    names, labeled = veiled.label().class_names, 0
    for index in range(len(veiled)):
        sample = veiled.read(index)
        scene = veiled.scenes.draw_scene(veiled.views[index].scene_index)
        assert sample.extra["json"]["captions"] == list(sample.captions)
        assert all(is_true_caption(text, scene) for text in sample.captions)
        if len(scene.objects) == 1:
            assert names[sample.extra["cls"]] == f"{scene.objects[0].color} {scene.objects[0].shape}"
            labeled += 1
        else:
            assert "cls" not in sample.extra
    assert 0 < labeled < len(veiled)


def test_fingerprint_depends_on_seed_size_and_number():
    options = [{"seed": 1}, {"seed": 2}, {"size": 40}, {"num_scenes": 4}]
    found = {VeiledScenes(SIMPLE, **({"num_scenes": 3} | one)).fingerprint() for one in options}
    assert len(found) == 4
