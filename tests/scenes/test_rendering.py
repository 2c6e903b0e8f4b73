import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from prolip.scenes.rendering import PALETTE, render, render_masks
from prolip.scenes.shapes import rasterize_shape
from prolip.scenes.world import BACKGROUNDS, COLORS, HARD, SHAPES, SIZES, STYLES, Scene, SceneObject
from tests.scenes.worlds import WORLDS

DIGEST = """
import hashlib
from prolip.scenes.rendering import render
from prolip.scenes.world import HARD
print(hashlib.sha256(b"".join(render(HARD.draw_scene(8, i), 40 + i).tobytes() for i in range(60))).hexdigest())
"""


def pixels(scene, size=64):
    return np.asarray(render(scene, size)).astype(int)


def one(
    shape="circle", color="red", size="large", style="clean", background="white", row=0, column=1, grid=2
):
    return Scene((SceneObject(shape, color, size, row, column),), background, style, grid, render_seed=77)


@pytest.mark.slow
def test_render_is_identical_in_another_process():
    ours = hashlib.sha256(
        b"".join(render(HARD.draw_scene(8, i), 40 + i).tobytes() for i in range(60))
    ).hexdigest()
    theirs = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True).stdout
    assert theirs.strip() == ours


@pytest.mark.parametrize("size", [32, 33, 48, 65, 127, 224])
@pytest.mark.parametrize("world", WORLDS)
def test_render_keeps_objects_in_cells(world, size):
    world = WORLDS[world]
    for index in range(40):
        scene = world.draw_scene(0, index)
        assert render(scene, size).size == (size, size)
        shown = render_masks(scene, size)
        assert shown.shape == (len(scene.objects), size, size)
        cell = size / world.grid
        for obj, mask in zip(scene.objects, shown, strict=True):
            rows, columns = np.nonzero(mask)
            assert rows.min() >= int(obj.row * cell)
            assert rows.max() < (obj.row + 1) * cell + 1
            assert columns.min() >= int(obj.column * cell)
            assert columns.max() < (obj.column + 1) * cell + 1
        assert shown.sum(0).max() == 1


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("background", BACKGROUNDS)
def test_mask_covers_object_only(color, background):
    scene = one(shape="square", color=color, background=background)
    found, mask = pixels(scene), render_masks(scene, 64)[0]
    inner = np.abs(found - PALETTE[color]).max(-1) <= 8
    assert (inner & ~mask).sum() == 0
    assert inner.sum() > 0.8 * mask.sum()  # all but the antialiased edge
    outside = found[~mask]
    assert (outside.max(-1) - outside.min(-1)).mean() < 6  # grey, but for the edge


def test_shapes_differ():
    shown = {shape: render_masks(one(shape=shape), 64)[0] for shape in SHAPES}
    for a in SHAPES:
        for b in SHAPES:
            both, either = (shown[a] & shown[b]).sum(), (shown[a] | shown[b]).sum()
            assert (both / either < 0.83) == (a != b)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [32, 48, 224])
def test_large_is_larger_than_small(shape, size):
    areas = {
        name: [
            render_masks(replace(one(shape=shape, size=name), render_seed=n), size).sum() for n in range(30)
        ]
        for name in SIZES
    }
    assert min(areas["large"]) > 1.3 * max(areas["small"])


def test_styles():
    plain = {style: pixels(one(style=style)) for style in STYLES}
    clean = plain["clean"]
    assert plain["dark"].mean() == pytest.approx(0.6 * clean.mean(), rel=0.01)
    assert (plain["grey"] == plain["grey"][..., :1]).all()
    assert plain["faded"].min() >= 90
    edges = {style: np.abs(np.diff(image, axis=0)).max() for style, image in plain.items()}
    assert edges["blurry"] < 0.6 * edges["clean"]
    corner = (slice(40, 64), slice(0, 24))
    assert clean[corner].std() == 0
    assert 12 < plain["noisy"][corner].std() < 25
    assert len({tuple(map(tuple, row)) for row in plain["pixelated"][:, 40:]}) <= 16
    ring = render_masks(one(style="outlined"), 64)[0]
    assert 0.2 < ring.sum() / render_masks(one(), 64)[0].sum() < 0.6
    centre = np.argwhere(render_masks(one(), 64)[0]).mean(0).round().astype(int)
    assert not ring[tuple(centre)]


def test_style_is_applied_as_often_as_the_scene_says():
    scene = replace(HARD.draw_scene(8, 0), style="dark")
    once, twice = (np.asarray(render(replace(scene, style_passes=n), 48), float) for n in (1, 2))
    assert np.abs(twice - 0.6 * once).max() <= 1


def test_render_seed_changes_image():
    first, second = one(), replace(one(), render_seed=78)
    assert (pixels(first) != pixels(second)).any()


def test_background_has_two_gray_levels():
    for background in BACKGROUNDS:
        levels = set(pixels(one(background=background))[34:, :30].reshape(-1, 3).flatten().tolist())
        assert len(levels) == (2 if background in ("striped", "checked") else 1)


def test_pixelated_image_has_16_by_16_blocks():
    blocks = pixels(one(style="pixelated")).reshape(16, 4, 16, 4, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()


def test_background_is_jittered():
    levels = {int(pixels(replace(one(), render_seed=n))[-1, 0, 0]) for n in range(40)}
    assert len(levels) > 5


def test_rotation_keeps_area():
    for shape in SHAPES:
        straight, turned = (
            np.asarray(rasterize_shape(shape, 40.0, angle, False), float).sum() for angle in (0.0, 0.12)
        )
        assert turned == pytest.approx(straight, rel=0.01), shape
