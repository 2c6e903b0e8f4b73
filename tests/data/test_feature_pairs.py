"""Feature pairs and the loader of their batches."""

import json
from itertools import islice

import numpy as np
import pytest
import torch

from prolip.data.feature_pairs import (
    CAPTIONS,
    IMAGES,
    META,
    OFFSETS,
    TEXTS,
    FeatureLoader,
    FeaturePairs,
    ViewFractions,
    write_meta,
)

NUM_IMAGES, IMAGE_VIEWS, TEXT_VIEWS = 20, 3, 4
COUNTS = [1 + index % 3 for index in range(NUM_IMAGES)]
HALF = ViewFractions(images=0.3, texts=0.4)


def write(folder, digest="d", image_views=IMAGE_VIEWS):
    """Features that say which image, caption and view they are: (image, view) and (image, caption, view)."""
    folder.mkdir(exist_ok=True)
    images = [[(i, v) for v in range(image_views)] for i in range(NUM_IMAGES)]
    texts = [[(i, c, v) for v in range(TEXT_VIEWS)] for i, n in enumerate(COUNTS) for c in range(n)]
    np.save(folder / IMAGES, np.array(images, np.float16))
    np.save(folder / TEXTS, np.array(texts, np.float16))
    np.save(folder / OFFSETS, np.concatenate([[0], np.cumsum(COUNTS)]))
    captions = [f"{i} {c}" for i, n in enumerate(COUNTS) for c in range(n)]
    (folder / CAPTIONS).write_text(json.dumps({"captions": captions}))
    return write_meta(folder, digest)


@pytest.fixture
def pairs(tmp_path):
    return write(tmp_path / "pairs")


def read(loader, epochs=1):
    """All batches of some epochs."""
    return [batch for _ in range(epochs) for batch in loader]


def as_values(batches):
    return [
        (b.pixels.tolist(), b.token_ids.tolist(), b.captions, b.keys, b.sample_indices.tolist())
        for b in batches
    ]


def test_every_image_comes_once_per_epoch_in_another_order(pairs):
    loader = FeatureLoader(pairs, 5, HALF, seed=0)
    assert len(loader) == 4
    epochs = [torch.cat([batch.pixels[:, 0] for batch in loader]).tolist() for _ in range(3)]
    assert all(sorted(epoch) == list(range(NUM_IMAGES)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert loader.epoch == 3


def test_an_epoch_leaves_out_an_incomplete_batch(pairs):
    rows = torch.cat([batch.pixels[:, 0] for batch in FeatureLoader(pairs, 6, HALF, seed=0)]).tolist()
    assert len(rows) == len(set(rows)) == 18


def test_captions_and_views_are_those_of_the_image(pairs):
    for batch in read(FeatureLoader(pairs, 5, HALF, seed=0), epochs=20):
        assert torch.equal(batch.pixels[:, 0], batch.token_ids[:, 0])
        for row in range(5):
            image, caption, _ = batch.token_ids[row].int().tolist()
            assert batch.captions[row] == f"{image} {caption}"
            assert batch.keys[row] == str(image)
        assert batch.sample_indices.tolist() == batch.pixels[:, 0].tolist()


def test_captions_and_views_are_drawn_uniformly(pairs):
    batches = read(FeatureLoader(pairs, 20, HALF, seed=0), epochs=600)
    image_views = torch.cat([batch.pixels[:, 1] for batch in batches])
    text_views = torch.cat([batch.token_ids[:, 2] for batch in batches])
    for views, fraction, count in ((image_views, 0.3, IMAGE_VIEWS), (text_views, 0.4, TEXT_VIEWS)):
        expected = [1 - fraction] + [fraction / (count - 1)] * (count - 1)
        found = torch.bincount(views.long(), minlength=count) / len(views)
        torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=0.02)
    texts = torch.cat([batch.token_ids for batch in batches])
    of_three = texts[texts[:, 0] == 2, 1].long()
    torch.testing.assert_close(
        torch.bincount(of_three) / len(of_three), torch.full((3,), 1 / 3), rtol=0, atol=0.08
    )
    is_view = (image_views > 0) & (text_views > 0)
    assert abs(is_view.double().mean() - 0.12) < 0.02  # independent


def test_without_fractions_there_are_whole_inputs_only(pairs):
    for batch in read(FeatureLoader(pairs, 5, ViewFractions(), seed=0), epochs=5):
        assert (batch.pixels[:, 1] == 0).all()
        assert (batch.token_ids[:, 2] == 0).all()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_batches_do_not_depend_on_the_number_of_ranks(pairs, world_size):
    expected = as_values(read(FeatureLoader(pairs, 6, HALF, seed=4, rank=0, world_size=1), 3))
    ranks = [
        read(FeatureLoader(pairs, 6, HALF, seed=4, rank=r, world_size=world_size), 3)
        for r in range(world_size)
    ]
    for number, batch in enumerate(expected):
        parts = as_values([batches[number] for batches in ranks])
        assert all(len(part[0]) == 6 // world_size for part in parts)
        for field, value in enumerate(batch):
            assert [row for part in parts for row in part[field]] == list(value)


@pytest.mark.parametrize("resume_at", range(9))
def test_resuming_continues_at_any_batch(pairs, resume_at):
    expected = as_values(read(FeatureLoader(pairs, 5, HALF, seed=0), 3))
    first, stream = FeatureLoader(pairs, 5, HALF, seed=0), []
    while len(stream) < resume_at:
        stream += list(islice(iter(first), resume_at - len(stream)))
    state = json.loads(json.dumps(first.state_dict()))
    second = FeatureLoader(pairs, 5, HALF, seed=0)
    second.load_state_dict(state)
    while len(stream) < len(expected):
        stream += read(second)
    assert as_values(stream) == expected


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"global_batch_size": 4}, "global_batch_size"),
        ({"fractions": ViewFractions(images=0.3, texts=0.5)}, "text_views"),
        ({"fractions": ViewFractions(images=0.2, texts=0.4)}, "image_views"),
    ],
)
def test_the_state_of_other_settings_is_refused(pairs, changed, name):
    settings = {"global_batch_size": 5, "fractions": HALF, "seed": 0}
    state = FeatureLoader(pairs, **settings).state_dict()
    with pytest.raises(ValueError, match=name):
        FeatureLoader(pairs, **settings | changed).load_state_dict(state)


