"""Wording and reading together: whatever is said is understood as it was meant."""

import re

import pytest

from prolip.scenes import lexicon
from prolip.scenes.captions import caption, chain, describe
from prolip.scenes.lexicon import phrases
from prolip.scenes.meaning import Meaning, Pattern, Relation
from prolip.scenes.parsing import read
from prolip.scenes.random_draws import Draws
from prolip.scenes.tasks import tasks
from prolip.scenes.wording import bare, padded, say
from tests.scenes.worlds import WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_every_caption_reads_as_it_was_meant(name):
    world = WORLDS[name]
    for index in range(300):
        scene, draws = world.scene(1, index), Draws(2, index)
        made = [*chain(scene, draws, world), *(caption(scene, level, draws, world) for level in range(4))]
        for spoken in (*made, describe(scene, draws)):
            assert read(spoken.text) == spoken.meaning, spoken.text


def test_three_things_in_any_wording():
    relation = frozenset({Relation(0, "left of", 2)})
    things = (Pattern("ring", None, None, "top"), Pattern("round", "warm"), Pattern(None, "blue", "small"))
    meaning = Meaning(things, relation, count=3, background="striped", style="faded")
    texts = {say(meaning, Draws(0, i)) for i in range(200)}
    assert len(texts) > 100
    assert {read(text) for text in texts} == {meaning}


def test_a_meaning_has_several_wordings():
    for meaning, least in ((Meaning((Pattern(),)), 6), (Meaning((Pattern("circle", "red"),)), 5)):
        assert len({bare(meaning, Draws(i)) for i in range(100)}) >= least


def test_general_nouns_all_occur():
    words = {
        word for i in range(300) for word in bare(Meaning((Pattern(),) if i % 2 else ()), Draws(i)).split()
    }
    assert {"thing", "something", "object", "shape", "picture"} <= words


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a thing", Meaning((Pattern(),))),
        ("A round thing.", Meaning((Pattern("round"),))),
        ("a red circle", Meaning((Pattern("circle", "red"),))),
        (
            "a small red circle above a blue star, blurry",
            Meaning(
                (Pattern("circle", "red", "small"), Pattern("star", "blue")),
                frozenset({Relation(0, "above", 1)}),
                style="blurry",
            ),
        ),
        ("something warm and large in the middle", None),
        ("a picture", Meaning()),
        ("", Meaning()),
        ("a star under a ring", Meaning((Pattern("ring"), Pattern("star")), frozenset({Relation(0, "above", 1)}))),
        ("exactly one thing", Meaning(count=1)),
        ("two things on a white background", Meaning(count=2, background="white")),
        ("a ring at the top to the left of a star", Meaning(
            (Pattern("ring", place="top"), Pattern("star")), frozenset({Relation(0, "left of", 1)}))),
        ("a ring at the top left of a star", Meaning(
            (Pattern("ring", place="top"), Pattern("star")), frozenset({Relation(0, "left of", 1)}))),
    ],
)  # fmt: skip
def test_reading(text, meaning):
    if meaning is None:
        with pytest.raises(ValueError, match="before it has said of what"):
            read(text)
    else:
        assert read(text) == meaning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a red dog", "'dog' is not a word of scenes"),
        ("a large dog", "those are small, large, red, orange"),
        ("two blue stars", "'two' can't stand here"),
        ("a red", "ends before it has said of what"),
        ("a circle above", "ends before it has said of what"),
        ("above a circle", "'above' has nothing before it"),
        ("at the top", "'top' is the place of nothing"),
        ("a red blue circle", "'red' and 'blue' are said of one thing"),
        ("a round circle", "'round' and 'circle' are said of one thing"),
        ("a red picture of a circle", "red can't be said of a picture"),
        ("a blurry circle in a clean picture", "the style is both blurry and clean"),
        ("the first thing", "ends before it has said of what"),
        ("the first thing is a circle and the second thing", "ends before it has said of what"),
        ("the second thing is a circle", "number 2 is spoken of before number 1"),
        ("a circle and a circle and a circle and a circle", "at most 3 things"),
    ],
)
def test_what_cannot_be_understood_says_why(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(text)


def test_padding_reaches_its_length_and_says_nothing():
    for length in range(3, 19):
        for i in range(20):
            text = padded("a circle", length, Draws(length, i))
            assert len(text.split()) <= max(length, 2)
            assert read(text) == Meaning((Pattern("circle"),))
    means = [sum(len(padded("a circle", n, Draws(n, i)).split()) for i in range(60)) / 60 for n in (4, 9, 16)]
    assert means[0] < means[1] - 3 < means[2] - 6


def test_no_phrase_means_two_things():
    """The table is a dict: a phrase that is put in twice would silently change its meaning."""
    table = phrases()
    assert table["left", "of"] == ("relation", ("left of", False))
    assert table["left",] == ("place", "left")
    assert table["a",] == ("silent", None)
    assert table["round",] == ("adjective", ("shape", "round"))


@pytest.mark.parametrize("name", WORLDS)
def test_templates_and_class_names_are_captions(name):
    for task in tasks(WORLDS[name]):
        for template in task.templates:
            for class_name in task.class_names:
                read(template.format(c=class_name))


def test_left_of_does_not_follow_a_place():
    meaning = Meaning(
        (Pattern("circle", "red", "small", "top"), Pattern("star", "blue", "large", "bottom")),
        frozenset({Relation(0, "left of", 1)}),
    )
    for n in range(200):
        assert not re.search(r"(top|bottom) (left|right) of", bare(meaning, Draws(n)))


def test_several_relations_are_for_descriptions():
    relations = frozenset({Relation(0, "above", 1), Relation(0, "left of", 1)})
    with pytest.raises(ValueError, match="tells one relation"):
        bare(Meaning((Pattern("circle"), Pattern("star")), relations), Draws(0))


def test_two_relations_in_a_row_are_refused():
    with pytest.raises(ValueError, match="has nothing before it"):
        read("a star above below a circle")


def test_all_words_of_a_relation_are_said():
    meanings = [
        Meaning((Pattern("circle"), Pattern("star")), frozenset({Relation(0, kind, 1)}))
        for kind in ("above", "left of")
    ]
    texts = [bare(meaning, Draws(n)) for n in range(200) for meaning in meanings]
    for words in lexicon.RELATIONS:
        assert any(f" {words} " in text for text in texts), words
