"""The inference loop: a batch lies within one task, items are read in order, bad ones stay in their place."""

import pytest
import torch

from prolip.data.sample import Bad, BadSampleError, Sample
from prolip.embeddings.inference_loop import encoded, good_or_bad, prepared
from prolip.embeddings.sample_metadata import digest_of
from prolip.preprocessing.images import to_pixels
from prolip.scenes.source import Scenes


@pytest.fixture
def sizes(nano, monkeypatch):
    """How many pictures went through the network together."""
    found, forward = [], nano.encode_image
    monkeypatch.setattr(nano, "encode_image", lambda pixels: (found.append(len(pixels)), forward(pixels))[1])
    return found


def test_batches_lie_within_tasks(nano, sizes):
    source, done = Scenes("simple", length=12, size=32), []

    def read(item):
        if item == 4:
            return item, Bad("no image", "four")
        return item, prepared(source.read(item), nano.config.image.pixels)

    tasks = [("a", range(5)), ("b", []), ("c", range(5, 12))]
    parts = dict(encoded(nano, tasks, read, 3, done.append, threads=2))
    assert list(parts) == ["a", "b", "c"]
    assert parts["a"].numbers == [0, 1, 2, 3]
    assert parts["a"].bads == {4: Bad("no image", "four")}
    assert (parts["b"].numbers, parts["b"].blocks) == ([], [])
    assert parts["c"].numbers == list(range(5, 12))
    assert sizes == [3, 1, 3, 3, 1]
    assert done == [3, 2, 0, 3, 3, 1]
    alone = nano.embed_images([source.read(n).image for n in range(5, 12)])
    torch.testing.assert_close(torch.cat([z.mean for z in parts["c"].blocks]), alone.mean, rtol=0, atol=1e-6)


def test_an_error_of_a_reader_ends_the_loop(nano):
    def read(item):
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(encoded(nano, [("a", range(3))], read, 2, lambda _: None))


def test_without_its_picture(nano):
    damaged = Sample("key", "here", b"no picture", ("a thing",))
    pixels, facts, stamp = prepared(damaged, None)
    assert (pixels, facts.captions, facts.pixels, stamp) == (None, ("a thing",), "", None)
    with pytest.raises(BadSampleError):
        prepared(damaged, nano.config.image.pixels)
    answer = good_or_bad(lambda: prepared(damaged, nano.config.image.pixels))
    assert isinstance(answer, Bad)


def test_what_the_model_sees_has_a_digest(nano):
    sample = Scenes("simple", length=1, size=32).read(0)
    pixels, facts, _ = prepared(sample, nano.config.image.pixels)
    assert torch.equal(pixels, to_pixels(sample.image, nano.config.image.pixels))
    assert facts.pixels == digest_of(pixels)
