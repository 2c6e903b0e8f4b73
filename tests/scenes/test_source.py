import hashlib
import math
import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from prolip import scenes
from prolip.scenes import HARD, SIMPLE, SceneObject, Scenes, World, rendering
from prolip.scenes.captions import make_complete_caption
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, entails
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.source import LEVEL_FRACTIONS


def test_read_returns_scene_and_true_captions():
    source = Scenes("hard", length=50, size=40, seed=3)
    assert len(source) == 50
    assert source.chunks.tolist() == [50]
    for index in (0, 7, 49):
        sample = source.read(index)
        assert sample.extra["scene"] == HARD.draw_scene(3, index)
        assert np.array_equal(
            np.asarray(sample.image), np.asarray(rendering.render(HARD.draw_scene(3, index), 40))
        )
        assert sample.captions == tuple(caption.text for caption in source.captions(index))
        assert len(sample.captions) == 4
        assert all(scenes.is_true_caption(text, sample.extra["scene"]) for text in sample.captions)
    assert len({source.read(index).key for index in range(50)}) == 50


def test_scenes_pickle_and_seed():
    source = Scenes("simple", length=20, seed=1)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(5) == source.read(5)
    assert copy.fingerprint() == source.fingerprint()
    assert Scenes("simple", length=20, seed=2).read(5).extra["scene"] != source.read(5).extra["scene"]


FINGERPRINT = """
from prolip.scenes import Scenes, World
print(Scenes(World(unseen=frozenset({("red", "circle"), ("blue", "star"), ("pink", "ring")})), length=9).fingerprint())
"""


@pytest.mark.slow
def test_fingerprint_is_the_same_in_every_process():
    prints = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", FINGERPRINT]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        prints.add(run.stdout)
    assert len(prints) == 1


def test_levels_follow_probabilities():
    source = Scenes("hard", length=1500, captions=2)
    counts = Counter(caption.level for index in range(1500) for caption in source.captions(index))
    assert chisquare([counts[k] for k in range(4)], np.array(LEVEL_FRACTIONS) * 3000).pvalue > 1e-4
    assert {c.level for c in Scenes("hard", length=9, levels=(0, 0, 0, 1.0)).captions(3)} == {3}


@pytest.mark.parametrize(
    "other",
    [
        {"length": 21}, {"size": 49}, {"seed": 1}, {"captions": 5}, {"levels": (0.25,) * 4}, {"world": "hard"},
        {"world": World()}, {"complete": 0.5}, {"placed": 0.5}, {"general": True},
    ],
)  # fmt: skip
def test_fingerprint_changes_with_every_setting(other):
    settings = {"world": "simple", "length": 20}
    assert Scenes(**settings).fingerprint() == Scenes(**settings | {"world": SIMPLE}).fingerprint()
    assert Scenes(**settings).fingerprint() != Scenes(**settings | other).fingerprint()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 0}, "length"),
        ({"length": 5, "size": 20}, "size must be at least 32"),
        ({"length": 5, "captions": 0}, "captions"),
        ({"length": 5, "levels": (1.0, 1.0, 0, 0)}, "levels must be 4 probabilities"),
        ({"length": 5, "world": "medium"}, "world 'medium' is not one of"),
        ({"length": 5, "complete": 2}, "complete must be a fraction from 0 to 1, not 2"),
        ({"length": 5, "complete": math.nan}, "complete must be a fraction from 0 to 1, not nan"),
        ({"length": 5, "placed": -0.1}, "placed must be a fraction from 0 to 1, not -0.1"),
    ],
)
def test_scenes_rejects_invalid_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Scenes(**settings)


@pytest.mark.parametrize("index", [-1, 5])
def test_read_rejects_index_out_of_range(index):
    with pytest.raises(IndexError, match=str(index)):
        Scenes("simple", length=5).read(index)


