"""Images of embedded samples, read again; the data set is opened once, whether it can be or not."""

import pytest
from PIL import Image

from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.reports.originals import OriginalImages


@pytest.fixture
def opened(nano, tmp_path, monkeypatch):
    """Embeddings of scenes, and how often their data was opened."""
    stored = embed(nano, "scenes:simple,length=3,size=32", tmp_path / "e", modality="image", progress=False)
    calls, real = [], EmbeddingDataset.open_source
    monkeypatch.setattr(EmbeddingDataset, "open_source", lambda self: (calls.append(1), real(self))[1])
    return stored, calls


def test_original_is_read_from_the_data(opened):
    stored, calls = opened
    images = OriginalImages(stored)
    source = EmbeddingDataset.open(stored.folder).open_source()
    calls.clear()
    for number in range(3):
        found = images.read({"path": None, "index": number})
        assert found.tobytes() == source.read(number).image.convert("RGB").tobytes()
    assert len(calls) == 1


def test_original_is_read_from_its_file(opened, tmp_path):
    stored, calls = opened
    Image.new("RGB", (5, 4), "red").save(tmp_path / "red.png")
    assert OriginalImages(stored).read({"path": str(tmp_path / "red.png"), "index": 0}).size == (5, 4)
    assert not calls


def test_missing_data_is_opened_once(opened, monkeypatch):
    stored, calls = opened

    def gone(self):
        calls.append(1)
        raise FileNotFoundError("there is no such folder")

    monkeypatch.setattr(EmbeddingDataset, "open_source", gone)
    images = OriginalImages(stored)
    for _ in range(3):
        with pytest.raises(FileNotFoundError, match="no such folder"):
            images.read({"path": None, "index": 0})
    assert len(calls) == 1
