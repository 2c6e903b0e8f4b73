"""Data cut into tasks: every sample in exactly one, in order; streams are fetched ahead."""

import json
import shlex
import threading

import pytest

from prolip.data.sample import Bad, BadSampleError, Sample
from prolip.embeddings import tasks
from prolip.embeddings.tasks import SourceTasks, StreamTasks, open_source, open_tasks
from prolip.scenes.source import Scenes
from tests.embeddings.shards import caption, write_shards


@pytest.mark.parametrize(("length", "size"), [(10, 4), (8, 4), (3, 4), (1, 1)])
def test_each_sample_of_a_source_is_in_one_task(length, size):
    cut = SourceTasks(Scenes("simple", length=length), size)
    assert [item for task in range(len(cut)) for item in cut.items(task)] == list(range(length))
    assert [cut.size(task) for task in range(len(cut))] == [len(list(cut.items(t))) for t in range(len(cut))]
    assert cut.samples == length
    assert cut.read(length - 1).key == cut.source.read(length - 1).key


def test_a_shard_of_a_stream_is_a_task(tmp_path):
    write_shards(tmp_path / "shards", [5, 3])
    cut = open_tasks(f"pipe:cat {shlex.quote(str(tmp_path))}/shards/0000{{0,1}}.tar", None, None, "both", 4)
    assert isinstance(cut, StreamTasks)
    assert len(cut) == 2
    items = [list(cut.items(task)) for task in range(2)]
    assert [[cut.number(item) for item in one] for one in items] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    assert [cut.read(item).key for item in items[1]] == ["000005", "000006", "000007"]
    assert [sample.key for sample in cut.peek()] == [f"{n:06d}" for n in range(8)]


def test_a_bad_sample_of_a_stream_is_bad_when_it_is_read():
    bad = Bad("no image", "somewhere", "why")
    with pytest.raises(BadSampleError) as caught:
        StreamTasks.read(None, (3, bad))
    assert caught.value.bad == bad


def test_peeking_leaves_bad_samples_out():
    class Half(Scenes):
        def read(self, index):
            if index % 2:
                raise BadSampleError("no image", str(index))
            return super().read(index)

    source = Half("simple", length=6)
    assert [s.key for s in SourceTasks(source, 4).peek()] == [source.read(n).key for n in (0, 2, 4)]


def test_texts_alone_need_no_pictures(tmp_path):
    (tmp_path / "captions.txt").write_text("a cat\na dog\n")
    (tmp_path / "captions.json").write_text(json.dumps(["a cat", "a dog"]))
    for name in ("captions.txt", "captions.json"):
        source = open_source(str(tmp_path / name), None, None, "texts")
        assert [source.read(n).captions for n in range(2)] == [("a cat",), ("a dog",)]
    with pytest.raises(ValueError, match="no data that can be read"):
        open_source(str(tmp_path / "captions.txt"), None, None, "both")


def test_texts_of_shards_are_read_from_shards(tmp_path):
    source = open_source(write_shards(tmp_path / "s", [3]), None, None, "texts")
    assert source.read(2).captions == (caption(2).strip(),)


def test_a_stream_can_not_be_opened_at_a_place():
    with pytest.raises(ValueError, match="is a stream"):
        open_source("pipe:cat x.tar", None, None, "both")


def samples(count, error=None):
    for number in range(count):
        yield Sample(str(number), "", b"x", ())
    if error:
        raise error


def test_fetched_ahead_is_the_same_in_order(monkeypatch):
    monkeypatch.setattr(tasks, "AHEAD", 3)
    assert [s.key for s in tasks._fetched(samples(20))] == [str(n) for n in range(20)]


def test_an_error_of_the_fetcher_comes_in_its_place():
    found = tasks._fetched(samples(2, OSError("the network is away")))
    assert [next(found).key, next(found).key] == ["0", "1"]
    with pytest.raises(OSError, match="network is away"):
        next(found)


def test_no_more_than_a_few_are_fetched_and_a_reader_that_leaves_ends_the_thread(monkeypatch):
    monkeypatch.setattr(tasks, "AHEAD", 3)
    taken, before = [], threading.active_count()

    def endless():
        while True:
            taken.append(1)
            yield Sample("x", "", b"x", ())

    found = tasks._fetched(endless())
    next(found)
    found.close()
    assert threading.active_count() == before
    assert len(taken) <= 6
