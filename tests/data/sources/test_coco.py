"""COCO's files against what was written; masks against loops over pixels and an encoder of the format's description."""

import json
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from prolip.data.sample import BadSampleError
from prolip.data.sources.coco import (
    CocoCaptions,
    Segment,
    decode_mask,
    encode_rle,
    make_annotation,
    read_instances,
)


def segment(segmentation, number=7):
    return Segment(number, "thing", (0.0, 0.0, 1.0, 1.0), 1.0, segmentation, False)


def runs(mask):
    """By the format's words: lengths of runs down the columns, from the left, the first one of zeros."""
    height, width = mask.shape
    counts, value = [0], False
    for x in range(width):
        for y in range(height):
            if mask[y, x] != value:
                counts.append(0)
                value = not value
            counts[-1] += 1
    return counts


def compressed(counts):
    """By the format's words: groups of five bits, until what is left is the sign of the last group."""
    text = ""
    for i, count in enumerate(counts):
        number = count - counts[i - 2] if i > 2 else count
        while True:
            low, number = number % 32, number // 32
            done = (number == 0 and low < 16) or (number == -1 and low >= 16)
            text += chr(48 + low + (0 if done else 32))
            if done:
                break
    return text


masks = arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9)))
long_masks = st.builds(
    lambda lengths, off: np.repeat(np.arange(len(lengths)) % 2 == off, lengths)[None],
    st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    st.integers(0, 1),
)


# Masks


@given(masks)
def test_encode_rle_equals_the_definition(mask):
    assert encode_rle(mask) == {"counts": runs(mask), "size": list(mask.shape)}


@given(masks | long_masks)
def test_decode_mask_inverts_encode_rle(mask):
    plain = encode_rle(mask)
    packed = {"counts": compressed(plain["counts"]), "size": plain["size"]}
    for form in (json.loads(json.dumps(plain)), packed):
        found = decode_mask(segment(form), *mask.shape)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, mask)


def test_compressed_run_lengths_worked_out_by_hand():
    """6, 1, 40, 4, 43, 6: the fourth and on as differences, 3, 3, 2; 40 = 8 + 32 * 1, which is "X1"."""
    assert compressed([6, 1, 40, 4, 43, 6]) == "61X1332"
    found = decode_mask(segment({"counts": "61X1332", "size": [10, 10]}), 10, 10)
    assert np.flatnonzero(found.T.ravel()).tolist() == [6, *range(47, 51), *range(94, 100)]


def test_a_run_can_get_shorter():
    """9, 9, 9, 1: the difference of the last is -8, five bits 11000 with their sign, 24 + 48 = "H"."""
    found = decode_mask(segment({"counts": "999H", "size": [28, 1]}), 28, 1)
    assert found[:, 0].nonzero()[0].tolist() == [*range(9, 18), 27]


