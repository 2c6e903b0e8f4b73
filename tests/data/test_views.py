"""ViewSource: views of a source's samples."""

import numpy as np
import pytest
from PIL import Image

from prolip.data.open import open_data
from prolip.data.sample import BadSampleError, Sample
from prolip.data.views import ViewSource, format_view, parse_view
from prolip.preprocessing.images import read_image
from prolip.preprocessing.text_cropping import find_words
from tests.adaptation.pictures import Pictures, describe, draw, write_shard


def pixels(sample):
    return np.asarray(read_image(sample.image))


def test_text_crops_are_spans_of_their_own_captions():
    view = ViewSource(Pictures(30), "crops", 1)
    shortened = 0
    for index in range(30):
        sample = view.read(index)
        assert len(sample.captions) == len(describe(index))
        for crop, caption in zip(sample.captions, describe(index), strict=True):
            assert crop in caption
            shortened += len(find_words(crop)) < len(find_words(caption))
        assert (pixels(sample) == draw(index)).all()
    assert shortened == sum(len(describe(index)) for index in range(30))


def test_parts_differ_from_the_image_and_keep_the_captions():
    view = ViewSource(Pictures(30), "part", 1)
    for index in range(30):
        sample = view.read(index)
        assert sample.captions == tuple(describe(index))
        part = pixels(sample)
        assert part.shape != (24, 24, 3) or (part != draw(index)).any()


@pytest.mark.parametrize("kind", ["part", "crops"])
def test_a_view_depends_on_seed_and_index_alone(kind):
    def read(seed, order):
        view = ViewSource(Pictures(12), kind, seed)
        samples = {index: view.read(index) for index in order}
        return [(pixels(samples[i]).tobytes(), samples[i].captions) for i in range(12)]

    assert read(1, range(12)) == read(1, reversed(range(12)))
    assert read(1, range(12)) != read(2, range(12))


def test_addresses_are_parsed_and_formatted(tmp_path):
    for kind, seed, data in (
        ("part", 3, "a/b.tar"),
        ("crops", 1000, "scenes:simple"),
        ("part", 1, "view:part@2:x"),
    ):
        assert parse_view(format_view(kind, seed, data)) == (kind, seed, data)
    for address in ("photos", "view:other@1:x", "view:part@:x", "view:part@1:", "view:part@-1:x"):
        assert parse_view(address) is None


def test_open_data_opens_an_address_as_the_same_view(tmp_path):
    path = str(write_shard(tmp_path / "a.tar", 6))
    opened = open_data(format_view("crops", 5, path), captions=("json:caption",))
    direct = ViewSource(open_data(path, captions=("json:caption",)), "crops", 5)
    assert [opened.read(i).captions for i in range(6)] == [direct.read(i).captions for i in range(6)]
    assert opened.fingerprint() == direct.fingerprint()
    assert (len(opened), opened.name) == (6, f"view:crops@5:{path}")


def test_fingerprints_tell_views_apart():
    views = [ViewSource(Pictures(4), kind, seed) for kind in ("part", "crops") for seed in (1, 2)]
    prints = {view.fingerprint() for view in views} | {Pictures(4).fingerprint()}
    assert len(prints) == 5
    assert ViewSource(Pictures(4), "part", 1).fingerprint() == views[0].fingerprint()


def test_unreadable_images_are_bad_samples_and_crops_do_not_read_them():
    class Broken(Pictures):
        def read(self, index):
            return Sample(key="0", location="here", image=b"no image", captions=("a b c",))

    with pytest.raises(BadSampleError, match="here: unreadable image"):
        ViewSource(Broken(1), "part", 1).read(0)
    assert ViewSource(Broken(1), "crops", 1).read(0).image == b"no image"


def test_images_in_memory_have_parts():
    class Memory(Pictures):
        def read(self, index):
            return Sample(key="0", location="here", image=Image.fromarray(draw(0)), captions=())

    assert ViewSource(Memory(1), "part", 1).read(0).captions == ()
    assert ViewSource(Memory(1), "crops", 1).read(0).captions == ()
