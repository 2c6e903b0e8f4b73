import json
import multiprocessing
from itertools import islice

import pytest
import torch

from prolip.data import CombinedLoader, Loader, Preprocessor
from prolip.preprocessing.images import ImagePreprocessing
from prolip.scenes import Scenes, make_tokenizer
from tests.data.test_loader import FakeSource

TOKENS = make_tokenizer()
PREPROCESSOR = Preprocessor(pixels=ImagePreprocessing(size=32), tokenizer=TOKENS)


def loaders(workers=0, sizes=((6, 4), (2, 9)), batches=5, **settings):
    """Loaders whose batches are of (size, ...) samples, from scenes of (..., seed)."""
    return [
        Loader(
            Scenes("simple", length=17, size=32, seed=seed, levels=(1.0, 0, 0, 0) if seed == 9 else (0, 0, 0, 1.0)),
            PREPROCESSOR, global_batch_size=size, samples_per_epoch=batches * size, seed=3, num_workers=workers,
            **settings,
        )
        for size, seed in sizes
    ]  # fmt: skip


def together(**settings):
    return CombinedLoader(loaders(**settings), pad_id=TOKENS.config.pad_id)


def rows(batch):
    sums = batch.pixels.sum(dim=(1, 2, 3), dtype=torch.int64).tolist()
    return list(zip(batch.keys, batch.captions, sums, strict=True))


def test_each_batch_is_made_of_the_loaders_batches():
    mixture = together()
    assert len(mixture) == 5
    alone = list(zip(*(iter(loader) for loader in loaders()), strict=True))
    for batch, (first, second) in zip(mixture, alone, strict=True):
        assert rows(batch) == rows(first) + rows(second)
        assert batch.sample_indices.tolist() == first.sample_indices.tolist() + second.sample_indices.tolist()
        assert batch.token_ids.shape[1] == max(first.token_ids.shape[1], second.token_ids.shape[1])
        assert torch.equal(batch.token_ids[:6, : first.token_ids.shape[1]], first.token_ids)
        rest = batch.token_ids[6:, second.token_ids.shape[1] :]
        assert (rest == TOKENS.config.pad_id).all()
        assert TOKENS.decode(batch.token_ids)[6:] == TOKENS.decode(second.token_ids)
    assert (mixture.epoch, mixture.position) == (1, 0)


@pytest.mark.parametrize("stop", range(6))
def test_combined_loader_resumes_exactly(stop):
    whole = [rows(batch) for batch in together()]
    mixture = together()
    first = [rows(batch) for batch in islice(iter(mixture), stop)]
    state = json.loads(json.dumps(mixture.state_dict()))
    resumed = together()
    resumed.load_state_dict(state)
    assert resumed.position == stop
    assert first + [rows(batch) for batch in resumed] == whole


def test_combined_loader_continues_after_a_break():
    mixture = together(workers=1)
    whole = [rows(batch) for batch in together()]
    found = []
    for batch in mixture:
        found.append(rows(batch))
        if len(found) == 2:
            break
    found += [rows(batch) for batch in mixture]
    mixture.close()
    assert found == whole


def test_error_counts_are_of_all_loaders():
    mixture = together()
    for _ in mixture:
        pass
    assert mixture.error_counts.tried == 5 * 8


def test_unequal_epochs_are_refused():
    first, second = loaders()[0], loaders(batches=6)[1]
    with pytest.raises(ValueError, match=r"\[5, 6\].*samples_per_epoch"):
        CombinedLoader([first, second], pad_id=0)
    with pytest.raises(ValueError, match="at least one loader"):
        CombinedLoader([], pad_id=0)


def test_a_state_of_something_else_is_refused():
    with pytest.raises(ValueError, match="2 combined loaders"):
        together().load_state_dict({"loaders": [{}]})
    swapped = together().state_dict()
    swapped["loaders"].reverse()
    with pytest.raises(ValueError, match="belongs to other batches"):
        together().load_state_dict(swapped)


def test_all_loaders_end_their_epoch_together():
    mixture = together()
    epochs = [[rows(batch) for batch in mixture] for _ in range(2)]
    assert [loader.epoch for loader in mixture.loaders] == [2, 2]
    first, second = loaders()
    alone = [[rows(a) + rows(b) for a, b in zip(first, second, strict=True)] for _ in range(2)]
    assert epochs == alone


