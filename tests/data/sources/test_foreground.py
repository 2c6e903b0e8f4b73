"""Pictures and their objects: what is blanked, what is bad, and what counts as other data."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from prolip.data.source import FileBacked
from prolip.data.sources.foreground import ForegroundImages, occlude_center
from prolip.embeddings.embedder import encode_images
from prolip.embeddings.identity import data_identity
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset
from tests.data.annotated import write_three


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "data"
    write_dataset(out, SceneDatasetSpec(image_size=32, num_test=9, num_train=1), progress=False)
    return out / "hierarimgs"


@pytest.fixture
def two(tmp_path):
    return tmp_path, *write_three(tmp_path)


def test_all_but_the_union_of_the_segments_is_blank(two):
    folder, pictures, masks = two
    source = ForegroundImages(folder / "instances.json", folder, canvas=201)
    assert len(source) == 2, "a picture without segments is left out"
    sample = source.read(0)
    kept = np.asarray(sample.image)
    union = masks.any(0)
    assert np.array_equal(kept[union], pictures[0][union])
    assert (kept[~union] == 201).all()
    assert sample.extra["object_fraction"] == union.mean()
    whole = ForegroundImages(folder / "instances.json", folder).read(0)
    assert np.array_equal(np.asarray(Image.open(whole.image)), pictures[0])


def test_other_objects_are_other_data(folder):
    path, images = folder / "instances.json", folder / "images"
    found = {
        ForegroundImages(path, images, canvas=c, limit=n).fingerprint()
        for c in (None, 0, 255)
        for n in (None, 4)
    }
    assert len(found) == 6


def test_edited_image_is_embedded_again(two, nano, tmp_path):
    folder, pictures, _ = two

    def encoded():
        source = ForegroundImages(folder / "instances.json", folder, canvas=255, limit=1)
        return encode_images(nano, source, cache=tmp_path / "cache")

    first = encoded()
    assert torch.equal(encoded().images.mean, first.images.mean)
    Image.fromarray(255 - pictures[0]).save(folder / "0.png")
    assert not torch.allclose(encoded().images.mean, first.images.mean)


def test_another_image_folder_has_another_fingerprint(two, nano, tmp_path):
    folder, pictures, _ = two
    other = tmp_path / "other"
    other.mkdir()
    Image.fromarray(255 - pictures[0]).save(other / "0.png")
    for canvas in (None, 255):
        first, second = (
            encode_images(
                nano,
                ForegroundImages(folder / "instances.json", place, canvas=canvas, limit=1),
                cache=tmp_path / "c",
            )
            for place in (folder, other)
        )
        assert not torch.allclose(first.images.mean, second.images.mean)


def test_files_are_the_annotations_and_existing_images(two):
    folder, _, _ = two
    assert isinstance(ForegroundImages(folder / "instances.json", folder), FileBacked)
    (folder / "2.png").unlink()
    source = ForegroundImages(folder / "instances.json", folder, canvas=0)
    assert source.files() == [folder / "instances.json", folder / "0.png"], "a missing one is a bad sample"
    data_identity(source, None)


def test_foreground_images_refuses_invalid_arguments(folder, two):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ForegroundImages(folder / "instances.json", folder / "nowhere")
    with pytest.raises(ValueError, match="canvas"):
        ForegroundImages(folder / "instances.json", folder / "images", canvas=300)
    with pytest.raises(ValueError, match="limit"):
        ForegroundImages(folder / "instances.json", folder / "images", limit=0)
    empty = two[0] / "empty.json"
    empty.write_text(
        json.dumps({"images": [{"id": 1, "file_name": "1.png", "height": 2, "width": 2}], "annotations": []})
    )
    with pytest.raises(ValueError, match="has a segment"):
        ForegroundImages(empty, two[0])
    assert len(ForegroundImages(folder / "instances.json", folder / "images", limit=4)) == 4


@pytest.mark.parametrize("fraction", [0.0, 0.025, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [(100, 60), (224, 224), (33, 47)])
def test_occlude_center_hides_the_fraction_in_the_middle(fraction, size):
    image = Image.new("RGB", size, (255, 0, 0))
    hidden = (np.asarray(occlude_center(image, fraction)) == 128).all(-1)
    assert hidden.mean() == pytest.approx(fraction, abs=0.5 * (1 / size[0] + 1 / size[1]))
    assert np.asarray(image)[..., 0].min() == 255  # the original is as it was
    if 0 < fraction < 1:
        rows, columns = np.nonzero(hidden)
        assert abs(rows.mean() - (size[1] - 1) / 2) <= 0.5
        assert abs(columns.mean() - (size[0] - 1) / 2) <= 0.5
        assert hidden[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()


@pytest.mark.parametrize(
    ("fraction", "level"), [(-0.1, 0), (1.1, 0), (float("nan"), 0), (0.1, 256), (0.1, -1)]
)
def test_occlude_center_refuses_values_out_of_range(fraction, level):
    with pytest.raises(ValueError, match="must be in 0"):
        occlude_center(Image.new("RGB", (8, 8)), fraction, level)


def test_occlude_center_refuses_other_modes():
    with pytest.raises(ValueError, match="not L"):
        occlude_center(Image.new("L", (8, 8)), 0.1)
