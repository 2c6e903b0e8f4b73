"""The inference loop: a batch lies within one task, and errors stay with their sample index."""

import pytest
import torch

from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.embeddings.inference_loop import encode_tasks, prepare_or_error, prepare_sample
from prolip.embeddings.sample_metadata import hash_pixels
from prolip.preprocessing.images import resize_and_crop
from prolip.scenes.source import Scenes


@pytest.fixture
def sizes(nano, monkeypatch):
    """Batch sizes of the forward passes."""
    found, forward = [], nano.encode_image
    monkeypatch.setattr(nano, "encode_image", lambda pixels: (found.append(len(pixels)), forward(pixels))[1])
    return found


def test_encode_tasks_batches_never_span_tasks(nano, sizes):
    source, done = Scenes("simple", length=12, size=32), []

    def read(item):
        if item == 4:
            return item, SampleError("no image", "four")
        return item, prepare_sample(source.read(item), nano.config.image.preprocessing)

    tasks = [("a", range(5)), ("b", []), ("c", range(5, 12))]
    parts = dict(encode_tasks(nano, tasks, read, 3, done.append, threads=2))
    assert list(parts) == ["a", "b", "c"]
    assert parts["a"].indices == [0, 1, 2, 3]
    assert parts["a"].errors == {4: SampleError("no image", "four")}
    assert (parts["b"].indices, parts["b"].gaussians) == ([], [])
    assert parts["c"].indices == list(range(5, 12))
    assert sizes == [3, 1, 3, 3, 1]
    assert done == [3, 2, 0, 3, 3, 1]
    alone = nano.embed_images([source.read(n).image for n in range(5, 12)])
    torch.testing.assert_close(
        torch.cat([z.mean for z in parts["c"].gaussians]), alone.mean, rtol=0, atol=1e-6
    )


def test_encode_tasks_raises_errors_of_readers(nano):
    def read(item):
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(encode_tasks(nano, [("a", range(3))], read, 2, lambda _: None))


def test_prepare_sample_without_image(nano):
    damaged = Sample("key", "here", b"no image", ("a thing",))
    pixels, metadata, stamp = prepare_sample(damaged, None)
    assert (pixels, metadata.captions, metadata.pixel_digest, stamp) == (None, ("a thing",), "", None)
    with pytest.raises(BadSampleError):
        prepare_sample(damaged, nano.config.image.preprocessing)
    result = prepare_or_error(lambda: prepare_sample(damaged, nano.config.image.preprocessing))
    assert isinstance(result, SampleError)


def test_prepare_sample_hashes_pixels(nano):
    sample = Scenes("simple", length=1, size=32).read(0)
    pixels, metadata, _ = prepare_sample(sample, nano.config.image.preprocessing)
    assert torch.equal(pixels, resize_and_crop(sample.image, nano.config.image.preprocessing))
    assert metadata.pixel_digest == hash_pixels(pixels)