def is_inside(x, y, polygon):
    """Point in polygon, as in every textbook."""
    odd = False
    for (ax, ay), (bx, by) in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
        if (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
            odd = not odd
    return odd


corner = st.tuples(*[st.integers(-30, 150).map(lambda n: n / 10 + 0.03)] * 2)


@given(st.lists(st.lists(corner, min_size=3, max_size=7), min_size=1, max_size=3))
def test_polygon_masks_have_the_pixels_with_centers_inside(polygons):
    flat = [[value for point in polygon for value in point] for polygon in polygons]
    found = decode_mask(segment(flat), 9, 11)
    wanted = [[any(is_inside(x + 0.5, y + 0.5, p) for p in polygons) for x in range(11)] for y in range(9)]
    np.testing.assert_array_equal(found, wanted)


def test_a_square_has_its_area():
    found = decode_mask(segment([[1, 2, 5, 2, 5, 8, 1, 8]]), 10, 12)
    wanted = np.zeros((10, 12), bool)
    wanted[2:8, 1:5] = True
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (None, "neither a list of polygons nor RLE"),
        ({}, "neither"),
        ([[0, 0, 1, 1]], "at least three corners"),
        ([[0, 0, 1, 1, 2]], "at least three corners"),
        ([[0, 0, 1, 1, 2, 2, 3]], "at least three corners"),
        ([0, 0, 1, 1, 2, 2], "at least three corners"),
        ([[0, 0, 1, 1, 2, "2"]], "finite numbers"),
        ([[0, 0, 1, 1, 2, float("nan")]], "finite numbers"),
        ([[0, 0, 1, 1, 2, 10**400]], "finite numbers"),
        ({"counts": [6], "size": [3, 2]}, r"size \[3, 2\], but the image .*\[2, 3\]"),
        ({"counts": [6]}, "size None"),
        ({"counts": [5], "size": [2, 3]}, "sum to 5"),
        ({"counts": [7, -1], "size": [2, 3]}, "integers"),
        ({"counts": [6.0], "size": [2, 3]}, "integers"),
        ({"counts": [10**400], "size": [2, 3]}, "integers"),
        ({"counts": 6, "size": [2, 3]}, "integers"),
        ({"counts": "6 ", "size": [2, 3]}, "' ' is not valid"),
        ({"counts": "6p", "size": [2, 3]}, "'p' is not valid"),
        ({"counts": "6X", "size": [2, 3]}, "end within a number"),
        ({"counts": "X" * 10**6, "size": [2, 3]}, "'X' is not valid"),
        ({"counts": "H>", "size": [2, 3]}, "integers"),
    ],
)
def test_decode_mask_refuses_invalid_segmentations(form, message):
    with pytest.raises(ValueError, match=f"annotation 7: .*{message}"):
        decode_mask(segment(form), 2, 3)


@given(masks)
def test_make_annotation_has_the_box_and_area_of_its_mask(mask):
    if not mask.any():
        with pytest.raises(ValueError, match=r"annotation 3: .*no pixels"):
            make_annotation(mask, id=3, image_id=1, category_id=2)
        return
    entry = json.loads(json.dumps(make_annotation(mask, id=3, image_id=1, category_id=2)))
    ys, xs = np.nonzero(mask)
    box = [xs.min(), ys.min(), xs.max() - xs.min() + 1, ys.max() - ys.min() + 1]
    assert entry == {
        "id": 3, "image_id": 1, "category_id": 2, "bbox": box, "area": len(xs),
        "segmentation": {"counts": runs(mask), "size": list(mask.shape)}, "iscrowd": 0,
    }  # fmt: skip


# Instances


def instances():
    square = np.zeros((4, 6), bool)
    square[1:3, 2:5] = True
    polygon = {"id": 11, "image_id": 5, "category_id": 9, "bbox": [0, 0, 2, 2], "area": 3.5,
               "segmentation": [[0, 0, 2, 0, 2, 2]], "iscrowd": 1}  # fmt: skip
    return {
        "images": [
            {"id": 5, "file_name": "a.jpg", "height": 4, "width": 6},
            {"id": 2, "file_name": "b.jpg", "height": 3, "width": 3},
        ],
        "annotations": [polygon, make_annotation(square, id=10, image_id=5, category_id=1)],
        "categories": [{"id": 1, "name": "square"}],
    }


