"""Wording and reading together: whatever is said is understood as it was meant."""

import re

import pytest

from prolip.scenes import lexicon
from prolip.scenes.captions import make_caption, make_caption_chain, make_description
from prolip.scenes.lexicon import make_phrase_table
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, SpatialRelation
from prolip.scenes.parsing import parse_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.tasks import make_tasks
from prolip.scenes.wording import pad_text, verbalize, verbalize_unpadded
from tests.scenes.worlds import WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_parse_caption_inverts_wording(name):
    world = WORLDS[name]
    for index in range(300):
        scene, draws = world.draw_scene(1, index), RandomDraws(2, index)
        made = [
            *make_caption_chain(scene, draws, world),
            *(make_caption(scene, level, draws, world) for level in range(4)),
        ]
        for spoken in (*made, make_description(scene, draws)):
            assert parse_caption(spoken.text) == spoken.meaning, spoken.text


def test_parse_caption_inverts_wording_of_three_objects():
    relation = frozenset({SpatialRelation(0, "left of", 2)})
    objects = (
        ObjectPattern("ring", None, None, "top"),
        ObjectPattern("round", "warm"),
        ObjectPattern(None, "blue", "small"),
    )
    meaning = CaptionMeaning(objects, relation, count=3, background="striped", style="faded")
    texts = {verbalize(meaning, RandomDraws(0, i)) for i in range(200)}
    assert len(texts) > 100
    assert {parse_caption(text) for text in texts} == {meaning}


def test_verbalize_varies_wording():
    for meaning, least in (
        (CaptionMeaning((ObjectPattern(),)), 6),
        (CaptionMeaning((ObjectPattern("circle", "red"),)), 5),
    ):
        assert len({verbalize_unpadded(meaning, RandomDraws(i)) for i in range(100)}) >= least


def test_verbalize_uses_all_general_nouns():
    words = {
        word
        for i in range(300)
        for word in verbalize_unpadded(
            CaptionMeaning((ObjectPattern(),) if i % 2 else ()), RandomDraws(i)
        ).split()
    }
    assert {"thing", "something", "object", "shape", "picture"} <= words


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a thing", CaptionMeaning((ObjectPattern(),))),
        ("A round thing.", CaptionMeaning((ObjectPattern("round"),))),
        ("a red circle", CaptionMeaning((ObjectPattern("circle", "red"),))),
        (
            "a small red circle above a blue star, blurry",
            CaptionMeaning(
                (ObjectPattern("circle", "red", "small"), ObjectPattern("star", "blue")),
                frozenset({SpatialRelation(0, "above", 1)}),
                style="blurry",
            ),
        ),
        ("something warm and large in the middle", None),
        ("a picture", CaptionMeaning()),
        ("", CaptionMeaning()),
        ("a star under a ring", CaptionMeaning((ObjectPattern("ring"), ObjectPattern("star")),
        frozenset({SpatialRelation(0, "above", 1)}))),
        ("exactly one thing", CaptionMeaning(count=1)),
        ("two things on a white background", CaptionMeaning(count=2, background="white")),
        ("a ring at the top to the left of a star", CaptionMeaning(
            (ObjectPattern("ring", position="top"), ObjectPattern("star")),
            frozenset({SpatialRelation(0, "left of", 1)}))),
        ("a ring at the top left of a star", CaptionMeaning(
            (ObjectPattern("ring", position="top"), ObjectPattern("star")),
            frozenset({SpatialRelation(0, "left of", 1)}))),
    ],
)  # fmt: skip
def test_parse_caption(text, meaning):
    if meaning is None:
        with pytest.raises(ValueError, match="expected noun"):
            parse_caption(text)
    else:
        assert parse_caption(text) == meaning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a red dog", "'dog'"),
        ("a large dog", "small, large, red, orange"),
        ("two blue stars", "'two'"),
        ("a red", "expected noun"),
        ("a circle above", "expected noun"),
        ("above a circle", "'above'"),
        ("at the top", "'top'"),
        ("a circle at the top at the left", "'top' and 'left'"),
        ("a red blue circle", "'red' and 'blue'"),
        ("a round circle", "'round' and 'circle'"),
        ("a red picture of a circle", "red"),
        ("a blurry circle in a clean picture", "the style is both blurry and clean"),
        ("the first thing", "expected noun"),
        ("the first thing is a circle and the second thing", "expected noun"),
        ("the second thing is a circle", "object 2"),
        ("a circle and a circle and a circle and a circle", "at most 3 objects"),
    ],
)
def test_parse_caption_error_names_problem(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_caption(text)


def test_pad_text_reaches_length_and_keeps_meaning():
    for length in range(3, 19):
        for i in range(20):
            text = pad_text("a circle", length, RandomDraws(length, i))
            assert len(text.split()) <= max(length, 2)
            assert parse_caption(text) == CaptionMeaning((ObjectPattern("circle"),))
    means = [
        sum(len(pad_text("a circle", n, RandomDraws(n, i)).split()) for i in range(60)) / 60
        for n in (4, 9, 16)
    ]
    assert means[0] < means[1] - 3 < means[2] - 6


def test_phrases_are_unambiguous():
    """The table is a dict: a phrase that is put in twice would silently change its meaning."""
    table = make_phrase_table()
    assert table["left", "of"] == ("relation", ("left of", False))
    assert table["left",] == ("position", "left")
    assert table["a",] == ("filler", None)
    assert table["round",] == ("adjective", ("shape", "round"))


@pytest.mark.parametrize("name", WORLDS)
def test_templates_with_class_names_parse(name):
    for task in make_tasks(WORLDS[name]):
        for template in task.templates:
            for class_name in task.class_names:
                parse_caption(template.format(c=class_name))


def test_wording_left_of_does_not_follow_position():
    meaning = CaptionMeaning(
        (ObjectPattern("circle", "red", "small", "top"), ObjectPattern("star", "blue", "large", "bottom")),
        frozenset({SpatialRelation(0, "left of", 1)}),
    )
    for n in range(200):
        assert not re.search(r"(top|bottom) (left|right) of", verbalize_unpadded(meaning, RandomDraws(n)))


def test_verbalize_rejects_several_relations():
    relations = frozenset({SpatialRelation(0, "above", 1), SpatialRelation(0, "left of", 1)})
    with pytest.raises(ValueError, match="at most one relation"):
        verbalize_unpadded(
            CaptionMeaning((ObjectPattern("circle"), ObjectPattern("star")), relations), RandomDraws(0)
        )


def test_parse_caption_rejects_two_relations_in_a_row():
    with pytest.raises(ValueError, match="two relations"):
        parse_caption("a star above below a circle")


def test_wording_uses_all_relation_words():
    meanings = [
        CaptionMeaning(
            (ObjectPattern("circle"), ObjectPattern("star")), frozenset({SpatialRelation(0, kind, 1)})
        )
        for kind in ("above", "left of")
    ]
    texts = [verbalize_unpadded(meaning, RandomDraws(n)) for n in range(200) for meaning in meanings]
    for words in lexicon.RELATIONS:
        assert any(f" {words} " in text for text in texts), words
