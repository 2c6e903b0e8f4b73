"""A list of files as a source."""

import pytest
from PIL import Image

from prolip.data.sample import BadSampleError
from prolip.data.source import Source
from prolip.data.sources.image_list import ImageList
from prolip.preprocessing.images import read_image


def test_files_in_the_order_given_and_what_is_not_there(tmp_path):
    for number, name in enumerate("ab"):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / f"{name}.png")
    files = [tmp_path / f"{name}.png" for name in ("b", "a", "missing")]
    source = ImageList(tmp_path / "table.csv", files)
    assert isinstance(source, Source)
    assert (len(source), source.name, source.chunks.tolist()) == (3, str(tmp_path / "table.csv"), [3])
    assert [read_image(source.read(i).image).getpixel((0, 0))[0] for i in (0, 1)] == [1, 0]
    assert source.read(0).captions == ()
    with pytest.raises(BadSampleError, match="missing file"):
        source.read(2)
    with pytest.raises(IndexError, match="no sample 3"):
        source.read(3)
    assert source.fingerprint() == ImageList(tmp_path, files).fingerprint()
    assert source.fingerprint() != ImageList(tmp_path, files[::-1]).fingerprint()