def written(tmp_path, content, name="instances.json"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_instances_are_read_as_they_were_written(tmp_path):
    first, second = read_instances(written(tmp_path, instances()))
    assert (first.id, first.file_name, first.height, first.width) == (5, "a.jpg", 4, 6)
    assert (second.id, second.segments) == (2, ())
    assert [s.id for s in first.segments] == [11, 10]
    assert [s.category for s in first.segments] == ["9", "square"]
    assert [s.crowd for s in first.segments] == [True, False]
    assert first.segments[0].bbox == (0.0, 0.0, 2.0, 2.0)
    assert [s.area for s in first.segments] == [3.5, 6.0]
    assert decode_mask(first.segments[1], 4, 6).sum() == 6


def changed(content, *keys, to):
    """A copy with the value at `keys` replaced; Ellipsis takes it out."""
    content = json.loads(json.dumps(content))
    place = content
    for key in keys[:-1]:
        place = place[key]
    if to is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = to
    return content


@pytest.mark.parametrize(
    ("keys", "to", "message"),
    [
        (("images",), ..., "a list of objects 'images'"),
        (("images",), {}, "a list of objects 'images'"),
        (("annotations",), [3], "a list of objects 'annotations'"),
        (("categories",), "x", "a list of objects 'categories'"),
        (("images", 1, "id"), ..., "entry 1 of 'images'.* has no id"),
        (("images", 1, "id"), True, "entry 1 of 'images'.* has no id"),
        (("images", 1, "file_name"), 3, "entry 1 of 'images'.* has no id or no file_name"),
        (("images", 1, "id"), 5, "several images have the id 5"),
        (("images", 0, "height"), ..., "image 5: height and width"),
        (("images", 0, "height"), 0, "image 5: height and width"),
        (("images", 0, "width"), 10**9, "image 5 has 1000000000 x 4"),
        (("annotations", 1, "image_id"), 3, "annotation 10: its image_id 3"),
        (("annotations", 1, "image_id"), [3], "annotation 10: its image_id"),
        (("annotations", 1, "image_id"), ..., "annotation 10: its image_id None"),
        (("annotations", 1, "id"), ..., "annotation number 1: the id"),
        (("annotations", 1, "segmentation"), ..., "annotation 10 has no segmentation"),
        (("annotations", 1, "bbox"), [1, 2, 3], "annotation 10: the bbox"),
        (("annotations", 1, "bbox"), [1, 2, 3, None], "annotation 10: the bbox"),
        (("annotations", 1, "area"), ..., "annotation 10: the bbox must be four numbers, and the area one"),
        (("annotations", 1, "area"), 10**400, "annotation 10: the bbox"),
    ],
)
def test_read_instances_refuses_invalid_files(tmp_path, keys, to, message):
    path = written(tmp_path, changed(instances(), *keys, to=to))
    with pytest.raises(ValueError, match=rf"instances.json.*{message}"):
        read_instances(path)


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000])
@pytest.mark.parametrize("read", [read_instances, CocoCaptions])
def test_files_that_are_not_json_objects(tmp_path, content, read):
    with pytest.raises(ValueError, match=r"instances.json"):
        read(written(tmp_path, content))


def test_odd_categories_do_not_matter(tmp_path):
    content = changed(instances(), "categories", to=[{"id": [1], "name": "x"}, {}])
    assert read_instances(written(tmp_path, content))[0].segments[1].category == "1"


# Captions


def captions():
    return {
        "images": [{"id": i, "file_name": f"{i}.jpg"} for i in (30, 10, 20)],
        "annotations": [
            {"id": 1, "image_id": 10, "caption": "ten"},
            {"id": 2, "image_id": 30, "caption": "thirty "},
            {"id": 3, "image_id": 10, "caption": "ten again"},
        ],
    }


def pictures(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")
    return folder


def bad(source, index):
    with pytest.raises(BadSampleError) as caught:
        source.read(index)
    return caught.value.record


def test_images_come_with_all_their_captions(tmp_path):
    folder = pictures(tmp_path / "val2017", "10.jpg", "20.jpg", "30.jpg")
    source = CocoCaptions(written(tmp_path, captions(), "annotations/captions_val2017.json"))
    assert len(source) == source.chunks.sum() == 3
    assert [source.read(i).captions for i in (0, 1)] == [("thirty",), ("ten", "ten again")]
    assert [source.read(i).image for i in (0, 1)] == [folder / "30.jpg", folder / "10.jpg"]
    assert [source.read(i).key for i in (0, 1)] == ["30", "10"]
    assert source.read(0).extra == {"image_id": 30}
    assert bad(source, 2).reason == "no caption"
    assert "captions_val2017.json: image 20 (20.jpg)" in bad(source, 2).location
    (folder / "10.jpg").unlink()
    assert bad(source, 1).reason == "missing file"
    with pytest.raises(IndexError):
        source.read(3)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("annotations/captions_val2017.json", "val2017"),
        ("annotations/captions_val2017.json", "images/val2017"),
        ("annotations/captions_val2017.json", "images"),
        ("annotations/c.json", "annotations"),
        ("c.json", "images"),
        ("c.json", "."),
        ("c_val.json", "val"),
    ],
)
def test_the_images_are_found_around_the_file(tmp_path, file, folder):
    path = written(tmp_path, captions(), file)
    with pytest.raises(ValueError, match=r"open_data\(path, image=FOLDER\)"):
        CocoCaptions(path)
    pictures(tmp_path / folder, "20.jpg")
    assert CocoCaptions(path).images.samefile(tmp_path / folder)


