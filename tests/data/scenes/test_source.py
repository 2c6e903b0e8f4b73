import hashlib
import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from prolip.data import scenes
from prolip.data.scenes import HARD, SIMPLE, Scenes, Thing, World, draw
from prolip.data.scenes.source import LEVEL_SHARES


def test_a_sample_is_its_scene_and_true_captions():
    source = Scenes("hard", length=50, size=40, seed=3)
    assert len(source) == 50
    assert source.chunks.tolist() == [50]
    for index in (0, 7, 49):
        sample = source.read(index)
        assert sample.extra["scene"] == HARD.scene(3, index)
        assert np.array_equal(np.asarray(sample.image), np.asarray(draw.picture(HARD.scene(3, index), 40)))
        assert sample.captions == tuple(caption.text for caption in source.captions(index))
        assert len(sample.captions) == 4
        assert all(scenes.entails(text, sample.extra["scene"]) for text in sample.captions)
    assert len({source.read(index).key for index in range(50)}) == 50


def test_the_same_after_pickling_and_different_with_another_seed():
    source = Scenes("simple", length=20, seed=1)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(5) == source.read(5)
    assert copy.fingerprint() == source.fingerprint()
    assert Scenes("simple", length=20, seed=2).read(5).extra["scene"] != source.read(5).extra["scene"]


FINGERPRINT = """
from prolip.data.scenes import Scenes, World
print(Scenes(World(unseen=frozenset({("red", "circle"), ("blue", "star"), ("pink", "ring")})), length=9).fingerprint())
"""


def test_the_fingerprint_is_the_same_in_every_process():
    prints = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", FINGERPRINT]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        prints.add(run.stdout)
    assert len(prints) == 1


def test_levels_come_as_often_as_asked():
    source = Scenes("hard", length=1500, captions=2)
    counts = Counter(caption.level for index in range(1500) for caption in source.captions(index))
    assert chisquare([counts[k] for k in range(4)], np.array(LEVEL_SHARES) * 3000).pvalue > 1e-4
    assert {c.level for c in Scenes("hard", length=9, levels=(0, 0, 0, 1.0)).captions(3)} == {3}


@pytest.mark.parametrize(
    "other",
    [
        {"length": 21}, {"size": 49}, {"seed": 1}, {"captions": 5}, {"levels": (0.25,) * 4}, {"world": "hard"},
        {"world": World()},
    ],
)  # fmt: skip
def test_the_fingerprint_tells_every_difference(other):
    facts = {"world": "simple", "length": 20}
    assert Scenes(**facts).fingerprint() == Scenes(**facts | {"world": SIMPLE}).fingerprint()
    assert Scenes(**facts).fingerprint() != Scenes(**facts | other).fingerprint()


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"length": 0}, "length must be a whole number"),
        ({"length": 5, "size": 20}, "size must be at least 32"),
        ({"length": 5, "captions": 0}, "captions must be a whole number"),
        ({"length": 5, "levels": (1.0, 1.0, 0, 0)}, "levels must be 4 probabilities"),
        ({"length": 5, "world": "medium"}, "world 'medium' is not one of"),
    ],
)
def test_what_is_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        Scenes(**facts)


@pytest.mark.parametrize("index", [-1, 5])
def test_a_number_beyond_the_end(index):
    with pytest.raises(IndexError, match="no sample"):
        Scenes(length=5).read(index)


def test_the_face_takes_texts_and_meanings():
    assert scenes.log_ambiguity("a thing") == 0
    assert scenes.probability("a circle", World()) == pytest.approx(1 / 8)
    assert scenes.probability("a circle", "hard") == scenes.probability("a circle", HARD)
    assert scenes.log_ambiguity("a circle", "simple") == scenes.log_ambiguity("a circle", SIMPLE)
    assert scenes.probability(scenes.read("a circle"), World()) == pytest.approx(1 / 8)
    scene = scenes.Scene((Thing("circle", "red", "small", 0, 0),), "white", "clean", 2, 0)
    assert scenes.entails("a warm thing at the top", scene)
    assert not scenes.entails("a cold thing", scene)


def test_a_scene_stays_what_it_was():
    """Golden: results that people report for a seed must mean the same scenes in later versions."""
    star = Thing("star", "blue", "small", 0, 1)
    assert HARD.scene(0, 3) == scenes.Scene((star,), "white", "outlined", 2, 6157854736418252980)
    texts = [caption.text for caption in Scenes("hard", length=9).captions(3)]
    assert texts[:2] == ["a small blue star in the top right in an outlined picture", "there is a small star"]
    pixels = scenes.picture(SIMPLE.scene(0, 3), 48).tobytes()
    assert hashlib.sha256(pixels).hexdigest()[:16] == "41612b793d3b76ca"


def test_what_is_told_does_not_depend_on_what_is_drawn():
    source = Scenes("simple", length=2000, captions=1)
    levels = {1: [], 2: []}
    for index in range(600):
        levels[len(SIMPLE.scene(0, index).things)].append(source.captions(index)[0].level)
    for found in levels.values():
        assert np.bincount(found, minlength=4) / len(found) == pytest.approx((0.1, 0.2, 0.5, 0.2), abs=0.09)