def test_public_functions_take_texts_and_meanings():
    assert scenes.log_ambiguity("a thing") == 0
    assert scenes.probability("a circle", World()) == pytest.approx(1 / 8)
    assert scenes.probability("a circle", "hard") == scenes.probability("a circle", HARD)
    assert scenes.log_ambiguity("a circle", "simple") == scenes.log_ambiguity("a circle", SIMPLE)
    assert scenes.probability(scenes.parse_caption("a circle"), World()) == pytest.approx(1 / 8)
    scene = scenes.Scene((SceneObject("circle", "red", "small", 0, 0),), "white", "clean", 2, 0)
    assert scenes.is_true_caption("a warm thing at the top", scene)
    assert not scenes.is_true_caption("a cold thing", scene)


def test_scenes_golden():
    """Golden: results that people report for a seed must mean the same scenes in later versions."""
    star = SceneObject("star", "blue", "small", 0, 1)
    assert HARD.draw_scene(0, 3) == scenes.Scene((star,), "white", "outlined", 2, 6157854736418252980)
    texts = [caption.text for caption in Scenes("hard", length=9).captions(3)]
    assert texts[:2] == [
        "a small blue star in the top right in an outlined picture",
        "we see a blue pointed shape",
    ]
    pixels = scenes.render(SIMPLE.draw_scene(0, 3), 48).tobytes()
    assert hashlib.sha256(pixels).hexdigest()[:16] == "41612b793d3b76ca"


def test_levels_are_independent_of_scene():
    source = Scenes("simple", length=2000, captions=1)
    levels = {1: [], 2: []}
    for index in range(600):
        levels[len(SIMPLE.draw_scene(0, index).objects)].append(source.captions(index)[0].level)
    for found in levels.values():
        assert np.bincount(found, minlength=4) / len(found) == pytest.approx((0.1, 0.2, 0.5, 0.2), abs=0.09)


@pytest.mark.parametrize("name", ["simple", "hard"])
def test_general_captions_are_entailed_and_say_less(name):
    """By what their words mean; nothing beside a caption that says nothing."""
    source = Scenes(name, length=100, seed=4, complete=0.5, placed=0.2, general=True)
    for index in range(100):
        sample = source.read(index)
        assert len(sample.general_captions) == len(sample.captions) == 4
        for text, less in zip(sample.captions, sample.general_captions, strict=True):
            meaning = scenes.parse_caption(text)
            assert (less == "") == (meaning in (CaptionMeaning(), CaptionMeaning((ObjectPattern(),)))), text
            if less:
                assert entails(meaning, scenes.parse_caption(less)), (text, less)
                assert not entails(scenes.parse_caption(less), meaning), (text, less)


def test_general_captions_change_nothing_else():
    plain, general = (Scenes("hard", length=20, general=general) for general in (False, True))
    for index in range(20):
        one, other = plain.read(index), general.read(index)
        assert one.general_captions == ()
        assert (one.captions, one.key, one.extra) == (other.captions, other.key, other.extra)
        assert other == general.read(index), "they are the same each time"


def placed_only(caption):
    obj, *others = caption.meaning.objects or (ObjectPattern(),)
    return not others and caption.meaning == CaptionMeaning(
        (ObjectPattern(size=obj.size, position=obj.position),)
    )


def test_complete_fraction_of_last_level():
    """Others rarely tell everything."""
    counts = {}
    for share in (0.0, 0.5, 1.0):
        source = Scenes("hard", length=150, levels=(0, 0, 0.5, 0.5), complete=share)
        found = Counter()
        for index in range(150):
            whole = make_complete_caption(HARD.draw_scene(0, index), RandomDraws(0), HARD).meaning
            found.update(caption.meaning == whole for caption in source.captions(index) if caption.level == 3)
        counts[share] = found[True] / found.total()
    assert counts[0.0] < 0.05
    assert counts[0.5] == pytest.approx(0.5, abs=0.12)
    assert counts[1.0] == 1


def test_placed_fraction_states_position_alone():
    source = Scenes("simple", length=600, captions=2, levels=(0.5, 0, 0, 0.5), placed=0.4)
    told = [caption for index in range(600) for caption in source.captions(index)]
    levels = Counter(caption.level for caption in told)
    assert chisquare([levels[0], levels[2], levels[3]], [360, 480, 360]).pvalue > 1e-4
    assert all(placed_only(caption) for caption in told if caption.level == 2)
    assert all(placed_only(caption) for caption in Scenes("simple", length=9, placed=1).captions(3))
