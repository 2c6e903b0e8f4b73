"""A small model, and embeddings of scenes made with it."""

import pytest
from PIL import Image

import prolip
from prolip.weights.load import load


@pytest.fixture(scope="session")
def scenes_tiny():
    return load("scenes-tiny", device="cpu")


@pytest.fixture(scope="session")
def images():
    return [Image.new("RGB", (60, 50), color) for color in ("red", "blue", "green")]


@pytest.fixture(scope="session")
def embeddings(tmp_path_factory):
    """80 scenes with captions, in two parts."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("embeddings") / "scenes"
    prolip.embed("scenes-tiny", "scenes:simple,size=48,length=80", str(folder), part_size=50)
    return folder
