"""Judgements of captions of scenes, for tests."""

import csv

import numpy as np
import pytest

from prolip.scenes.source import Scenes


def make_scenes(length=12):
    return Scenes("simple", length=length, size=32, seed=5)


def make_rows(source, seed=0, num_judges=3):
    """Each scene with a caption of its own and with captions of others: judges say yes to what is true, mostly."""
    random, rows = np.random.default_rng(seed), []
    samples = [source.read(index) for index in range(len(source))]
    for index, sample in enumerate(samples):
        others = [samples[(index + step) % len(samples)].captions[0] for step in (1, 2, 3, 5)]
        for caption in dict.fromkeys([sample.captions[0], *others]):
            is_true = source.is_true_caption(index, caption)
            yes = int(random.binomial(num_judges, 0.85 if is_true else 0.15))
            own = int(caption == sample.captions[0])
            row = {"key": sample.key, "caption": caption, "score": yes / num_judges}
            rows.append({**row, "judges": num_judges, "own": own})
    return rows


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def approx(value):
    """The value up to rounding in float32; None for NaN."""
    return None if value is None or np.isnan(value) else pytest.approx(float(value), abs=1e-6)
