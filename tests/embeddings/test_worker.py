"""The worker: what it writes, when it yields results, and that writing overlaps with encoding."""

import pytest

from prolip.embeddings import worker
from prolip.embeddings.dataset import EmbeddingDataset, get_part_name
from prolip.embeddings.embed import embed
from prolip.embeddings.worker import WorkerConfig
from prolip.storage.folders import open_storage
from tests.embeddings.shards import write_shards


@pytest.fixture
def one(nano, tmp_path):
    """A worker on three parts of shards, one sample of which is bad; nothing is written yet."""
    model, data = nano.save_pretrained(tmp_path / "model"), write_shards(tmp_path / "s", [10], bad={5})
    done = embed(
        str(model), data, tmp_path / "whole", part_size=4, batch_size=3, max_bad_fraction=1, progress=False
    )
    config = WorkerConfig(
        model=str(model), data=data, captions=None, image=None, modality=None, part_size=4, batch_size=3,
        text_batch_size=256, device="cpu", storage=open_storage(tmp_path / "out"),
    )  # fmt: skip
    return config.open_worker(done.header, threads=1), done


def test_open_worker_writes_the_same_parts(one, tmp_path):
    working, done = one
    results = list(working.run([2, 0, 1], lambda _: None))
    assert [(o.task, o.rows, o.num_samples, len(o.errors)) for o in results] == [
        (2, 4, 2, 0),
        (0, 8, 4, 0),
        (1, 6, 4, 1),
    ]
    found = EmbeddingDataset(working.storage, done.header)
    assert all(
        found.read_part(number).equals(done.read_part(number), check_metadata=True) for number in range(3)
    )


def test_run_yields_a_result_after_its_part_was_written(one, tmp_path):
    for result in one[0].run(range(3), lambda _: None):
        assert (tmp_path / "out" / get_part_name(result.task)).exists()


def test_run_writes_a_part_while_the_next_is_encoded(one, monkeypatch):
    """When the second part is encoded, the first is handed over and not yet yielded."""
    events, write, texts = [], worker.write_part, worker.Worker._embed_texts
    monkeypatch.setattr(
        worker, "write_part", lambda p, n, r: (write(p, n, r), events.append(f"written {n}"))[0]
    )
    monkeypatch.setattr(
        worker.Worker, "_embed_texts", lambda self, part: (events.append("encoded"), texts(self, part))[1]
    )
    for result in one[0].run(range(3), lambda _: None):
        events.append(f"yielded {result.task}")
    assert events.index("yielded 0") > [i for i, event in enumerate(events) if event == "encoded"][1]
    assert [event for event in events if event.startswith("yielded")] == [
        "yielded 0",
        "yielded 1",
        "yielded 2",
    ]