def test_the_state_of_other_features_is_refused(pairs, tmp_path):
    other = write(tmp_path / "other", digest="e")
    state = FeatureLoader(pairs, 5, HALF, seed=0).state_dict()
    with pytest.raises(ValueError, match="digest"):
        FeatureLoader(other, 5, HALF, seed=0).load_state_dict(state)


@pytest.mark.parametrize(
    "change", [{"batch": 5}, {"batch": -1}, {"batch": "1"}, {"epoch": None}, {"epoch": -1}]
)
def test_a_damaged_state_is_refused(pairs, change):
    loader = FeatureLoader(pairs, 5, HALF, seed=0)
    with pytest.raises(ValueError, match="damaged"):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_unfit_batch_sizes_and_fractions_are_refused(tmp_path, pairs):
    with pytest.raises(ValueError, match="21 is more than the 20 images"):
        FeatureLoader(pairs, 21, HALF, seed=0)
    with pytest.raises(ValueError, match="not a multiple of the 2 ranks"):
        FeatureLoader(pairs, 5, HALF, seed=0, rank=0, world_size=2)
    without = write(tmp_path / "without", image_views=1)
    with pytest.raises(ValueError, match=r"fraction 0\.3 of the images"):
        FeatureLoader(without, 5, HALF, seed=0)
    with pytest.raises(ValueError, match="images"):
        ViewFractions(images=1.5)


def test_folders_that_are_not_complete_are_refused(pairs):
    (pairs.folder / META).unlink()
    with pytest.raises(FileNotFoundError, match="prolip adapt"):
        FeaturePairs(pairs.folder)


@pytest.mark.parametrize("name", [IMAGES, TEXTS, OFFSETS])
@pytest.mark.parametrize("size", [0, 20, -30])
def test_damaged_arrays_are_refused(pairs, name, size):
    path = pairs.folder / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=name):
        FeaturePairs(pairs.folder)


def test_arrays_of_another_shape_are_refused(pairs):
    np.save(pairs.folder / IMAGES, np.zeros((3, 1, 2), np.float16))
    with pytest.raises(ValueError, match=r"\[3, 1, 2\].*damaged"):
        FeaturePairs(pairs.folder)


def test_another_version_is_refused(pairs):
    path = pairs.folder / META
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(ValueError, match="version 99"):
        FeaturePairs(pairs.folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}'])
def test_a_damaged_description_is_refused(pairs, text):
    (pairs.folder / META).write_text(text)
    with pytest.raises(ValueError, match=r"features\.json|damaged"):
        FeaturePairs(pairs.folder)


@pytest.mark.parametrize("text", ["", '{"captions": 3}', '{"captions": ["one"]}', "{}"])
def test_damaged_captions_are_refused(pairs, text):
    (pairs.folder / CAPTIONS).write_text(text)
    with pytest.raises(ValueError, match=CAPTIONS):
        read(FeatureLoader(FeaturePairs(pairs.folder), 5, HALF, seed=0))


def test_offsets_that_do_not_fit_are_refused(pairs):
    offsets = np.load(pairs.folder / OFFSETS)
    np.save(pairs.folder / OFFSETS, offsets + 1)
    with pytest.raises(ValueError, match=OFFSETS):
        FeaturePairs(pairs.folder)