def test_names_that_no_file_can_have_are_not_there(tmp_path):
    pictures(tmp_path, "30.jpg")
    for name in ("x" * 5000, "30.jpg/x", "x\0", "\ud800"):
        source = CocoCaptions(written(tmp_path, changed(captions(), "images", 1, "file_name", to=name)))
        assert bad(source, 1).reason == "missing file"
        content = captions() | {"images": [{"id": 10, "file_name": name}], "annotations": []}
        with pytest.raises(ValueError, match="in none of"):
            CocoCaptions(written(tmp_path, content))


def test_coco_refuses_a_file_without_images(tmp_path):
    for options in ({}, {"images": tmp_path}):
        with pytest.raises(ValueError, match=r"instances.json: .*images is empty"):
            CocoCaptions(written(tmp_path, {"images": [], "annotations": []}), **options)


def test_coco_captions_prefers_the_given_folder(tmp_path):
    path = written(tmp_path, captions())
    pictures(tmp_path / "images", "30.jpg")
    assert (
        CocoCaptions(path, pictures(tmp_path / "here", "30.jpg")).read(0).image
        == tmp_path / "here" / "30.jpg"
    )
    with pytest.raises(FileNotFoundError, match="no such folder"):
        CocoCaptions(path, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="missing"):
        CocoCaptions(tmp_path / "nothere.json")


def test_without_captions_an_instances_file_will_do(tmp_path):
    pictures(tmp_path, "a.jpg")
    path = written(tmp_path, instances())
    assert CocoCaptions(path, captions=False).read(0).captions == ()
    with pytest.raises(ValueError, match=r"annotation 11 has no caption.*instances file"):
        CocoCaptions(path)


@pytest.mark.parametrize(
    ("caption", "reason"), [(3, "unreadable caption"), ("", "empty caption"), (None, "no caption")]
)
def test_bad_captions_have_reasons(tmp_path, caption, reason):
    pictures(tmp_path, "30.jpg")
    path = written(tmp_path, changed(captions(), "annotations", 1, "caption", to=caption))
    assert bad(CocoCaptions(path), 0).reason == reason


def test_annotation_of_an_unknown_image_raises(tmp_path):
    pictures(tmp_path, "30.jpg")
    with pytest.raises(ValueError, match="annotation 3: its image_id 4"):
        CocoCaptions(written(tmp_path, changed(captions(), "annotations", 2, "image_id", to=4)))


def test_copies_and_fingerprints(tmp_path):
    pictures(tmp_path, "30.jpg")
    source = CocoCaptions(written(tmp_path, captions()))
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(0) == source.read(0)
    assert copy.fingerprint() == source.fingerprint()
    for content in (
        changed(captions(), "annotations", 0, "caption", to="other"),
        changed(captions(), "images", to=captions()["images"][::-1]),
    ):
        assert CocoCaptions(written(tmp_path, content)).fingerprint() != source.fingerprint()


def test_fingerprint_depends_on_files_and_ids(tmp_path):
    pictures(tmp_path, "30.jpg")
    prints = {CocoCaptions(written(tmp_path, captions())).fingerprint()}
    content = captions()
    number = next(i for i, image in enumerate(content["images"]) if image["file_name"] != "30.jpg")
    renamed = changed(content, "images", number, "file_name", to="another.jpg")
    prints.add(CocoCaptions(written(tmp_path, renamed)).fingerprint())
    content = captions()
    for entry in content["images"]:
        entry["id"] += 1000
    for entry in content["annotations"]:
        entry["image_id"] += 1000
    prints.add(CocoCaptions(written(tmp_path, content)).fingerprint())
    assert len(prints) == 3
