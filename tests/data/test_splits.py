"""A split holds its fraction out, never cuts through duplicates, and depends on contents alone."""

import csv
import random

import numpy as np
import pytest
from PIL import Image

from prolip.data.open import open_data
from prolip.data.sample import BadSampleError
from prolip.data.splits import format_split, parse_split, split_source


def write_table(folder, rows, name="pairs.csv"):
    """A CSV of (number of the image, caption); equal numbers are equal pictures in different files."""
    folder.mkdir(exist_ok=True)
    with open(folder / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        for row, (number, caption) in enumerate(rows):
            if number is not None:
                Image.new("RGB", (8, 8), (number % 256, number // 256, 7)).save(folder / f"{row}.png")
            writer.writerow([f"{row}.png", caption])
    return str(folder / name)


def read_all(address):
    source = open_data(address)
    samples = []
    for index in range(len(source)):
        try:
            samples.append(source.read(index))
        except BadSampleError:
            continue
    return {(sample.image.read_bytes(), sample.captions[0]) for sample in samples}


def test_sides_share_no_image_and_no_caption(tmp_path):
    draws = random.Random(0)
    rows = [(draws.randrange(150), f"Caption, {draws.randrange(150)}!") for _ in range(200)]
    rows = [(image, text if i % 2 else text.lower().strip("!")) for i, (image, text) in enumerate(rows)]
    address = write_table(tmp_path / "t", rows)
    train, held_out = (read_all(format_split(part, 0.2, address)) for part in ("train", "held-out"))
    assert {image for image, _ in train}.isdisjoint({image for image, _ in held_out})
    clean = [{text.lower().strip("!") for _, text in side} for side in (train, held_out)]
    assert clean[0].isdisjoint(clean[1])
    assert held_out


def test_distinct_samples_give_exactly_the_fraction(tmp_path):
    address = write_table(tmp_path / "t", [(i, f"text {i}") for i in range(60)])
    split = split_source(open_data(address), 0.1)
    assert len(split.held_out) == 6
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(60))


def test_split_depends_on_contents_not_on_names_or_order(tmp_path):
    rows = [(i, f"text {i}") for i in range(60)]
    one = write_table(tmp_path / "a", rows)
    two = write_table(tmp_path / "b", rows[::-1])
    assert read_all(format_split("held-out", 0.1, one)) == read_all(format_split("held-out", 0.1, two))


def test_more_data_moves_few_samples(tmp_path):
    rows = [(i, f"text {i}") for i in range(200)]
    before = read_all(format_split("held-out", 0.1, write_table(tmp_path / "a", rows[:190])))
    after = read_all(format_split("held-out", 0.1, write_table(tmp_path / "b", rows)))
    assert len(before - after) <= 3


def test_bad_samples_are_on_the_side_of_training(tmp_path):
    address = write_table(tmp_path / "t", [(None if i == 4 else i, f"text {i}") for i in range(30)])
    split = split_source(open_data(address), 0.5)
    assert 4 in split.train
    assert len(split.held_out) == 15


def test_one_caption_for_all_is_refused(tmp_path):
    address = write_table(tmp_path / "t", [(i, "the same") for i in range(30)])
    with pytest.raises(ValueError, match="held-out"):
        open_data(format_split("held-out", 0.1, address))


def test_addresses_go_there_and_back():
    assert format_split("train", 0.1, "a:b.csv") == "split:train@0.1:a:b.csv"
    assert parse_split(format_split("held-out", 1 / 3, "x")) == ("held-out", pytest.approx(1 / 3), "x")
    assert parse_split("pairs.csv") is None
    assert parse_split("split:test@0.1:pairs.csv") is None


def test_fingerprints_of_the_parts_differ(tmp_path):
    address = write_table(tmp_path / "t", [(i, f"text {i}") for i in range(30)])
    names = [format_split("train", 0.1, address), format_split("held-out", 0.1, address)]
    names.append(format_split("train", 0.2, address))
    assert len({open_data(name).fingerprint() for name in names}) == 3
