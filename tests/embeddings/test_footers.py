"""What parts say of themselves: read once, damage in its place."""

import pytest

from prolip.data.sources.columns import DamagedError
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embed import embed
from prolip.embeddings.footers import Footer, part_name, read_footers
from prolip.embeddings.storage import Folder
from tests.embeddings.shards import write_shards


@pytest.fixture
def stored(nano, tmp_path):
    data = write_shards(tmp_path / "shards", [9], bad={2})
    return embed(nano, data, tmp_path / "out", part_size=4, bad_limit=0.5, progress=False)


def test_as_the_parts_are(stored):
    found = read_footers(stored.place, stored.header, stored.numbers)
    assert list(found) == [0, 1, 2]
    for number, footer in found.items():
        assert footer.rows == len(stored.part(number))
        assert footer.size == (stored.folder / part_name(number)).stat().st_size
    assert [footer.tried for footer in found.values()] == [4, 4, 1]
    assert list(found[0].bads) == [2]
    assert len({footer.digest for footer in found.values()}) == 3
    assert (found[0].tally().tried, found[0].tally().bad) == (4, 1)


def test_damage_stays_in_its_place(stored):
    (stored.folder / part_name(1)).write_bytes(b"nothing")
    found = read_footers(stored.place, stored.header, stored.numbers)
    assert [type(footer) for footer in found.values()] == [Footer, DamagedError, Footer]
    with pytest.raises(DamagedError, match=part_name(1)):
        Embeddings.open(stored.folder).footer(1)


def test_a_foreign_file_is_an_error(stored):
    (stored.folder / part_name(1)).write_bytes((stored.folder / part_name(0)).read_bytes())
    with pytest.raises(ValueError, match="is part 0, not 1"):
        read_footers(stored.place, stored.header, stored.numbers)


def test_each_is_read_once(stored, monkeypatch):
    again, names, opened = Embeddings.open(stored.folder), [], Folder.opened
    monkeypatch.setattr(Folder, "opened", lambda self, name: (names.append(name), opened(self, name))[1])
    assert (len(again), again.tally().tried, len(list(again.bads())), sum(again.misfits().values())) == (
        16,
        9,
        1,
        0,
    )
    assert again.size_in_bytes() > 1000
    assert sorted(names) == [part_name(number) for number in range(3)]
