import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from prolip.filtering.filter import filter_pairs
from prolip.filtering.summary import Histogram
from prolip.reports import filtering
from prolip.reports.filtering import rebin_histogram, save_filter_page
from tests.embeddings.shards import write_shards
from tests.filtering import made_embeddings as made


@pytest.fixture(scope="module")
def histogram():
    generator = np.random.default_rng(0)
    values = np.concatenate([generator.normal(size=5000), [90.0, -70.0]])
    edges = np.linspace(values.min(), values.max(), 4097)
    kept = np.histogram(values[values > 0.3], edges)[0]
    return Histogram(edges, kept, np.histogram(values, edges)[0] - kept)


def test_rebin_histogram_keeps_all_samples_and_isolates_outliers(histogram):
    edges, (kept, dropped) = rebin_histogram(histogram)
    assert kept.sum() == histogram.kept.sum()
    assert dropped.sum() == histogram.dropped.sum()
    assert len(edges) == len(kept) + 1 <= filtering.MAX_BARS + 1
    assert edges[0] > -5
    assert edges[-1] < 5
    assert len(kept) > 30


@pytest.mark.parametrize("position", [0, 7, 4095])
def test_rebin_histogram_of_one_bin(position):
    counts = np.zeros(4096, int)
    counts[position] = 10
    edges, (kept, dropped) = rebin_histogram(Histogram(np.linspace(0, 1, 4097), counts, 0 * counts))
    assert kept.sum() == 10
    assert dropped.sum() == 0
    assert edges[0] <= position / 4096 < edges[-1]


class Text(HTMLParser):
    """What a reader sees, and the images in the page."""

    def __init__(self, page):
        super().__init__()
        self.words, self.images = [], []
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_data(self, data):
        self.words.append(data)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs))


def test_filter_page_shows_outcomes_and_images(nano_path, tmp_path):
    data = write_shards(tmp_path / "d", [9, 8], bad=[3])
    done = filter_pairs(
        data, tmp_path / "o", keep_fraction=0.5, model=nano_path, max_bad_fraction=0.2, duplicates="both",
        duplicate_cosine=0.9999, ground_truth="width", progress=False,
    )  # fmt: skip
    page = save_filter_page(done, tmp_path / "o").read_text()
    seen = Text(page)
    kept, gone = done.counts.kept, done.selection.duplicates.count
    assert f"{kept} of 16 samples" in seen.text
    assert f"duplicate of a better sample {gone}" in seen.text
    assert "bad: unreadable image 1" in seen.text
    assert re.search(r"unreadable image \S*00000.tar: 000003", seen.text), "a bad sample is a row"
    assert "random selection" in seen.text
    assert "width: " in seen.text, "the truth is below each image"
    for title in ("Best", "Just kept", "Just dropped", "Worst", "dropped", "kept"):
        assert title in seen.text
    assert seen.images
    assert all(one["src"].startswith("data:image/") for one in seen.images), "it needs no other file"
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_filter_page_shows_paths_of_image_files(nano_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(4):
        Image.new("RGB", (32, 32), (60 * number, 90, 30)).save(tmp_path / "photos" / f"{number}.png")
    done = filter_pairs(
        "photos", "o", keep_fraction=0.5, rank_by="image-uncertainty", model=nano_path, modality="image",
        progress=False,
    )  # fmt: skip
    seen = Text(save_filter_page(done, tmp_path / "o").read_text())
    for number in range(4):
        assert f"photos/{number}.png" in seen.text


def test_filter_page_shows_errors_of_missing_images(tmp_path):
    z = made.gaussians(8)
    embeddings = made.write(tmp_path / "e", [made.pairs(z[:4], z[4:], path=[str(tmp_path / "gone.png")] * 4)])
    done = filter_pairs(embeddings.folder, tmp_path / "o", keep_fraction=0.5)
    seen = Text(save_filter_page(done, tmp_path / "o").read_text())
    assert "no image: " in seen.text
    assert "gone.png does not exist" in seen.text


def test_filter_page_shows_no_images_of_changed_data(nano_path, tmp_path):
    done = filter_pairs(
        write_shards(tmp_path / "d", [6]), tmp_path / "o", keep_fraction=0.5, model=nano_path, progress=False
    )
    write_shards(tmp_path / "d", [5])
    seen = Text(save_filter_page(done, tmp_path / "o").read_text())
    assert "no image: " in seen.text
    assert "has changed since it was embedded" in seen.text
    assert len({one["src"] for one in seen.images}) == 1


def test_filter_page_escapes_text(tmp_path):
    z = made.gaussians(2)
    rows = [made.row(0, "image", z[0], "x"), made.row(0, "text", z[1], "<script>alert(1)</script>")]
    done = filter_pairs(made.write(tmp_path / "e", [rows]).folder, tmp_path / "o", keep_fraction=1.0)
    page = save_filter_page(done, tmp_path / "o").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