class Failing:
    """A source whose disk fails once, at one sample."""

    def __init__(self, source, at):
        self.source, self.at, self.name, self.chunks = source, at, source.name, source.chunks

    def __len__(self):
        return len(self.source)

    def read(self, index):
        if index == self.at:
            self.at = None
            raise OSError(5, "Input/output error")
        return self.source.read(index)

    def fingerprint(self):
        return self.source.fingerprint()


def test_failure_leaves_all_loaders_at_their_positions():
    whole = [rows(batch) for batch in together()]
    first, second = loaders()
    source = second._reader.sources[0]
    failing = Loader(
        Failing(source, at=int(list(loaders()[1])[2].sample_indices[1])),
        PREPROCESSOR,
        global_batch_size=2,
        samples_per_epoch=10,
        seed=3,
    )
    mixture = CombinedLoader([first, failing], pad_id=TOKENS.config.pad_id)
    batches = iter(mixture)
    found = [rows(next(batches)), rows(next(batches))]
    with pytest.raises(OSError, match="Input/output error"):
        next(batches)
    assert [loader.position for loader in mixture.loaders] == [2, 2]
    resumed = together()
    resumed.load_state_dict(json.loads(json.dumps(mixture.state_dict())))
    assert found + [rows(batch) for batch in mixture] == whole
    assert found + [rows(batch) for batch in resumed] == whole


def test_a_loader_that_passes_over_a_batch_is_out_of_step():
    bad = Loader(
        FakeSource(24, bad=range(6, 12)),
        PREPROCESSOR,
        global_batch_size=6,
        shuffle=False,
        on_bad="drop",
        max_bad_fraction=1.0,
    )
    good = Loader(FakeSource(24), PREPROCESSOR, global_batch_size=6)
    with pytest.raises(ValueError, match="ended its epoch before the others"):
        list(CombinedLoader([good, bad], pad_id=0))


def test_close_closes_all(monkeypatch):
    mixture, closed = together(), []
    for number, loader in enumerate(mixture.loaders):
        monkeypatch.setattr(loader, "close", lambda number=number: closed.append(number))
    list(mixture)
    assert closed == []
    mixture.close()
    assert closed == [0, 1]


def test_load_state_dict_refuses_loaders_at_different_positions():
    state = together().state_dict()
    state["loaders"][1]["batch"] = 2
    with pytest.raises(ValueError, match=r"saved positions \(epoch, batch\) differ"):
        together().load_state_dict(state)


def test_load_state_dict_refuses_an_empty_state():
    for state in ({}, {"loaders": None}, {"loaders": 2}):
        with pytest.raises(ValueError, match="2 combined loaders"):
            together().load_state_dict(state)


def test_after_a_failure_no_worker_is_left():
    first, second = loaders(workers=1)[0], loaders()[1]
    failing = Loader(
        Failing(second._reader.sources[0], at=int(list(loaders()[1])[2].sample_indices[1])),
        PREPROCESSOR, global_batch_size=2, samples_per_epoch=10, seed=3,
    )  # fmt: skip
    with pytest.raises(OSError, match="Input/output error"):
        list(CombinedLoader([first, failing], pad_id=TOKENS.config.pad_id))
    assert not multiprocessing.active_children()


def test_states_of_different_epochs_are_refused():
    state = together().state_dict()
    state["loaders"][1]["epoch"] = 1
    with pytest.raises(ValueError, match=r"saved positions \(epoch, batch\) differ"):
        together().load_state_dict(state)


def test_load_state_dict_refuses_invalid_states():
    for states in ([1, 2], ["a", "b"], [None, None]):
        with pytest.raises(ValueError, match="2 combined loaders"):
            together().load_state_dict({"loaders": states})


def test_no_loader_moves_if_one_refuses_its_state():
    mixture = together()
    list(islice(iter(mixture), 2))
    state = mixture.state_dict()
    state["loaders"][1]["seed"] = 99
    other = together()
    with pytest.raises(ValueError, match="belongs to other batches"):
        other.load_state_dict(state)
    assert [loader.position for loader in other.loaders] == [0, 0]
