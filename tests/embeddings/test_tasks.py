"""Tasks: every sample is in exactly one, in order; streams are prefetched."""

import json
import shlex
import threading

import pytest
from PIL import Image

from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.embeddings import tasks
from prolip.embeddings.tasks import SourceTasks, StreamTasks, open_source, open_tasks
from prolip.scenes.source import Scenes
from tests.embeddings.shards import caption, write_shards


@pytest.mark.parametrize(("length", "size"), [(10, 4), (8, 4), (3, 4), (1, 1)])
def test_source_tasks_cover_every_sample_once(length, size):
    cut = SourceTasks(Scenes("simple", length=length), size)
    assert [item for task in range(len(cut)) for item in cut.items(task)] == list(range(length))
    assert [cut.size(task) for task in range(len(cut))] == [len(list(cut.items(t))) for t in range(len(cut))]
    assert cut.num_samples == length
    assert cut.read(length - 1).key == cut.source.read(length - 1).key


def test_stream_tasks_are_shards(tmp_path):
    write_shards(tmp_path / "shards", [5, 3])
    cut = open_tasks(f"pipe:cat {shlex.quote(str(tmp_path))}/shards/0000{{0,1}}.tar", None, None, None, 4)
    assert isinstance(cut, StreamTasks)
    assert len(cut) == 2
    items = [list(cut.items(task)) for task in range(2)]
    assert [[cut.get_index(item) for item in one] for one in items] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    assert [cut.read(item).key for item in items[1]] == ["000005", "000006", "000007"]
    assert [sample.key for sample in cut.iter_examples()] == [f"{n:06d}" for n in range(8)]


def test_stream_tasks_read_raises_errors_of_samples():
    bad = SampleError("no image", "somewhere", "why")
    with pytest.raises(BadSampleError) as caught:
        StreamTasks.read(None, (3, bad))
    assert caught.value.record == bad


def test_iter_examples_skips_bad_samples():
    class Half(Scenes):
        def read(self, index):
            if index % 2:
                raise BadSampleError("no image", str(index))
            return super().read(index)

    source = Half("simple", length=6)
    assert [s.key for s in SourceTasks(source, 4).iter_examples()] == [source.read(n).key for n in (0, 2, 4)]


def test_open_source_of_texts_needs_no_images(tmp_path):
    (tmp_path / "captions.txt").write_text("a cat\na dog\n")
    (tmp_path / "captions.json").write_text(json.dumps(["a cat", "a dog"]))
    for name in ("captions.txt", "captions.json"):
        source = open_source(str(tmp_path / name), None, None, "text")
        assert [source.read(n).captions for n in range(2)] == [("a cat",), ("a dog",)]
    with pytest.raises(ValueError, match=r"captions\.txt: the format of the data is not recognized"):
        open_source(str(tmp_path / "captions.txt"), None, None, None)


def make_image_folder(folder, captions):
    """Three images, of which the first `captions` have a caption."""
    for number in range(3):
        Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
    for number in range(captions):
        (folder / f"{number}.txt").write_text(f"caption {number}")
    return str(folder)


@pytest.mark.parametrize("num_captions", [0, 1, 3])
def test_open_source_of_images_needs_no_captions(tmp_path, num_captions):
    source = open_source(make_image_folder(tmp_path, num_captions), None, None, "image")
    expected = [(f"caption {n}",) if n < num_captions else () for n in range(3)]
    assert [source.read(n).captions for n in range(3)] == expected


def test_open_source_names_the_modality_that_fits(tmp_path):
    with pytest.raises(ValueError, match="--modality image"):
        open_source(make_image_folder(tmp_path, 0), None, None, None)
    (tmp_path / "captions.csv").write_text("caption\na cat\n")
    with pytest.raises(ValueError, match="--modality text"):
        open_source(str(tmp_path / "captions.csv"), None, None, None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty") as caught:
        open_source(str(tmp_path / "empty"), None, None, None)
    assert "--modality" not in str(caught.value)


def test_open_source_of_texts_reads_shards(tmp_path):
    source = open_source(write_shards(tmp_path / "s", [3]), None, None, "text")
    assert source.read(2).captions == (caption(2).strip(),)


def test_open_source_rejects_streams():
    with pytest.raises(ValueError, match="is a stream"):
        open_source("pipe:cat x.tar", None, None, None)


def samples(count, error=None):
    for number in range(count):
        yield Sample(str(number), "", b"x", ())
    if error:
        raise error


def test_prefetch_keeps_the_order(monkeypatch):
    monkeypatch.setattr(tasks, "PREFETCH_SAMPLES", 3)
    assert [s.key for s in tasks._prefetch(samples(20))] == [str(n) for n in range(20)]


def test_prefetch_raises_errors_in_order():
    found = tasks._prefetch(samples(2, OSError("the network is away")))
    assert [next(found).key, next(found).key] == ["0", "1"]
    with pytest.raises(OSError, match="network is away"):
        next(found)


def test_prefetch_is_bounded_and_ends_with_its_consumer(monkeypatch):
    monkeypatch.setattr(tasks, "PREFETCH_SAMPLES", 3)
    taken, before = [], threading.active_count()

    def endless():
        while True:
            taken.append(1)
            yield Sample("x", "", b"x", ())

    found = tasks._prefetch(endless())
    next(found)
    found.close()
    assert threading.active_count() == before
    assert len(taken) <= 6
