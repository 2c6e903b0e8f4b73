"""The benchmark of decoding: it reads what `prolip embed` reads, and sees a change of embeddings where there is one."""

import io

import pytest
from PIL import Image

from benchmarks import data, decoding
from tests.data.tar_files import tar_bytes

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(decoding, "SIZES", ((64, 48), (160, 120)))


def test_small_images_do_not_change(nano):
    """Half of 64 x 48 is less than twice what the model sees."""
    size = nano.config.image.preprocessing.size
    change = decoding.measure_change(nano, [data.make_photo(3 * size, 3 * size, seed) for seed in range(3)])
    assert change.least_cosine == pytest.approx(1, abs=1e-6)
    assert (change.same_first, change.common_neighbors) == (1, 1)
    assert change.uncertainty_factor == 1


def test_large_images_change(nano):
    size = nano.config.image.preprocessing.size
    change = decoding.measure_change(nano, [data.make_photo(8 * size, 8 * size, seed) for seed in range(3)])
    assert change.least_cosine < 1 - 1e-6
    assert change.cosine > 0.9


def test_decode_command(tmp_path, run_benchmark, capsys):
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 10, 10)).save(file, format="png")
    shard = tmp_path / "shard.tar"
    shard.write_bytes(tar_bytes([(f"{name}.png", file.getvalue()) for name in "abc"]))
    words = ("--images", "2", "--repeats", "1", "--model", "scenes-tiny", "--data", str(shard))
    result = run_benchmark("decode", *words)["result"]
    assert set(result["seconds"]) == {"64 x 48", "160 x 120"}
    assert all(set(times) == {"exact", "fast"} for times in result["seconds"].values())
    assert set(result["changes"]) == {"enlarged", "sheets of 16"}
    out = capsys.readouterr().out
    assert "times faster" in out
    assert "same nearest" in out
