import shlex

import pytest

from prolip.embed.run import embed
from prolip.search.filter.again import source_again
from tests.embed.shards import write_shards


def test_the_same_samples_come(nano, tmp_path):
    embeddings = embed(nano, write_shards(tmp_path / "d", [3]), tmp_path / "e", progress=False)
    assert [source_again(embeddings).read(n).key for n in range(3)] == ["000000", "000001", "000002"]
    write_shards(tmp_path / "d", [2])
    with pytest.raises(ValueError, match="has changed since it was embedded: embed it again"):
        source_again(embeddings)


def test_a_stream_can_not_be_read_at_a_place(nano, tmp_path):
    write_shards(tmp_path / "d", [3])
    data = f"pipe:cat {shlex.quote(str(tmp_path))}/d/00000.tar"
    embeddings = embed(nano, data, tmp_path / "e", progress=False)
    with pytest.raises(ValueError, match="is a stream"):
        source_again(embeddings)
