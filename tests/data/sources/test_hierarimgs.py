"""HierarImgs against loops over pixels, and the builder against a data set small enough to know by heart."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from PIL import Image

from prolip.data.sources import hierarimgs
from prolip.data.sources.coco import make_annotation
from prolip.data.sources.hierarimgs import build_hierarimgs, is_eligible, paste_levels, read_hierarimgs


def rectangle(top, left, height, width, size=(20, 30)):
    mask = np.zeros(size, bool)
    mask[top : top + height, left : left + width] = True
    return mask


def noise(size=(20, 30), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


@given(
    image=arrays(np.uint8, (4, 5, 3)),
    masks=st.lists(arrays(bool, (4, 5)), min_size=3, max_size=6),
    canvas=st.integers(0, 255),
)
def test_level_k_shows_the_k_plus_1_largest(image, masks, canvas):
    pictures = paste_levels(image, masks, canvas=canvas)
    assert len(pictures) == 3
    ranked = sorted(enumerate(masks), key=lambda pair: (-np.count_nonzero(pair[1]), pair[0]))
    for level, picture in enumerate(pictures):
        assert picture.dtype == np.uint8
        shown = [mask for _, mask in ranked[: level + 1]]
        for y in range(4):
            for x in range(5):
                wanted = image[y, x] if any(mask[y, x] for mask in shown) else [canvas] * 3
                assert picture[y, x].tolist() == list(wanted)


def test_of_equal_segments_the_first_is_pasted_first():
    masks = [rectangle(0, 0, 2, 2), rectangle(5, 0, 2, 2), rectangle(10, 0, 3, 3)]
    pictures = paste_levels(np.zeros((20, 30, 3), np.uint8), masks)
    assert [(picture[0, 0, 0], picture[5, 0, 0]) for picture in pictures] == [(255, 255), (0, 255), (0, 0)]


def test_the_image_is_not_written_to():
    image = noise()
    before = image.copy()
    pictures = paste_levels(image, [rectangle(0, 0, 20, 30)] * 3)
    for picture in pictures:
        picture[:] = 0
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ("image", "masks", "options", "message"),
    [
        (noise().astype(float), [rectangle(0, 0, 1, 1)] * 3, {}, "uint8"),
        (noise()[..., 0], [rectangle(0, 0, 1, 1)] * 3, {}, "uint8"),
        (noise(), [rectangle(0, 0, 1, 1)] * 2, {}, "3 levels need at least 3 masks.* there are 2"),
        (noise(), [rectangle(0, 0, 1, 1, (20, 29))] * 3, {}, "mask 0 must be bool"),
        (noise(), [rectangle(0, 0, 1, 1).astype(int)] * 3, {}, "mask 0 must be bool"),
        (noise(), [rectangle(0, 0, 1, 1)] * 3, {"canvas": 256}, "canvas"),
        (noise(), [rectangle(0, 0, 1, 1)] * 3, {"canvas": 0.5}, "canvas"),
        (noise(), [rectangle(0, 0, 1, 1)] * 3, {"levels": 0}, "levels"),
    ],
)
def test_paste_levels_refuses_images_that_cant_be_pasted(image, masks, options, message):
    with pytest.raises(ValueError, match=message):
        paste_levels(image, masks, **options)


def test_an_image_needs_three_segments_and_a_smallest_one_of_more_than_5000_pixels():
    size = (100, 100)
    of_5000, of_5001 = rectangle(0, 0, 50, 100, size), rectangle(0, 0, 50, 100, size)
    of_5001[50, 0] = True
    assert is_eligible([of_5001] * 3)
    assert is_eligible([of_5001] * 4)
    assert not is_eligible([of_5001] * 2)
    assert not is_eligible([of_5001] * 3 + [of_5000])
    assert is_eligible([of_5000] * 3, min_pixels=4999)
    assert is_eligible([of_5001] * 2, levels=2)
    assert not is_eligible([])
    assert is_eligible([of_5000] * 3, min_pixels=0)


# The builder


def world(tmp_path):
    """Images by name, with the rectangles that are their segments: (top, left, height, width)."""
    good = [(0, 0, 3, 4), (5, 5, 10, 10), (0, 10, 6, 6), (15, 0, 5, 5)]
    scenes = {
        "good.png": good,
        "sub/also.jpg": good[1:],
        "two.png": good[:2],
        "small.png": [*good, (19, 29, 1, 1)],
        "gone.png": good,
        "broken.png": good,
        "empty.png": good,
        "size.png": good,
        "crowd.png": good[:3],
    }
    images, annotations = [], []
    for image_id, (name, boxes) in enumerate(scenes.items()):
        images.append({"id": image_id, "file_name": name, "height": 20, "width": 30})
        for box in boxes:
            number = len(annotations)
            annotations.append(
                make_annotation(rectangle(*box), id=number, image_id=image_id, category_id=number)
            )
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise((20, 31 if name == "size.png" else 30), image_id)).save(path)
    annotations[-1]["iscrowd"] = 1
    annotations[1]["area"] = 1  # not to be believed
    (tmp_path / "images" / "gone.png").unlink()
    (tmp_path / "images" / "broken.png").write_bytes(b"no picture")
    (tmp_path / "images" / "empty.png").write_bytes(b"")
    content = {"images": images, "annotations": annotations}
    (tmp_path / "instances.json").write_text(json.dumps(content))
    return tmp_path / "instances.json", tmp_path / "images", tmp_path / "out"


def read(path):
    return np.asarray(Image.open(path))


def test_what_is_built_and_what_is_left_out(tmp_path):
    annotations, images, out = world(tmp_path)
    built = build_hierarimgs(annotations, images, out, min_pixels=10, canvas=200)
    assert built.num_images == 2
    assert built.crowds == 1
    assert built.left_out == {
        "fewer than 3 segments": 2,
        "a segment of 10 pixels or fewer": 1,
        "missing file": 1,
        "unreadable image": 1,
        "empty image": 1,
        "not of the size that the annotations give": 1,
    }
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.*"))
    names = ("level-0.png", "level-1.png", "level-2.png", "original.png")
    assert found == [f"{stem}/{name}" for stem in ("also", "good") for name in names] + ["index.json"]
    original = read(images / "good.png")
    np.testing.assert_array_equal(read(out / "good" / "original.png"), original)
    shown = np.zeros((20, 30, 1), bool)
    for level, box in enumerate([(5, 5, 10, 10), (0, 10, 6, 6), (15, 0, 5, 5)]):
        shown |= rectangle(*box)[..., None]
        np.testing.assert_array_equal(
            read(out / "good" / f"level-{level}.png"), np.where(shown, original, 200)
        )


def test_index_has_settings_counts_and_images(tmp_path):
    annotations, images, out = world(tmp_path)
    built = build_hierarimgs(annotations, images, out, min_pixels=10)
    index = json.loads(built.index.read_text())
    assert built.index == out / "index.json"
    assert index["images"][0] == {
        "image_id": 0,
        "original": "good/original.png",
        "levels": ["good/level-0.png", "good/level-1.png", "good/level-2.png"],
        "areas": [100, 36, 25],
        "categories": ["1", "2", "3"],
    }
    del index["images"]
    assert index == {
        "annotations": "instances.json", "min_pixels": 10, "levels": 3, "canvas": 255,
        "left_out": built.left_out, "crowd_segments_left_out": 1,
    }  # fmt: skip


def test_an_interrupted_build_has_no_index_and_can_be_done_again(tmp_path, monkeypatch):
    annotations, images, out = world(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(hierarimgs, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            build_hierarimgs(annotations, images, out, min_pixels=10)
    assert (out / "good").is_dir()
    assert build_hierarimgs(annotations, images, out, min_pixels=10).num_images == 2
    with pytest.raises(FileExistsError, match="earlier build"):
        build_hierarimgs(annotations, images, out, min_pixels=10)


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["images"][1].update(file_name="other/good.jpg"), "2 images are called 'good'"),
        (lambda c: c["images"][1].update(file_name="...jpg"), "an image can't be called"),
        (
            lambda c: c["images"][1].update(file_name="index.json.jpg"),
            "an image can't be called 'index.json'",
        ),
        (lambda c: c["annotations"][1]["segmentation"].update(counts=[3]), "annotation 1: the run lengths"),
        (lambda c: c["annotations"][1].update(segmentation=[[1, 2]]), "annotation 1: a polygon"),
    ],
)
def test_annotations_that_make_no_sense_are_named(tmp_path, change, message):
    annotations, images, out = world(tmp_path)
    edit(annotations, change)
    with pytest.raises(ValueError, match=rf"instances.json: {message}"):
        build_hierarimgs(annotations, images, out, min_pixels=10)
    assert not (out / "index.json").exists()


def test_build_checks_settings_and_folders_first(tmp_path):
    annotations, images, out = world(tmp_path)
    with pytest.raises(ValueError, match="canvas"):
        build_hierarimgs(annotations, images, out, canvas=-1)
    for least in (float("nan"), 10.0, -1, True, "10", None):
        with pytest.raises(ValueError, match="min_pixels must be"):
            build_hierarimgs(annotations, images, out, min_pixels=least)
        with pytest.raises(ValueError, match="min_pixels"):
            is_eligible([], min_pixels=least)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        build_hierarimgs(annotations, tmp_path / "nowhere", out)
    assert not out.exists()


def test_progress_bar_counts_every_image(tmp_path, capsys):
    annotations, images, out = world(tmp_path)
    build_hierarimgs(annotations, images, out, progress=True)
    assert "9/9" in capsys.readouterr().err


def test_files_are_by_level_and_lie_beside_the_index(tmp_path):
    entries = [{"original": f"{n}.png", "levels": [f"{n}-0.png", f"{n}-1.png"]} for n in range(3)]
    (tmp_path / "index.json").write_text(json.dumps({"images": entries}))
    data = read_hierarimgs(tmp_path)
    assert data == read_hierarimgs(tmp_path / "index.json")
    assert data.originals == tuple(tmp_path / f"{n}.png" for n in range(3))
    assert data.levels == tuple(tuple(tmp_path / f"{n}-{k}.png" for n in range(3)) for k in range(2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "lists no images"),
        ({"images": []}, "lists no images"),
        ({"images": [{"original": "a.png"}]}, '"original" and "levels"'),
        ({"images": [{"original": "a", "levels": ["b"]}, {"original": "a", "levels": []}]}, "same number"),
    ],
)
def test_invalid_index_raises_with_the_problem(tmp_path, content, message):
    (tmp_path / "index.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_hierarimgs(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        read_hierarimgs(tmp_path / "nowhere")
