"""One worker: what it writes, when it tells, and that writing waits for nobody."""

import pytest

from prolip.embeddings import worker
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embed import embed
from prolip.embeddings.footers import part_name
from prolip.embeddings.storage import place_of
from prolip.embeddings.worker_config import Plan
from tests.embeddings.shards import write_shards


@pytest.fixture
def one(nano, tmp_path):
    """A worker on three parts of shards, one sample of which is bad; nothing is written yet."""
    model, data = nano.save(tmp_path / "model"), write_shards(tmp_path / "s", [10], bad={5})
    done = embed(str(model), data, tmp_path / "whole", part_size=4, batch_size=3, bad_limit=1, progress=False)
    plan = Plan(
        model=str(model), data=data, captions=None, image=None, what="both", part_size=4, batch_size=3,
        text_batch=256, device="cpu", place=place_of(tmp_path / "out"),
    )  # fmt: skip
    return plan.worker(done.header, threads=1), done


def test_a_plan_opens_what_another_machine_opened(one, tmp_path):
    working, done = one
    told = list(working.run([2, 0, 1], lambda _: None))
    assert [(o.task, o.rows, o.tried, len(o.bads)) for o in told] == [
        (2, 4, 2, 0),
        (0, 8, 4, 0),
        (1, 6, 4, 1),
    ]
    found = Embeddings(working.place, done.header)
    assert all(found.part(number).equals(done.part(number), check_metadata=True) for number in range(3))


def test_a_part_is_there_when_it_is_told(one, tmp_path):
    for outcome in one[0].run(range(3), lambda _: None):
        assert (tmp_path / "out" / part_name(outcome.task)).exists()


def test_a_part_is_written_while_the_next_is_encoded(one, monkeypatch):
    """When the second part is encoded, the first is handed over and not yet told."""
    events, write, texts = [], worker.write_part, worker.Worker._texts
    monkeypatch.setattr(
        worker, "write_part", lambda p, n, r: (write(p, n, r), events.append(f"written {n}"))[0]
    )
    monkeypatch.setattr(
        worker.Worker, "_texts", lambda self, part: (events.append("encoded"), texts(self, part))[1]
    )
    for outcome in one[0].run(range(3), lambda _: None):
        events.append(f"told {outcome.task}")
    assert events.index("told 0") > [i for i, event in enumerate(events) if event == "encoded"][1]
    assert [event for event in events if event.startswith("told")] == ["told 0", "told 1", "told 2"]
